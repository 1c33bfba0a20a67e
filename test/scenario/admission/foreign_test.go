package admission

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	policies "github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/repo/deploy"
)

// installation is one way to install this project: an overlay, or the values of the chart that equal it.
type installation struct {
	name, overlay string
	manifest      controlplane.Manifest
}

// installations are all ways to install this project.
func installations(t *testing.T) []installation {
	t.Helper()
	root, err := tools.ModuleRoot()
	must(t, err)
	overlays, err := deploy.Overlays(root)
	must(t, err)
	var all []installation
	for _, overlay := range overlays {
		text, err := os.ReadFile(deploy.Rendered(root, overlay))
		must(t, err)
		values, err := deploy.ChartValues(overlay)
		must(t, err)
		chart, err := deploy.RenderChart(t.Context(), root, values...)
		must(t, err)
		all = append(all,
			installation{overlay, overlay, controlplane.Manifest{Name: overlay, Data: text}},
			installation{"chart/" + overlay, overlay,
				controlplane.Manifest{Name: "chart " + overlay, Data: []byte(chart)}})
	}
	return all
}

// installOnly applies an installation where no other one is, and waits until the API server enforces what it says.
func (i installation) installOnly(t *testing.T) kubernetes.Interface {
	t.Helper()
	admin := clientOf(t, cp.Config())
	policies := admin.AdmissionregistrationV1()
	all := metav1.ListOptions{}
	must(t, policies.ValidatingAdmissionPolicyBindings().DeleteCollection(t.Context(), metav1.DeleteOptions{}, all))
	must(t, policies.ValidatingAdmissionPolicies().DeleteCollection(t.Context(), metav1.DeleteOptions{}, all))
	must(t, admin.RbacV1().RoleBindings(metav1.NamespaceSystem).DeleteCollection(t.Context(), metav1.DeleteOptions{},
		all))
	must(t, cp.Apply(t.Context(), i.manifest))
	enforced(t, admin)
	return admin
}

// enforced waits until the API server enforces every existing policy: it learns of policies and of bindings in
// the order in which they were written, so the effect of the last one proves that all are in effect.
func enforced(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	const name = "zz-test-marker"
	policies := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	must2(policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
							Resources: []string{"configmaps"}},
					},
				}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: fmt.Sprintf("object.metadata.name != %q",
				name)}},
		},
	}, metav1.CreateOptions{}))(t)
	must2(bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{}))(t)
	eventually(t, "the last of the policies", func() bool {
		_, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name), dryRun)
		return refusedBy(err, name)
	})
	must(t, bindings.Delete(t.Context(), name, metav1.DeleteOptions{}))
	must(t, policies.Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// foreigners are other programs that serve Services: with the rights that MetalLB's manifest and kube-vip's give them.
var foreigners = []struct{ namespace, name, class string }{
	{"metallb-system", "controller", "metallb.io/metallb"},
	{"kube-vip-system", "kube-vip", "kube-vip.io/kube-vip-class"},
}

// foreigner is a client with the ServiceAccount of another load balancer.
func foreigner(t *testing.T, namespace, name string) kubernetes.Interface {
	t.Helper()
	admin := clientOf(t, cp.Config())
	made := func(err error) {
		t.Helper()
		if !apierrors.IsAlreadyExists(err) {
			must(t, err)
		}
	}
	role := namespace + ":" + name
	_, err := admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	made(err)
	_, err = admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	made(err)
	_, err = admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services"},
				Verbs: []string{"get", "list", "watch", "update", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"update", "patch"}},
		},
	}, metav1.CreateOptions{})
	made(err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{})
	made(err)
	config, err := cp.ServiceAccount(t.Context(), namespace, name)
	must(t, err)
	return clientOf(t, config)
}

// ofClass is a Service of a class; none when empty.
func ofClass(name, class string) *corev1.Service {
	service := loadBalancer(name)
	if class != "" {
		service.Spec.LoadBalancerClass = ptr.To(class)
	}
	return service
}

const foreignAddress, otherAddress = "192.0.2.10", "192.0.2.11"

// lifeWithAnother is the life of a Service which another load balancer serves: what the user writes, and what that load
// balancer does.
func lifeWithAnother(t *testing.T, class string, other kubernetes.Interface) {
	t.Helper()
	author := services{t, authorIn(t, "default")}
	server := services{t, other}
	name := "of-another"
	service := ofClass(name, class)
	service.Spec.LoadBalancerIP = foreignAddress
	service.Annotations = map[string]string{contract.KubeVIPAddresses: foreignAddress}
	steps := []struct {
		what string
		do   func() error
	}{
		{"user creates it with spec.loadBalancerIP", func() error { return author.create(service) }},
		{"annotation of its own", func() error {
			return server.patch(name,
				annotations(object{"example.com/pool": "a"}))
		}},
		{"status", func() error { return server.patch(name, ingress(foreignAddress), "status") }},
		{"user changes spec.loadBalancerIP", func() error {
			return author.patch(name,
				object{"spec": object{"loadBalancerIP": otherAddress}})
		}},
		{"user changes kube-vip's annotation", func() error {
			return author.patch(name,
				annotations(object{contract.KubeVIPAddresses: otherAddress}))
		}},
		{"another status", func() error { return updateStatus(t, other, name, otherAddress) }},
		{"no status", func() error { return updateStatus(t, other, name) }},
		{"status again", func() error { return updateStatus(t, other, name, otherAddress) }},
		{"user makes it another type", func() error {
			return author.patch(name, object{"spec": object{"type": "ClusterIP", "loadBalancerClass": nil,
				"loadBalancerIP": nil}})
		}},
		{"status taken away", func() error { return updateStatus(t, other, name) }},
	}
	for i, step := range steps {
		err := step.do()
		if err != nil {
			t.Errorf("class %q: %s: %v", class, step.what, err)
		}
		if err != nil && i == 0 { // so that the steps after it say what they think
			must(t, services{t, clientOf(t, cp.Config())}.create(service))
		}
	}
	_ = clientOf(t, cp.Config()).CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{})
}

// updateStatus writes the addresses as MetalLB and kube-vip do: the whole status.
func updateStatus(t *testing.T, client kubernetes.Interface, name string, addresses ...string) error {
	t.Helper()
	service, err := client.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	service.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	for _, a := range addresses {
		service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: a})
	}
	_, err = client.CoreV1().Services("default").UpdateStatus(t.Context(), service, metav1.UpdateOptions{})
	return err
}

// TestInstallingDisturbsNothing applies each overlay, and the chart that equals it, to a cluster in which others serve
// Services and our controller has not run: everything that they and their users do still works.
func TestInstallingDisturbsNothing(t *testing.T) {
	for _, i := range installations(t) {
		t.Run(filepath.ToSlash(i.name), func(t *testing.T) {
			i.installOnly(t)
			for _, f := range foreigners {
				other := foreigner(t, f.namespace, f.name)
				lifeWithAnother(t, "", other)
				lifeWithAnother(t, f.class, other)
			}
		})
	}
}

// withKubeVIP reports whether addresses of the installation are announced by kube-vip.
func (i installation) withKubeVIP() bool { return !strings.HasSuffix(i.overlay, "-agent") }

// announcer is the one that the installation is for.
func (i installation) announcer() string {
	if i.withKubeVIP() {
		return contract.AnnouncerKubeVIP
	}
	return contract.AnnouncerAgent
}

// applies reports whether the policies for Services apply, by trying what is always refused then.
func applies(t *testing.T, author kubernetes.Interface) bool {
	t.Helper()
	service := loadBalancer("probe")
	service.Annotations = map[string]string{contract.ServiceIPAddress: otherAddress}
	_, err := author.CoreV1().Services("default").Create(t.Context(), service, dryRun)
	return refusedBy(err, "phoenixnap-service-addresses")
}

// TestPoliciesFollowTheAnnouncer goes through the life of each installation: before a controller runs, with an
// announcer, and with a controller that looks after Nodes only. With an announcer only what it serves is protected.
func TestPoliciesFollowTheAnnouncer(t *testing.T) {
	for _, i := range installations(t) {
		t.Run(filepath.ToSlash(i.name), func(t *testing.T) {
			admin := i.installOnly(t)
			author := services{t, authorIn(t, "default")}
			metalLB := foreigner(t, "metallb-system", "controller")
			theirs(t, author, metalLB)
			configured(t, i.announcer())
			eventually(t, "the policies apply", func() bool { return applies(t, author.client) })
			for _, f := range foreigners {
				lifeWithAnother(t, f.class, foreigner(t, f.namespace, f.name))
			}
			i.checkTheirs(t, author, metalLB)
			i.checkOurs(t, author)
			i.checkTaken(t, author, metalLB)
			i.checkNamed(t, admin, metalLB)
			configured(t, "")
			eventually(t, "the policies do not apply any more", func() bool { return !applies(t, author.client) })
			for _, f := range foreigners {
				other := foreigner(t, f.namespace, f.name)
				lifeWithAnother(t, "", other)
				lifeWithAnother(t, f.class, other)
			}
		})
	}
}

