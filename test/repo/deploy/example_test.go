package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// examples are the example Services by the name of their file.
func examples(t *testing.T) map[string][]*corev1.Service {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(sourceTree(t), "deploy", "examples", "*.yaml"))
	must(t, err)
	all := map[string][]*corev1.Service{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			service := &corev1.Service{}
			must(t, yaml.UnmarshalStrict([]byte(document), service))
			all[filepath.Base(file)] = append(all[filepath.Base(file)], service)
		}
	}
	return all
}

// TestExamplesAreAccepted sends every example to the API server.
func TestExamplesAreAccepted(t *testing.T) {
	client, err := kubernetes.NewForConfig(cp.Config())
	must(t, err)
	for file, services := range examples(t) {
		for _, service := range services {
			options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll},
				FieldValidation: metav1.FieldValidationStrict}
			created, err := client.CoreV1().Services("default").Create(t.Context(), service, options)
			if err != nil || created.Spec.Type != corev1.ServiceTypeLoadBalancer {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// TestEveryAnnotationHasAnExample compares the examples with the names in the code.
func TestEveryAnnotationHasAnExample(t *testing.T) {
	shown := map[string]int{}
	for _, services := range examples(t) {
		for key := range services[0].Annotations { // the others of a file have the same
			shown[key]++
		}
	}
	for _, key := range []string{
		contract.ServiceIPLocation, contract.ServiceIPAllocation, contract.ServiceIPBlockSize,
		contract.ServiceIPBlock, contract.ServiceIPRetain,
		contract.ServiceRequestedIP, contract.ServiceIPReplace, contract.ServiceSharedAddress,
	} {
		if shown[key] != 1 {
			t.Errorf("%s is shown %d times, want once", key, shown[key])
		}
		delete(shown, key)
	}
	for key := range shown {
		t.Errorf("%s is shown, and no annotation that a user writes", key)
	}
}

// secretTemplate is what stands in the template of the Secret.
func secretTemplate(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sourceTree(t), "deploy", "template", "secret.yaml"))
	must(t, err)
	secret := &corev1.Secret{}
	must(t, yaml.UnmarshalStrict(text, secret))
	mounted := controller(t, "kubeadm").Spec.Template.Spec.Volumes[0].Secret.SecretName
	if secret.Name != mounted || secret.Namespace != metav1.NamespaceSystem || len(secret.StringData) != 1 {
		t.Errorf("Secret %s/%s with %d keys; the controller mounts %s", secret.Namespace, secret.Name,
			len(secret.StringData), mounted)
	}
	content := secret.StringData["cloud-sa.json"]
	if !json.Valid([]byte(content)) {
		t.Errorf("no JSON: %s", content)
	}
	return content
}

func load(t *testing.T, content string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cloud-sa.json")
	must(t, os.WriteFile(path, []byte(content), 0o600))
	_, err := config.Load(path, nil, func(string) string { return "" })
	return err
}

// TestTemplate: the controller refuses placeholders, names each of them, and accepts the file once they are filled in.
func TestTemplate(t *testing.T) {
	content := secretTemplate(t)
	err := load(t, content)
	if err == nil {
		t.Fatal("the controller accepts the placeholders")
	}
	for _, field := range []string{"clientID", "clientSecret", "location", "loadbalancer"} {
		if !strings.Contains(err.Error(), "secret field "+field) {
			t.Errorf("the error does not name %s: %v", field, err)
		}
	}
	filled := strings.NewReplacer("<client ID>", "abc123abc123abc123", "<client secret>", "def456def456def456",
		"<location>", "ASH", "<network ID>", "60473c2509268bc77fd06d29").Replace(content)
	if err := load(t, filled); err != nil || strings.Contains(filled, "<") {
		t.Errorf("%v of\n%s", err, filled)
	}
}
