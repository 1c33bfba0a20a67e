package admission

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func forbidden(err error) bool {
	return apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

// must2 is must for calls that return something beside the error.
func must2[T any](_ T, err error) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		must(t, err)
	}
}

// authorIn is a user who may do everything to the Services of a namespace, their status included, and has all rights
// there.
func authorIn(t *testing.T, namespace string) kubernetes.Interface {
	t.Helper()
	const name = "author"
	admin := clientOf(t, cp.Config())
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	if _, err := admin.RbacV1().Roles(namespace).Create(t.Context(), role,
		metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding,
		metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	must(t, cp.AwaitAccess(t.Context(), name, namespace, role.Rules))
	config, err := cp.User(name)
	must(t, err)
	return clientOf(t, config)
}

// grantEverything makes a user a cluster administrator for the time of the test.
func grantEverything(t *testing.T, admin kubernetes.Interface, user string) {
	t.Helper()
	bind(t, admin, "cluster-admin", user)
}

// bind binds a ClusterRole for the time of the test.
func bind(t *testing.T, admin kubernetes.Interface, role, user string) {
	t.Helper()
	bindings := admin.RbacV1().ClusterRoleBindings()
	made, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = bindings.Delete(cleanup(t), made.Name, metav1.DeleteOptions{}) })
	bound, err := admin.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{})
	must(t, err)
	must(t, cp.AwaitAccess(t.Context(), user, "", bound.Rules))
}