// theirs makes a Service without a class that MetalLB serves before any controller of ours runs.
func theirs(t *testing.T, author services, metalLB kubernetes.Interface) {
	t.Helper()
	service := loadBalancer("theirs")
	service.Spec.LoadBalancerIP = foreignAddress
	must(t, author.create(service))
	must(t, updateStatus(t, metalLB, service.Name, foreignAddress))
}

// checkTheirs: what the controller has not taken on is not protected.
func (installation) checkTheirs(t *testing.T, author services, metalLB kubernetes.Interface) {
	t.Helper()
	for what, err := range map[string]error{
		"status":               updateStatus(t, metalLB, "theirs", otherAddress),
		"spec.loadBalancerIP":  author.patch("theirs", object{"spec": object{"loadBalancerIP": otherAddress}}),
		"kube-vip's own":       author.patch("theirs", annotations(object{contract.KubeVIPAddresses: otherAddress})),
		"kube-vip's own again": author.patch("theirs", annotations(object{contract.KubeVIPAddresses: nil})),
	} {
		if err != nil {
			t.Errorf("%s of a Service of another without a class: %v", what, err)
		}
	}
}

// checkOurs: a Service without a class and one with ours are protected from their creation on.
func (i installation) checkOurs(t *testing.T, author services) {
	t.Helper()
	for name, class := range map[string]string{"without-class": "", "with-class": contract.LoadBalancerClass} {
		must(t, author.create(ofClass(name, class)))
		for _, f := range foreigners {
			err := updateStatus(t, foreigner(t, f.namespace, f.name), name, foreignAddress)
			if !refusedBy(err, "phoenixnap-service-addresses") {
				t.Errorf("%s: %s writes its status: %v", name, f.namespace, err)
			}
		}
		wish := ofClass(name+"-wish", class)
		wish.Spec.LoadBalancerIP = foreignAddress
		i.wished(t, name+", on creation", author.create(wish))
		i.wished(t, name, author.patch(name, object{"spec": object{"loadBalancerIP": foreignAddress}}))
	}
}

// wished checks the answer to a new spec.loadBalancerIP: beside kube-vip it is refused, the agents do not read it.
func (i installation) wished(t *testing.T, what string, err error) {
	t.Helper()
	if want := i.withKubeVIP(); refusedBy(err, "phoenixnap-kube-vip") != want || (!want && err != nil) {
		t.Errorf("spec.loadBalancerIP of a Service of ours, %s: %v", what, err)
	}
}

// checkTaken: the same Service of another is protected as soon as the controller has taken it on, whatever its author
// removes.
func (i installation) checkTaken(t *testing.T, author services, metalLB kubernetes.Interface) {
	t.Helper()
	controller := services{t, account(t, "phoenixnap-cloud-controller-manager")}
	must(t, controller.patch("theirs", metadata(object{"annotations": published()})))
	taken := status(object{"conditions": []object{serviceCondition(contract.ServiceConditionAddressPublished)}})
	must(t, controller.patch("theirs", taken, "status"))
	gone := object{}
	for key := range published() {
		gone[key] = nil
	}
	must(t, author.patch("theirs", annotations(gone)))
	if err := updateStatus(t, metalLB, "theirs", foreignAddress); !refusedBy(err, "phoenixnap-service-addresses") {
		t.Errorf("MetalLB writes the status of a Service that was taken on: %v", err)
	}
	i.wished(t, "taken on", author.patch("theirs", object{"spec": object{"loadBalancerIP": gateway}}))
}

// checkNamed: a user bound to the ClusterRole publishes beside us.
func (installation) checkNamed(t *testing.T, admin, metalLB kubernetes.Interface) {
	t.Helper()
	binding, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "phoenixnap:publish-addresses"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "metallb-system", Name: "controller"}},
	}, metav1.CreateOptions{})
	must(t, err)
	defer func() {
		must(t, admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
	}()
	eventually(t, "MetalLB may publish when it is named", func() bool {
		return updateStatus(t, metalLB, "theirs", foreignAddress) == nil
	})
}

