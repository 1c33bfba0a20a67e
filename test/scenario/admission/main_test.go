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

// overlay is what install applies: everything that users of kube-vip install.
const overlay = "rendered/kubeadm/deployment.yaml"

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

// deployed is the file of a path below deploy.
func deployed(path string) string { return filepath.Join("../../../deploy", filepath.FromSlash(path)) }

// apply applies manifests below deploy and waits until the API server enforces each policy.
func apply(t *testing.T, paths ...string) {
	t.Helper()
	var files []string
	for _, path := range paths {
		files = append(files, deployed(path))
	}
	must(t, cp.ApplyFiles(t.Context(), files...))
	enforced(t)
}

// install applies everything that users of kube-vip install, and configures kube-vip as the announcer.
func install(t *testing.T) kubernetes.Interface {
	t.Helper()
	apply(t, overlay)
	configured(t, contract.AnnouncerKubeVIP)
	author := authorIn(t, "default")
	eventually(t, "the switch of the policies", func() bool { return applies(t, author) })
	return clientOf(t, cp.Config())
}

// applies reports whether the policies for Services are switched on, by trying what is always refused then. One is
// enough: the switch of all of them is the same RoleBinding.
func applies(t *testing.T, author kubernetes.Interface) bool {
	t.Helper()
	service := loadBalancer("probe")
	service.Annotations = map[string]string{contract.ServiceIPAddress: otherAddress}
	_, err := author.CoreV1().Services("default").Create(t.Context(), service, dryRun)
	return refusedBy(err, "phoenixnap-service-addresses")
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
