package admission

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	policies "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy"
)

// installation is one way to install this project: an overlay, or the values of the chart that equal it.
type installation struct {
	name, overlay string
	manifest      controlplane.Manifest
}

// installations are the ways to install this project, in the usual run half of them, by lot.
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
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(seeds.Count(t, len(all)/2), len(all))]
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
	enforced(t)
	return admin
}

// ofClass is a Service of a class; none when empty.
func ofClass(name, class string) *corev1.Service {
	service := loadBalancer(name)
	if class != "" {
		service.Spec.LoadBalancerClass = ptr.To(class)
	}
	return service
}

// undisturbed goes through the lives of all Services that others serve while the policies do not apply.
func undisturbed(t *testing.T, w *tally) {
	t.Helper()
	for _, f := range foreigners {
		f.life(t, w, "")
	}
	undisturbedClasses(t, w)
}

// undisturbedClasses is undisturbed for Services that name another class.
func undisturbedClasses(t *testing.T, w *tally) {
	t.Helper()
	for _, f := range foreigners {
		for _, class := range f.classes {
			f.life(t, w, class)
		}
	}
}

// nodesOnly reports whether the installation has nothing to do with Services.
func (i installation) nodesOnly() bool { return strings.HasSuffix(i.overlay, "-nodes") }

// withKubeVIP reports whether addresses of the installation are announced by kube-vip.
func (i installation) withKubeVIP() bool { return !strings.Contains(i.overlay, "-agent") }

// announcer is the one that the installation is for.
func (i installation) announcer() string {
	if i.withKubeVIP() {
		return contract.AnnouncerKubeVIP
	}
	return contract.AnnouncerAgent
}

// TestPoliciesFollowTheAnnouncer goes through the life of each overlay, and of the chart that equals it, in a cluster
// in which others serve Services: before a controller runs, with an announcer, and with a controller that looks after
// Nodes only. Without an announcer everything that the others and their users do still works; with one only what it
// serves is protected.
func TestPoliciesFollowTheAnnouncer(t *testing.T) {
	before := newTally(t, "before the controller starts")
	after := newTally(t, "after the controller has started")
	for _, i := range installations(t) {
		t.Run(filepath.ToSlash(i.name), func(t *testing.T) {
			admin := i.installOnly(t)
			undisturbed(t, before)
			if i.nodesOnly() { // nothing to switch on
				configured(t, contract.AnnouncerKubeVIP)
				undisturbed(t, after)
				return
			}
			author := services{t, authorIn(t, "default")}
			for _, f := range foreigners {
				f.servesAlready(t, author)
			}
			configured(t, i.announcer())
			eventually(t, "the policies apply", func() bool { return applies(t, author.client) })
			undisturbedClasses(t, after)
			for _, f := range foreigners {
				f.checkTheirs(t, after, author)
			}
			i.checkOurs(t, author)
			i.checkTaken(t, author)
			i.checkNamed(t, admin)
			configured(t, "")
			eventually(t, "the policies do not apply any more", func() bool { return !applies(t, author.client) })
			undisturbed(t, after)
		})
	}
}

// theirs is the Service without a class that a program serves before any controller of ours runs.
func (f foreigner) theirs() string { return "theirs-" + strings.ToLower(f.name) }

func (f foreigner) servesAlready(t *testing.T, author services) {
	t.Helper()
	service := loadBalancer(f.theirs())
	service.Spec.LoadBalancerIP = foreignAddress
	must(t, author.create(service))
	must(t, f.serve(f.client(t), service.Name, foreignAddress))
	// kube-vip's cloud provider leaves the status to kube-vip.
	must(t, kubeVIP.client(t).updateStatus(service.Name, func(service *corev1.Service) {
		service.Status.LoadBalancer = ingressOf(foreignAddress)
	}))
}

// checkTheirs: what the controller has not taken on is not protected.
func (f foreigner) checkTheirs(t *testing.T, w *tally, author services) {
	t.Helper()
	what := f.name + ", without a class, served before: "
	w.wrote(t, what+"another address", f.serve(f.client(t), f.theirs(), otherAddress))
	f.askAgain(t, w, author, f.theirs())
	w.wrote(t, what+"user removes the request",
		author.patch(f.theirs(), annotations(object{contract.KubeVIPAddresses: nil})))
	w.wrote(t, what+"the same address", f.serve(f.client(t), f.theirs(), otherAddress))
}

// checkOurs: a Service without a class and one with ours are protected from their creation on.
func (i installation) checkOurs(t *testing.T, author services) {
	t.Helper()
	for name, class := range map[string]string{"without-class": "", "with-class": contract.LoadBalancerClass} {
		must(t, author.create(ofClass(name, class)))
		for _, f := range foreigners {
			i.checkRefused(t, f, name)
		}
		wish := ofClass(name+"-wish", class)
		wish.Spec.LoadBalancerIP = foreignAddress
		i.wished(t, name+", on creation", author.create(wish))
		i.wished(t, name, author.patch(name, object{"spec": object{"loadBalancerIP": foreignAddress}}))
	}
}

