package admission

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	policies "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
)

// cp is the control plane of all tests of this package.
var cp *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &cp)) }

// overlay is what is installed: everything that users of kube-vip install.
const overlay = "../../../deploy/rendered/kubeadm/deployment.yaml"

// wait bounds the time that the API server takes to notice a policy.
const wait = time.Minute

// configured does what a controller with that announcer does for the policies, with the rights that are shipped. An
// empty one is none.
func configured(t *testing.T, announcer string) {
	t.Helper()
	bindings := account(t, policies.AccountName).RbacV1().RoleBindings(metav1.NamespaceSystem)
	eventually(t, "the rights of the controller", func() bool {
		_, err := bindings.Get(t.Context(), policies.BindingName, metav1.GetOptions{})
		return !apierrors.IsForbidden(err)
	})
	must(t, policies.PolicySwitch{Bindings: bindings, Announcing: announcer != ""}.Sync(t.Context()))
}

// install applies the overlay, configures kube-vip as the announcer, and waits until the API server enforces each
// policy.
func install(t *testing.T) kubernetes.Interface {
	t.Helper()
	must(t, cp.ApplyFiles(t.Context(), filepath.FromSlash(overlay)))
	admin := clientOf(t, cp.Config())
	agent := agentOn(t, "nowhere")
	configured(t, contract.AnnouncerKubeVIP)
	eventually(t, "the policies for agents", func() bool {
		_, err := agent.CoreV1().Events("default").Create(t.Context(), event("unknown", "Node", "elsewhere"), dryRun)
		return refusedBy(err, "phoenixnap-agent-events")
	})
	author := authorIn(t, "default")
	eventually(t, "the policies for Services", func() bool {
		service := loadBalancer("probe")
		service.Annotations = map[string]string{"phoenixnap.com/ip-address": "192.0.2.1"}
		_, first := author.CoreV1().Services("default").Create(t.Context(), service, dryRun)
		service = loadBalancer("probe")
		service.Spec.LoadBalancerIP = "192.0.2.1"
		_, second := author.CoreV1().Services("default").Create(t.Context(), service, dryRun)
		return refusedBy(first, "phoenixnap-service-addresses") && refusedBy(second, "phoenixnap-kube-vip")
	})
	return admin
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// refusedBy reports whether a policy of that name refused a request.
func refusedBy(err error, policy string) bool {
	return (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) &&
		strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(wait); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", wait, what)
		}
		<-time.After(100 * time.Millisecond)
	}
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

// cleanup is a context for what is done after a test.
func cleanup(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }
