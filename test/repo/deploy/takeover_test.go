package deploy

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy/reapply"
)

// TestFromKubectlToHelmAndBack follows the guide of upgrades: neither way replaces or restarts anything.
func TestFromKubectlToHelmAndBack(t *testing.T) {
	cluster := reapply.NewCluster(t, cp.Config())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, controlplane.WriteKubeconfig(kubeconfig, cp.Config(), ""))
	for _, overlay := range []string{"kubeadm", "k3s-agent-manage-vlan", "kubeadm-nodes"} {
		t.Run(overlay, func(t *testing.T) {
			values, err := ChartValues(overlay)
			must(t, err)
			takeOver(t, cluster, kubeconfig, overlay, values)
		})
	}
}

// undefine deletes the definitions, which every control plane of the tests has.
func undefine(t *testing.T, cluster *reapply.Cluster) {
	t.Helper()
	cluster.Must(t, "annotate", "--overwrite", "crd", "--all", contract.AllowDeletion+"=true")
	cluster.Must(t, "delete", "--ignore-not-found", "-k", filepath.Join(sourceTree(t), "deploy", "crds"))
}

func takeOver(t *testing.T, cluster *reapply.Cluster, kubeconfig, overlay string, values []string) {
	t.Helper()
	dir := filepath.Join(sourceTree(t), "deploy", "overlays", overlay)
	helm := func(args ...string) (string, error) {
		args = append(args, "--namespace", "kube-system", "--kubeconfig", kubeconfig)
		return runHelm(t.Context(), args...)
	}
	kinds := filepath.Join(sourceTree(t), "deploy", "crds")
	install := slices.Concat([]string{"upgrade", "--install", "phoenixnap", chart(t)}, values)
	cluster.Must(t, "delete", "--ignore-not-found", "-k", dir) // another test may have left what differs
	undefine(t, cluster)
	cluster.Must(t, "apply", "-k", kinds)
	defined := cluster.Live(t, "-k", kinds)
	cluster.Must(t, "apply", "-k", dir)
	defer cluster.Must(t, "delete", "--ignore-not-found", "-k", dir)
	enterController(t, overlay)
	before := cluster.Live(t, "-k", dir)

	if out, err := helm(install...); err == nil || !strings.Contains(out, "invalid ownership metadata") {
		t.Fatalf("without --take-ownership: %v\n%s", err, out)
	}
	for _, step := range [][]string{append(slices.Clone(install), "--take-ownership"), install} {
		if out, err := helm(step...); err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(step, " "), err, out)
		}
		reapply.SameContents(t, "with Helm", before, cluster.Live(t, "-k", dir))
		reapply.SameContents(t, "the definition with Helm", defined, cluster.Live(t, "-k", kinds))
	}

	controllerStays(t, overlay)

	cluster.Must(t, "-n", "kube-system", "delete", "secret", "-l", "owner=helm,name=phoenixnap")
	reapply.Unchanged(t, cluster.Must(t, "apply", "-k", kinds))
	reapply.Unchanged(t, cluster.Must(t, "apply", "-k", dir))
	reapply.SameContents(t, "back with kubectl", before, cluster.Live(t, "-k", dir))
	controllerStays(t, overlay)
	if out, err := helm("list", "--all", "--short"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("Helm still has %s: %v", out, err)
	}
}

// enterController makes the controller the subject of its RoleBinding, as it does itself while an announcer is set.
func enterController(t *testing.T, overlay string) {
	t.Helper()
	if strings.HasSuffix(overlay, nodesOnly) {
		return
	}
	bindings := cp.Kube().RbacV1().RoleBindings("kube-system")
	binding, err := bindings.Get(t.Context(), "phoenixnap:announce-addresses", metav1.GetOptions{})
	must(t, err)
	binding.Subjects = []rbacv1.Subject{{Kind: "ServiceAccount", Name: "phoenixnap-cloud-controller-manager",
		Namespace: "kube-system"}}
	_, err = bindings.Update(t.Context(), binding, metav1.UpdateOptions{})
	must(t, err)
}

// controllerStays expects that the controller is still the subject.
func controllerStays(t *testing.T, overlay string) {
	t.Helper()
	if strings.HasSuffix(overlay, nodesOnly) {
		return
	}
	binding, err := cp.Kube().RbacV1().RoleBindings("kube-system").Get(t.Context(), "phoenixnap:announce-addresses",
		metav1.GetOptions{})
	must(t, err)
	if len(binding.Subjects) != 1 {
		t.Errorf("the subjects of %s are %v", binding.Name, binding.Subjects)
	}
}