// TestDetoursThroughAnother: an author who has another load balancer serve a Service first achieves no more.
func TestDetoursThroughAnother(t *testing.T) {
	install(t)
	author := services{t, authorIn(t, "default")}
	metalLB := foreigner(t, "metallb-system", "controller")
	service := ofClass("detour", "metallb.io/metallb")
	service.Annotations = map[string]string{contract.KubeVIPAddresses: gateway}
	must(t, author.create(service))
	must(t, updateStatus(t, metalLB, service.Name, foreignAddress))
	must(t, author.patch(service.Name, object{"spec": object{"type": "ClusterIP", "loadBalancerClass": nil}}))
	again := object{"spec": object{"type": "LoadBalancer"}}
	if err := author.patch(service.Name, again); !refusedBy(err, "phoenixnap-kube-vip") {
		t.Errorf("kube-vip's annotation of an earlier class: %v", err)
	}
	must(t, author.patch(service.Name, annotations(object{contract.KubeVIPAddresses: nil})))
	must(t, author.patch(service.Name, again))
	for what, err := range map[string]error{
		"spec.loadBalancerIP": author.patch(service.Name, object{"spec": object{"loadBalancerIP": gateway}}),
		"annotation":          author.patch(service.Name, annotations(object{contract.KubeVIPAddresses: gateway})),
		"status":              author.patch(service.Name, ingress(gateway), "status"),
	} {
		if !refusedBy(err, "phoenixnap-kube-vip") && !refusedBy(err, "phoenixnap-service-addresses") {
			t.Errorf("%s after an earlier class: %v", what, err)
		}
	}
}

// TestInstallingAgainKeepsTheSwitch: applying the manifests once more, in any of the ways that the guides have, does
// not open a gap.
func TestInstallingAgainKeepsTheSwitch(t *testing.T) {
	admin := install(t)
	root, err := tools.ModuleRoot()
	must(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, controlplane.WriteKubeconfig(kubeconfig, cp.Config(), ""))
	chart := filepath.Join(root, filepath.FromSlash(deploy.Chart))
	for _, args := range [][]string{
		{"kubectl", "apply", "-f", filepath.FromSlash(overlay)},
		{"kubectl", "apply", "--server-side", "--force-conflicts", "-f", filepath.FromSlash(overlay)},
		{"helm", "upgrade", "--install", "phoenixnap", chart, "--namespace", metav1.NamespaceSystem,
			"--take-ownership"},
	} {
		program, err := tools.Binary(t.Context(), args[0])
		must(t, err)
		for range 2 {
			cmd := exec.CommandContext(t.Context(), program, append(args[1:], "--kubeconfig", kubeconfig)...)
			cmd.Env = []string{"HOME=" + t.TempDir()}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", args, err, out)
			}
			binding, err := admin.RbacV1().RoleBindings(metav1.NamespaceSystem).Get(t.Context(),
				policies.BindingName, metav1.GetOptions{})
			must(t, err)
			if len(binding.Subjects) != 1 || binding.Subjects[0].Name != policies.AccountName {
				t.Errorf("%v: the subjects are %v", args, binding.Subjects)
			}
		}
	}
}

// TestPublishersOfTheChart names MetalLB among the chart's values.
func TestPublishersOfTheChart(t *testing.T) {
	root, err := tools.ModuleRoot()
	must(t, err)
	const entry = "policies.publishers[0]."
	text, err := deploy.RenderChart(t.Context(), root, "--set",
		entry+"namespace=metallb-system,"+entry+"name=controller")
	must(t, err)
	installation{"chart", "kubeadm", controlplane.Manifest{Name: "chart", Data: []byte(text)}}.installOnly(t)
	configured(t, contract.AnnouncerKubeVIP)
	author := services{t, authorIn(t, "default")}
	eventually(t, "the policies apply", func() bool { return applies(t, author.client) })
	must(t, author.create(loadBalancer("ours")))
	err = updateStatus(t, foreigner(t, "kube-vip-system", "kube-vip"), "ours", otherAddress)
	if !refusedBy(err, "phoenixnap-service-addresses") {
		t.Errorf("one that is not named: %v", err)
	}
	must(t, updateStatus(t, foreigner(t, "metallb-system", "controller"), "ours", foreignAddress))
	bindings := clientOf(t, cp.Config()).RbacV1().ClusterRoleBindings()
	must(t, bindings.Delete(t.Context(), "phoenixnap:publish-addresses:others", metav1.DeleteOptions{}))
}
