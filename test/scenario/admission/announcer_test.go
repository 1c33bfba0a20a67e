package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// rights and policies of announcement by the agents.
func announcer(t *testing.T) {
	t.Helper()
	install(t)
	const component = "components/announcer/"
	apply(t, component+"rights.yaml", component+"policy.yaml", component+"secret-policy.yaml")
}

func secret(name string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "kube-vip"}}, Type: kind,
		StringData: map[string]string{contract.AnnouncerSecretKey: "k"},
	}
}

// TestAgentsShareOneConfigMap is what the announcer does to the API.
func TestAgentsShareOneConfigMap(t *testing.T) {
	announcer(t)
	configs := agentOn(t, "c1").CoreV1().ConfigMaps(metav1.NamespaceSystem)
	watch, err := configs.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" +
		contract.AnnouncerView})
	must(t, err)
	defer watch.Stop()
	made, err := configs.Create(t.Context(), configMap(contract.AnnouncerView), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = clientOf(t, cp.Config()).CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(cleanup(t), made.Name,
			metav1.DeleteOptions{})
	})
	made.Data = map[string]string{"network": "view"}
	made, err = configs.Update(t.Context(), made, metav1.UpdateOptions{})
	must(t, err)
	must2(configs.Get(t.Context(), contract.AnnouncerView, metav1.GetOptions{}))(t)
	if event := <-watch.ResultChan(); event.Object == nil {
		t.Error("the watch ended")
	}
	if _, err := configs.Create(t.Context(), configMap("phoenixnap-members"), metav1.CreateOptions{}); !refusedBy(err,
		"phoenixnap-agent-view") {
		t.Errorf("another ConfigMap: %v", err)
	}
	unbound := account(t, "phoenixnap-agent").CoreV1().ConfigMaps(metav1.NamespaceSystem)
	if _, err := unbound.Update(t.Context(), made, metav1.UpdateOptions{}); !refusedBy(err, "phoenixnap-agent-view") {
		t.Errorf("with a token of no pod: %v", err)
	}
	if err := configs.Delete(t.Context(), contract.AnnouncerView, metav1.DeleteOptions{}); !forbidden(err) {
		t.Errorf("its deletion: %v", err)
	}
	if _, err := configs.List(t.Context(), metav1.ListOptions{}); !forbidden(err) {
		t.Errorf("all ConfigMaps: %v", err)
	}
}

// TestControllerMakesOneSecret: a right to make Secrets is close to a right to everything.
func TestControllerMakesOneSecret(t *testing.T) {
	announcer(t)
	secrets := account(t, "phoenixnap-cloud-controller-manager").CoreV1().Secrets(metav1.NamespaceSystem)
	for what, s := range map[string]*corev1.Secret{
		"another name": secret("another", corev1.SecretTypeOpaque),
		"a token":      secret(contract.AnnouncerSecret, corev1.SecretTypeServiceAccountToken),
	} {
		if _, err := secrets.Create(t.Context(), s, metav1.CreateOptions{}); !refusedBy(err,
			"phoenixnap-controller-secrets") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must2(secrets.Create(t.Context(), secret(contract.AnnouncerSecret, corev1.SecretTypeOpaque),
		metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		_ = clientOf(t, cp.Config()).CoreV1().Secrets(metav1.NamespaceSystem).Delete(cleanup(t),
			contract.AnnouncerSecret, metav1.DeleteOptions{})
	})
	must2(secrets.Get(t.Context(), contract.AnnouncerSecret, metav1.GetOptions{}))(t)
	if _, err := secrets.Get(t.Context(), "pnap-cloud-config", metav1.GetOptions{}); !forbidden(err) {
		t.Errorf("another Secret: %v", err)
	}
	agents := agentOn(t, "c2").CoreV1().Secrets(metav1.NamespaceSystem)
	must2(agents.Get(t.Context(), contract.AnnouncerSecret, metav1.GetOptions{}))(t)
	if _, err := agents.Get(t.Context(), "pnap-cloud-config", metav1.GetOptions{}); !forbidden(err) {
		t.Errorf("an agent reads another Secret: %v", err)
	}
	if _, err := agents.List(t.Context(), metav1.ListOptions{}); !forbidden(err) {
		t.Errorf("an agent lists Secrets: %v", err)
	}
}