// checkRefused: another program gives a Service of ours no address. Where the agents announce, kube-vip's cloud
// provider may write the fields that only kube-vip reads.
func (i installation) checkRefused(t *testing.T, f foreigner, name string) {
	t.Helper()
	policy := "phoenixnap-service-addresses"
	if f.name == kubeVIPCloudProvider.name {
		policy = "phoenixnap-kube-vip"
		if !i.withKubeVIP() {
			return
		}
	}
	if err := f.serve(f.client(t), name, foreignAddress); !refusedBy(err, policy) {
		t.Errorf("%s: %s gives it an address: %v", name, f.name, err)
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
func (i installation) checkTaken(t *testing.T, author services) {
	t.Helper()
	theirs := metalLB.theirs()
	controller := services{t, account(t, "phoenixnap-cloud-controller-manager")}
	must(t, controller.patch(theirs, metadata(object{"annotations": published()})))
	taken := status(object{"conditions": []object{serviceCondition(contract.ServiceConditionAddressPublished)}})
	must(t, controller.patch(theirs, taken, "status"))
	gone := object{}
	for key := range published() {
		gone[key] = nil
	}
	must(t, author.patch(theirs, annotations(gone)))
	err := metalLB.serve(metalLB.client(t), theirs, foreignAddress)
	if !refusedBy(err, "phoenixnap-service-addresses") {
		t.Errorf("MetalLB writes the status of a Service that was taken on: %v", err)
	}
	i.wished(t, "taken on", author.patch(theirs, object{"spec": object{"loadBalancerIP": gateway}}))
}

// checkNamed: a user bound to the ClusterRole publishes beside us.
func (installation) checkNamed(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	binding, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "phoenixnap:publish-addresses"},
		Subjects: []rbacv1.Subject{metalLB.subject()},
	}, metav1.CreateOptions{})
	must(t, err)
	defer func() {
		must(t, admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
	}()
	eventually(t, "MetalLB may publish when it is named", func() bool {
		return metalLB.serve(metalLB.client(t), metalLB.theirs(), foreignAddress) == nil
	})
}

// TestDetoursThroughAnother: an author who has another load balancer serve a Service first achieves no more.
func TestDetoursThroughAnother(t *testing.T) {
	install(t)
	author := services{t, authorIn(t, "default")}
	service := ofClass("detour", "metallb.io/metallb")
	service.Annotations = map[string]string{contract.KubeVIPAddresses: gateway}
	must(t, author.create(service))
	must(t, metalLB.serve(metalLB.client(t), service.Name, foreignAddress))
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
		{"kubectl", "apply", "-f", deployed(overlay)},
		{"kubectl", "apply", "--server-side", "--force-conflicts", "-f", deployed(overlay)},
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

// guide is the page about other load balancers.
const guide = "../../../docs/guides/other-load-balancers.md"

// ofTheGuide is what the guide shows, the part of a match in brackets.
func ofTheGuide(t *testing.T, pattern string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.FromSlash(guide))
	must(t, err)
	match := regexp.MustCompile(pattern).FindSubmatch(page)
	if match == nil {
		t.Fatalf("%s has nothing like %s", guide, pattern)
	}
	return string(match[1])
}

// ownKubeVIP is what the guide says for a kube-vip with another ServiceAccount: the overlay, and the chart's value.
func ownKubeVIP(t *testing.T) []installation {
	t.Helper()
	root, err := tools.ModuleRoot()
	must(t, err)
	text, err := deploy.RenderChart(t.Context(), root, "--set", ofTheGuide(t, `--set '(policies\.publishers[^']+)'`))
	must(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	relative, err := filepath.Rel(dir, root)
	must(t, err)
	kustomization := ofTheGuide(t, "(?s)```yaml\n(# kustomization.yaml.*?)```")
	if got := strings.Count(kustomization, "- target:"); got != 1 {
		t.Errorf("a user has %d things to set, want one:\n%s", got, kustomization)
	}
	kustomization = strings.Replace(kustomization, "[deploy/", "["+filepath.ToSlash(relative)+"/deploy/", 1)
	must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600))
	manifests, err := controlplane.Read(t.Context(), dir)
	must(t, err)
	return []installation{
		{"kustomize", "kubeadm", manifests[0]},
		{"chart", "kubeadm", controlplane.Manifest{Name: "chart", Data: []byte(text)}},
	}
}

// TestOwnKubeVIPIsNamedByOneSetting: a kube-vip with another ServiceAccount than the example's announces what the
// controller publishes as soon as it is named. Until then the API server says what to do, and no other program gains.
func TestOwnKubeVIPIsNamedByOneSetting(t *testing.T) {
	for _, named := range ownKubeVIP(t) {
		t.Run(named.name, func(t *testing.T) {
			install(t)
			controller := services{t, account(t, "phoenixnap-cloud-controller-manager")}
			must(t, services{t, authorIn(t, "default")}.create(loadBalancer("ours")))
			must(t, controller.patch("ours", annotations(object{contract.ServiceIPAddress: address,
				contract.KubeVIPAddresses: address})))
			var err error
			eventually(t, "kube-vip is refused", func() bool {
				err = kubeVIP.serve(kubeVIP.client(t), "ours", address)
				return err != nil
			})
			for _, says := range []string{"system:serviceaccount:kube-vip-system:kube-vip may not write",
				"ClusterRole phoenixnap:publish-addresses", "loadBalancerClass"} {
				if !refusedBy(err, "phoenixnap-service-addresses") || !strings.Contains(err.Error(), says) {
					t.Errorf("before it is named: %v, want %q", err, says)
				}
			}
			must(t, cp.Apply(t.Context(), named.manifest))
			t.Cleanup(func() { // the binding of the chart
				_ = clientOf(t, cp.Config()).RbacV1().ClusterRoleBindings().Delete(cleanup(t),
					"phoenixnap:publish-addresses:others", metav1.DeleteOptions{})
			})
			eventually(t, "kube-vip announces", func() bool {
				return kubeVIP.serve(kubeVIP.client(t), "ours", address) == nil
			})
			if err := metalLB.serve(metalLB.client(t), "ours", otherAddress); !refusedBy(err,
				"phoenixnap-service-addresses") {
				t.Errorf("another program that is not named: %v", err)
			}
			must(t, kubeVIP.release(kubeVIP.client(t), "ours"))
		})
	}
}
