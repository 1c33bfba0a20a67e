package admission

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const retention = "phoenixnap-service-retention"

// inNamespace binds a user to a ClusterRole in one namespace, as the refusal advises.
func inNamespace(t *testing.T, admin kubernetes.Interface, namespace, role, user string) {
	t.Helper()
	must2(admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "retain-ip-blocks"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		_ = admin.RbacV1().RoleBindings(namespace).Delete(cleanup(t), "retain-ip-blocks", metav1.DeleteOptions{})
	})
}

// TestRetentionNeedsARight: a tenant who may write Services does not have the cluster pay for blocks after them.
func TestRetentionNeedsARight(t *testing.T) {
	admin := install(t)
	config, err := cp.User("saver")
	must(t, err)
	tenant := services{t, clientOf(t, config)}
	bind(t, admin, writers(t, admin), "saver")
	retained := func(name, value string) error {
		service := loadBalancer(name)
		service.Annotations = map[string]string{contract.ServiceIPRetain: value}
		return tenant.create(service)
	}
	if err := retained("kept", "true"); !refusedBy(err, retention) {
		t.Fatal(err)
	}
	if err := retained("kept", " true"); !refusedBy(err, retention) {
		t.Errorf("with a space before the value: %v", err)
	}
	err = retained("kept", "true")
	for _, says := range []string{"saver", contract.ServiceIPRetain, "--clusterrole=phoenixnap:retain-ip-blocks"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("the refusal does not name %s: %v", says, err)
		}
	}
	must(t, retained("kept", "false"))
	wish := annotations(object{contract.ServiceIPRetain: "true"})
	if err := tenant.patch("kept", wish); !refusedBy(err, retention) {
		t.Errorf("the annotation is changed to true: %v", err)
	}
	must(t, services{t, admin}.patch("kept", wish)) // an administrator may
	must(t, tenant.patch("kept", metadata(object{"labels": object{"a": "b"}})))
	must(t, tenant.patch("kept", annotations(object{contract.ServiceIPRetain: nil})))

	inNamespace(t, admin, "default", "phoenixnap:retain-ip-blocks", "saver")
	eventually(t, "the right", func() bool { return tenant.patch("kept", wish) == nil })
}