func loadBalancer(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

const address, gateway = "203.0.113.10", "198.51.100.1"

// published are the annotations that the controller writes.
func published() map[string]string {
	return map[string]string{
		contract.ServiceIPAddress: address, contract.ServiceIPBlockCIDR: "203.0.113.8/29",
		contract.ServiceIPGateway:       "203.0.113.9",
		contract.ServiceIPBlockAssigned: "true",
		contract.ServiceIPOwner:         "uid", contract.KubeVIPAddresses: address,
		contract.KubeVIPLease:       "kubevip-" + address,
		contract.ServiceAnnouncedBy: "srv-a", contract.ServiceAnnouncedSince: "2026-01-01T00:00:00Z",
	}
}

// services is a client for the Services of the namespace default.
type services struct {
	*testing.T
	client kubernetes.Interface
}

func (s services) create(service *corev1.Service) error {
	s.Helper()
	_, err := s.client.CoreV1().Services("default").Create(s.Context(), service, metav1.CreateOptions{})
	if err == nil {
		s.Cleanup(func() {
			all := clientOf(s.T, cp.Config()).CoreV1().Services("default")
			_, _ = all.Patch(cleanup(s.T), service.Name, types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			_ = all.Delete(cleanup(s.T), service.Name, metav1.DeleteOptions{})
		})
	}
	return err
}

func (s services) patch(name string, patch object, subresources ...string) error {
	s.Helper()
	raw, err := json.Marshal(patch)
	must(s.T, err)
	_, err = s.client.CoreV1().Services("default").Patch(s.Context(), name, types.MergePatchType, raw,
		metav1.PatchOptions{}, subresources...)
	return err
}

// served makes a Service as the controller leaves it, written by the shipped ServiceAccounts.
func served(t *testing.T, name string) {
	t.Helper()
	must(t, services{t, authorIn(t, "default")}.create(loadBalancer(name)))
	controller := services{t, account(t, "phoenixnap-cloud-controller-manager")}
	must(t, controller.patch(name, object{"metadata": object{"annotations": published()},
		"spec": object{"loadBalancerIP": address}}))
	must(t, controller.patch(name, ingress(address), "status"))
	kubeVIP := kubeVIPOn(t, "srv-a").CoreV1().Services("default")
	service, err := kubeVIP.Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	service.Annotations["kube-vip.io/vipHost"] = "srv-a"
	service, err = kubeVIP.Update(t.Context(), service, metav1.UpdateOptions{})
	must(t, err)
	service.Status.LoadBalancer.Ingress[0].Ports = []corev1.PortStatus{{Port: 80, Protocol: corev1.ProtocolTCP}}
	must2(kubeVIP.UpdateStatus(t.Context(), service, metav1.UpdateOptions{}))(t)
}

func account(t *testing.T, name string) kubernetes.Interface {
	t.Helper()
	config, err := cp.ServiceAccount(t.Context(), metav1.NamespaceSystem, name)
	must(t, err)
	return clientOf(t, config)
}

func ingress(ip string) object {
	return status(object{"loadBalancer": object{"ingress": []object{{"ip": ip, "ipMode": "VIP"}}}})
}

func annotations(pairs object) object { return metadata(object{"annotations": pairs}) }

// TestAuthorsMayNotPublish tries every way by which an author of Services could name an address.
func TestAuthorsMayNotPublish(t *testing.T) {
	install(t)
	apply(t, "kube-vip/kube-vip.yaml")
	served(t, "web")
	author := services{t, authorIn(t, "default")}
	for key := range published() {
		policy := "phoenixnap-service-addresses"
		if key == contract.KubeVIPAddresses || key == contract.KubeVIPLease {
			policy = "phoenixnap-kube-vip"
		}
		if err := author.patch("web", annotations(object{key: gateway})); !refusedBy(err, policy) ||
			!strings.Contains(err.Error(), key) {
			t.Errorf("change of %s: %v", key, err)
		}
		for _, kind := range []corev1.ServiceType{corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP} {
			service := loadBalancer("other")
			service.Annotations = map[string]string{key: gateway}
			service.Spec.Type = kind
			if err := author.create(service); !refusedBy(err, policy) {
				t.Errorf("%s with %s: %v", kind, key, err)
			}
		}
		if err := author.patch("web", annotations(object{key: gateway}), "status"); !refusedBy(err, policy) {
			t.Errorf("change of %s through the status: %v", key, err)
		}
	}
	for what, err := range map[string]error{
		"spec.loadBalancerIP": author.patch("web", object{"spec": object{"loadBalancerIP": gateway}}),
		"DHCP":                author.patch("web", object{"spec": object{"loadBalancerIP": "0.0.0.0"}}),
		"both at once": author.patch("web", object{"spec": object{"loadBalancerIP": gateway},
			"metadata": annotations(object{contract.ServiceRequestedIP: gateway})["metadata"]}),
		"annotation taken away": author.patch("web", object{"spec": object{"loadBalancerIP": gateway},
			"metadata": annotations(object{contract.ServiceIPAddress: nil})["metadata"]}),
	} {
		if !refusedBy(err, "phoenixnap-kube-vip") || !strings.Contains(err.Error(), contract.ServiceRequestedIP) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"address":    author.patch("web", ingress(gateway), "status"),
		"no address": author.patch("web", status(object{"loadBalancer": nil}), "status"),
		"our condition": author.patch("web",
			status(object{"conditions": []object{serviceCondition(contract.ServiceConditionAnnounced)}}), "status"),
	} {
		if !refusedBy(err, "phoenixnap-service-addresses") {
			t.Errorf("%s in the status: %v", what, err)
		}
	}
}

func serviceCondition(kind string) object {
	return object{"type": kind, "status": "True", "reason": "Test", "message": "",
		"lastTransitionTime": "2026-01-01T00:00:00Z"}
}

// TestAuthorsMayNotPublishByDetours goes through Services that kube-vip does not serve yet.
func TestAuthorsMayNotPublishByDetours(t *testing.T) {
	install(t)
	author := services{t, authorIn(t, "default")}
	foreign := loadBalancer("foreign")
	foreign.Spec.LoadBalancerClass = ptr.To("example.com/lb")
	foreign.Spec.LoadBalancerIP = gateway
	must(t, author.create(foreign)) // another provider may need it
	inner := loadBalancer("inner")
	inner.Spec.Type = corev1.ServiceTypeClusterIP
	inner.Spec.LoadBalancerIP = gateway
	must(t, author.create(inner))
	class := loadBalancer("class")
	class.Spec.LoadBalancerClass = ptr.To(contract.LoadBalancerClass)
	class.Spec.LoadBalancerIP = gateway
	for what, err := range map[string]error{
		"type": author.patch("inner", object{"spec": object{"type": "LoadBalancer"}}),
		"type with class": author.patch("inner", object{"spec": object{"type": "LoadBalancer",
			"loadBalancerClass": contract.LoadBalancerClass}}),
		"our class": author.create(class),
	} {
		if !refusedBy(err, "phoenixnap-kube-vip") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, author.patch("foreign", object{"spec": object{"type": "ClusterIP", "loadBalancerClass": nil}}))
	if err := author.patch("foreign", object{"spec": object{"type": "LoadBalancer"}}); !refusedBy(err,
		"phoenixnap-kube-vip") {
		t.Errorf("from a foreign class: %v", err)
	}
	must(t,
		author.patch("foreign", object{"spec": object{"type": "LoadBalancer", "loadBalancerClass": "example.com/lb"}}))
	must(t, author.patch("foreign", ingress("192.0.2.1"), "status"))
}

// TestAuthorsGoOnWorking does what authors do to Services every day.
func TestAuthorsGoOnWorking(t *testing.T) {
	admin := install(t)
	apply(t, "kube-vip/kube-vip.yaml")
	served(t, "site")
	author := services{t, authorIn(t, "default")}
	asking := loadBalancer("asking")
	asking.Annotations = map[string]string{
		contract.ServiceIPLocation: "ASH", contract.ServiceIPAllocation: "shared", contract.ServiceIPBlockSize: "/28",
		contract.ServiceIPRetain:  "true",
		contract.ServiceIPReplace: "true", contract.ServiceRequestedIP: address,
		contract.ServiceIPBlock: "mail", contract.KubeVIPInterface: "bond0.56",
	}
	must(t, author.create(asking))
	for _, step := range []struct {
		what  string
		patch object
	}{
		{"another port", object{"spec": object{"ports": []object{{"port": 81}}}}},
		{"the address that it has", object{"spec": object{"loadBalancerIP": address}}},
		{"to ClusterIP", object{"spec": object{"type": "ClusterIP"}}},
		{"and back", object{"spec": object{"type": "LoadBalancer"}}},
		{"without the wish", object{"spec": object{"loadBalancerIP": nil}}},
		{"annotations away", annotations(object{contract.ServiceIPAddress: nil, contract.KubeVIPAddresses: nil})},
		{"a label", metadata(object{"labels": object{"a": "b"}})},
	} {
		if err := author.patch("site", step.patch); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
	}
	if err := author.patch("site", status(object{"conditions": []object{serviceCondition("example.com/Mine")}}),
		"status"); err != nil {
		t.Errorf("a condition of its own: %v", err)
	}
	must(t, services{t, admin}.patch("site", object{"spec": object{"loadBalancerIP": gateway}})) // an administrator may
	if err := author.patch("site", metadata(object{"labels": object{"a": "c"}})); err != nil {
		t.Errorf("with an address that was there before: %v", err)
	}
	must2(author.client.CoreV1().Services("default").Get(t.Context(), "site", metav1.GetOptions{}))(t)
	must(t, author.client.CoreV1().Services("default").Delete(t.Context(), "site", metav1.DeleteOptions{}))
}

// writers is a ClusterRole that lets its holders write Services. (No controller aggregates the role "edit" here.)
func writers(t *testing.T, admin kubernetes.Interface) string {
	t.Helper()
	role, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services"},
			Verbs: []string{"create", "update", "patch"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = admin.RbacV1().ClusterRoles().Delete(cleanup(t), role.Name, metav1.DeleteOptions{}) })
	return role.Name
}

// TestPublishersAreNamedByRBAC gives the right to another user, for example a program that restores backups.
func TestPublishersAreNamedByRBAC(t *testing.T) {
	admin := install(t)
	config, err := cp.User("restorer")
	must(t, err)
	restorer := services{t, clientOf(t, config)}
	bind(t, admin, writers(t, admin), "restorer")
	service := loadBalancer("restored")
	service.Annotations = published()
	eventually(t, "refused only for the annotations", func() bool {
		err := restorer.create(service)
		return refusedBy(err, "phoenixnap-service-addresses") || refusedBy(err, "phoenixnap-kube-vip")
	})
	bind(t, admin, "phoenixnap:publish-addresses", "restorer")
	eventually(t, "the right", func() bool { return restorer.create(service) == nil })
}

// TestEveryFieldOfTheControllerIsProtected compares the policies with the names in the code.
func TestEveryFieldOfTheControllerIsProtected(t *testing.T) {
	admin := install(t)
	var text strings.Builder
	for _, name := range []string{"phoenixnap-service-addresses", "phoenixnap-kube-vip", "phoenixnap-agent-nodes"} {
		policy, err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), name,
			metav1.GetOptions{})
		must(t, err)
		for _, v := range policy.Spec.Variables {
			text.WriteString(v.Expression)
		}
		for _, v := range policy.Spec.Validations {
			text.WriteString(v.Expression)
		}
	}
	for _, name := range slices.Concat(contract.OwnedServiceAnnotations(), contract.OwnedServiceConditions(), []string{
		contract.KubeVIPAddresses, contract.LoadBalancerClass,
		contract.ConditionVLANReady, contract.ConditionAnnouncementHealthy, contract.NodeReportedIdentity,
		contract.NodeReportedAddresses,
	}) {
		if !strings.Contains(text.String(), `"`+name+`"`) {
			t.Errorf("no policy names %s", name)
		}
	}
}

// TestEveryPolicyIsDocumented reads the manifests, those of components included.
func TestEveryPolicyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/explanation/security.md")
	must(t, err)
	files, err := filepath.Glob("../../../deploy/*/*policy.yaml")
	must(t, err)
	more, err := filepath.Glob("../../../deploy/components/*/*policy.yaml")
	must(t, err)
	more = append(more, "../../../deploy/kube-vip/kube-vip.yaml")
	found := map[string]bool{}
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, match := range regexp.MustCompile(`policyName: (\S+)`).FindAllStringSubmatch(string(text), -1) {
			found[match[1]] = true
			if !strings.Contains(string(page), "`"+match[1]+"`") {
				t.Errorf("docs/explanation/security.md: the policy %s of %s is missing", match[1], file)
			}
		}
	}
	if len(found) < 11 {
		t.Errorf("only %d policies: %v", len(found), found)
	}
}
