package monitoring

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/listen"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
)

// podMonitor is what of a PodMonitor decides whether it finds its pods (monitoring.coreos.com/v1).
type podMonitor struct {
	Kind     string            `json:"kind"`
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port          string `json:"port"`
			Scheme        string `json:"scheme"`
			Authorization struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
			Relabelings []struct {
				TargetLabel string `json:"targetLabel"`
				Replacement string `json:"replacement"`
			} `json:"relabelings"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// podTemplate reads the template of a shipped workload.
func podTemplate(t *testing.T, file string) corev1.PodTemplateSpec {
	t.Helper()
	var workload struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	for document := range strings.SplitSeq(read(t, file), "\n---\n") {
		if err := yaml.Unmarshal([]byte(document), &workload); err != nil {
			t.Fatal(err)
		}
		if len(workload.Spec.Template.Spec.Containers) > 0 {
			return workload.Spec.Template
		}
	}
	t.Fatalf("%s has no template of a pod", file)
	return corev1.PodTemplateSpec{}
}

// Each PodMonitor selects the pods of its program, and the port that components/metrics names or opens.
func TestPodMonitorsFindThePods(t *testing.T) {
	ports := read(t, "deploy/components/metrics/kustomization.yaml")
	templates := map[string]string{
		"phoenixnap-cloud-controller-manager": "deploy/base/controller-deployment.yaml",
		"phoenixnap-agent":                    "deploy/base/agent-daemonset.yaml",
	}
	for document := range strings.SplitSeq(read(t, "deploy/monitoring/podmonitor.yaml"), "\n---\n") {
		var m podMonitor
		if err := yaml.Unmarshal([]byte(document), &m); err != nil {
			t.Fatal(err)
		}
		file, known := templates[m.Metadata.Name]
		if !known {
			t.Errorf("nothing is called %s", m.Metadata.Name)
			continue
		}
		delete(templates, m.Metadata.Name)
		selector, err := metav1.LabelSelectorAsMap(&m.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range selector {
			if got := podTemplate(t, file).Labels[key]; got != value {
				t.Errorf("%s selects %s=%s, the pods have %q", m.Metadata.Name, key, value, got)
			}
		}
		for _, endpoint := range m.Spec.PodMetricsEndpoints {
			if endpoint.Port == "" && len(endpoint.Relabelings) == 1 {
				port := strings.TrimPrefix(endpoint.Relabelings[0].Replacement, "$1")
				served := "--metrics-bind-address=127.0.0.1" + port
				if endpoint.Relabelings[0].TargetLabel != "__address__" || !strings.Contains(read(t, file), served) ||
					strings.Count(ports, "--"+listen.Flag) != 2 {
					t.Errorf("%s asks %v, which components/metrics does not open", m.Metadata.Name,
						endpoint.Relabelings)
				}
				continue
			}
			if !strings.Contains(ports, "name: "+endpoint.Port+", containerPort: ") {
				t.Errorf("%s asks the port %q, which components/metrics does not name", m.Metadata.Name, endpoint.Port)
			}
		}
	}
	for name := range templates {
		t.Errorf("nothing collects %s", name)
	}
}

// documents takes manifests apart.
func documents(manifests []controlplane.Manifest) []controlplane.Manifest {
	var all []controlplane.Manifest
	for _, each := range manifests {
		for document := range strings.SplitSeq(string(each.Data), "\n---\n") {
			all = append(all, controlplane.Manifest{Name: each.Name, Data: []byte(document)})
		}
	}
	return all
}

// The kustomization renders, what the API server knows of it is taken, and the reader may get /metrics and nothing
// else.
func TestTheReaderMayOnlyReadMetrics(t *testing.T) {
	manifests, err := controlplane.Read(t.Context(), filepath.Join(root, "deploy", "monitoring"))
	if err != nil {
		t.Fatal(err)
	}
	var known []controlplane.Manifest
	kinds := map[string]int{}
	for _, each := range documents(manifests) {
		var object struct {
			metav1.TypeMeta `json:",inline"`
			Data            map[string]string `json:"data"`
		}
		if err := yaml.Unmarshal(each.Data, &object); err != nil {
			t.Fatal(err)
		}
		kinds[object.Kind]++
		if object.Kind == "ConfigMap" && !json.Valid([]byte(object.Data["dashboard.json"])) {
			t.Error("the ConfigMap holds no dashboard")
		}
		if !strings.HasPrefix(object.APIVersion, "monitoring.coreos.com/") {
			known = append(known, each)
		}
	}
	if kinds["PodMonitor"] != 2 || kinds["PrometheusRule"] != 1 || kinds["ConfigMap"] != 1 || kinds["Secret"] != 1 {
		t.Errorf("rendered %v", kinds)
	}
	plane := controlplane.ForTest(t)
	if err := plane.Apply(t.Context(), known...); err != nil {
		t.Fatal(err)
	}
	config, err := plane.ServiceAccount(t.Context(), metav1.NamespaceSystem, "phoenixnap-metrics-reader")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/metrics": true, "/healthz/phoenixnap-api": false, "/debug/pprof": false} {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
				},
			}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != want {
			t.Errorf("the reader may get %s: %v, want %v", path, review.Status.Allowed, want)
		}
	}
	if _, err := client.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the reader lists Secrets")
	}
}
