package admission

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const foreignAddress, otherAddress = "192.0.2.10", "192.0.2.11"

// foreigner is another program that writes to Services, with the identity, the rights and the requests that it has by
// its own manifests and source.
type foreigner struct {
	name string
	// namespace is that of its ServiceAccount; empty for a user with a certificate.
	namespace, account string
	rules              []rbacv1.PolicyRule
	// classes are what it serves beside Services without a class.
	classes []string
	// requests are annotations by which users of it ask for an address.
	requests []string
	// serve gives a Service an address, release takes it away.
	serve   func(services, string, string) error
	release func(services, string) error
}

// may is a rule of RBAC about Services.
func may(resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs}
}

var (
	metalLB = foreigner{
		name: "MetalLB", namespace: "metallb-system", account: "controller",
		rules:   []rbacv1.PolicyRule{may("services", "get", "list", "watch"), may("services/status", "update")},
		classes: []string{"metallb.io/metallb"}, requests: []string{"metallb.io/loadBalancerIPs"},
		serve: func(s services, name, address string) error {
			return s.updateStatus(name, func(service *corev1.Service) {
				metav1.SetMetaDataAnnotation(&service.ObjectMeta, "metallb.io/ip-allocated-from-pool", "public")
				service.Status.LoadBalancer = ingressOf(address)
			})
		},
		release: func(s services, name string) error {
			return s.updateStatus(name, func(service *corev1.Service) {
				delete(service.Annotations, "metallb.io/ip-allocated-from-pool")
				service.Status.LoadBalancer = ingressOf()
			})
		},
	}
	kubeVIP = foreigner{
		name: "kube-vip", namespace: "kube-vip-system", account: "kube-vip",
		rules: []rbacv1.PolicyRule{may("services", "get", "list", "watch", "update"),
			may("services/status", "update")},
		classes: []string{"kube-vip.io/kube-vip-class"}, requests: []string{contract.KubeVIPAddresses},
		serve: func(s services, name, address string) error {
			err := s.update(name, func(service *corev1.Service) {
				metav1.SetMetaDataAnnotation(&service.ObjectMeta, "kube-vip.io/vipHost", "worker-1")
			})
			if err != nil {
				return err
			}
			return s.updateStatus(name, func(service *corev1.Service) {
				service.Status.LoadBalancer = ingressOf(address)
			})
		},
		release: func(s services, name string) error {
			return s.updateStatus(name, func(service *corev1.Service) { service.Status.LoadBalancer = ingressOf() })
		},
	}
	kubeVIPCloudProvider = foreigner{
		name: "kube-vip-cloud-provider", namespace: metav1.NamespaceSystem, account: "kube-vip-cloud-controller",
		rules: []rbacv1.PolicyRule{may("services", "get", "list", "watch", "update", "patch"),
			may("services/status", "update", "patch")},
		classes: []string{"kube-vip.io/kube-vip-class"}, requests: []string{contract.KubeVIPAddresses},
		serve: func(s services, name, address string) error {
			if err := s.finalizer(name, true); err != nil {
				return err
			}
			return s.update(name, func(service *corev1.Service) {
				service.Labels = map[string]string{"implementation": "kube-vip"}
				metav1.SetMetaDataAnnotation(&service.ObjectMeta, contract.KubeVIPAddresses, address)
				if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
					service.Spec.LoadBalancerIP = address
				}
			})
		},
		release: func(s services, name string) error { return s.finalizer(name, false) },
	}
	// The controller of ServiceLB runs within k3s, as a user with a certificate, and serves no Service with a class.
	serviceLB = foreigner{
		name: "ServiceLB", account: "k3s-cloud-controller-manager",
		rules: []rbacv1.PolicyRule{may("services", "get", "list", "watch", "update", "patch"),
			may("services/status", "update", "patch")},
		serve: func(s services, name, address string) error {
			if err := s.finalizer(name, true); err != nil {
				return err
			}
			return s.patchService(name, func(service *corev1.Service) {
				service.Status.LoadBalancer = ingressOf(address)
			})
		},
		release: func(s services, name string) error {
			err := s.patchService(name, func(service *corev1.Service) { service.Status.LoadBalancer = ingressOf() })
			if err != nil {
				return err
			}
			// The finalizer of k3s before 1.26 is removed at its start.
			if err := s.update(name, func(service *corev1.Service) {
				service.Finalizers = append(service.Finalizers, "svccontroller.k3s.cattle.io/daemonset")
			}); err != nil {
				return err
			}
			if err := s.update(name, func(service *corev1.Service) {
				service.Finalizers = service.Finalizers[:len(service.Finalizers)-1]
			}); err != nil {
				return err
			}
			return s.finalizer(name, false)
		},
	}
	cilium = foreigner{
		name: "Cilium", namespace: metav1.NamespaceSystem, account: "cilium-operator",
		rules: []rbacv1.PolicyRule{may("services", "get", "list", "watch"),
			may("services/status", "update", "patch")},
		classes:  []string{"io.cilium/l2-announcer", "io.cilium/bgp-control-plane"},
		requests: []string{"lbipam.cilium.io/ips"},
		serve: func(s services, name, address string) error {
			return s.replaceStatus(name, metav1.ConditionTrue, address)
		},
		release: func(s services, name string) error { return s.replaceStatus(name, metav1.ConditionFalse) },
	}
	foreigners = []foreigner{metalLB, kubeVIP, kubeVIPCloudProvider, serviceLB, cilium}
)

func ingressOf(addresses ...string) (status corev1.LoadBalancerStatus) {
	for _, address := range addresses {
		status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{IP: address})
	}
	return status
}

// changed is a Service as it is, and as a program wants it.
func (s services) changed(name string, change func(*corev1.Service)) (before, after *corev1.Service, err error) {
	before, err = s.client.CoreV1().Services("default").Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	after = before.DeepCopy()
	change(after)
	return before, after, nil
}

func (s services) update(name string, change func(*corev1.Service)) error {
	_, after, err := s.changed(name, change)
	if err == nil {
		_, err = s.client.CoreV1().Services("default").Update(s.Context(), after, metav1.UpdateOptions{})
	}
	return err
}

func (s services) updateStatus(name string, change func(*corev1.Service)) error {
	_, after, err := s.changed(name, change)
	if err == nil {
		_, err = s.client.CoreV1().Services("default").UpdateStatus(s.Context(), after, metav1.UpdateOptions{})
	}
	return err
}

// patchService is how the framework of cloud providers writes: finalizers and the status, both through the status.
func (s services) patchService(name string, change func(*corev1.Service)) error {
	before, after, err := s.changed(name, change)
	if err == nil {
		_, err = servicehelper.PatchService(s.client.CoreV1(), before, after)
	}
	return err
}

func (s services) finalizer(name string, present bool) error {
	return s.patchService(name, func(service *corev1.Service) {
		service.Finalizers = nil
		if present {
			service.Finalizers = []string{servicehelper.LoadBalancerCleanupFinalizer}
		}
	})
}

// replaceStatus is how the LB-IPAM of Cilium writes.
func (s services) replaceStatus(name string, satisfied metav1.ConditionStatus, addresses ...string) error {
	before, _, err := s.changed(name, func(*corev1.Service) {})
	if err != nil {
		return err
	}
	before.Status.LoadBalancer = ingressOf(addresses...)
	before.Status.Conditions = []metav1.Condition{{Type: "cilium.io/IPAMRequestSatisfied", Status: satisfied,
		Reason: "satisfied", LastTransitionTime: metav1.Now(), ObservedGeneration: before.Generation}}
	patch, err := json.Marshal([]object{{"op": "replace", "path": "/status", "value": before.Status}})
	must(s.T, err)
	_, err = s.client.CoreV1().Services("default").Patch(s.Context(), name, types.JSONPatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}

// foreignConfigs are how the programs reach the API server, by their names, once they have their rights.
var foreignConfigs = map[string]*rest.Config{}

// client has the identity and the rights of the program.
func (f foreigner) client(t *testing.T) services {
	t.Helper()
	if foreignConfigs[f.name] == nil {
		foreignConfigs[f.name] = f.admit(t)
	}
	return services{t, clientOf(t, foreignConfigs[f.name])}
}

// admit gives the program its identity and its rights.
func (f foreigner) admit(t *testing.T) *rest.Config {
	t.Helper()
	admin := clientOf(t, cp.Config())
	role := "test:" + strings.ToLower(f.name)
	_, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: f.rules}, metav1.CreateOptions{})
	mayExist(t, err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{f.subject()},
	}, metav1.CreateOptions{})
	mayExist(t, err)
	user := f.account
	if f.namespace != "" {
		user = serviceaccount.MakeUsername(f.namespace, f.account)
	}
	must(t, cp.AwaitAccess(t.Context(), user, "", f.rules))
	config, err := f.config(t, admin)
	must(t, err)
	return config
}

func (f foreigner) config(t *testing.T, admin kubernetes.Interface) (*rest.Config, error) {
	t.Helper()
	if f.namespace == "" {
		return cp.User(f.account)
	}
	_, err := admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}, metav1.CreateOptions{})
	mayExist(t, err)
	_, err = admin.CoreV1().ServiceAccounts(f.namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: f.account}}, metav1.CreateOptions{})
	mayExist(t, err)
	return cp.ServiceAccount(t.Context(), f.namespace, f.account)
}

// subject is how RBAC names the program.
func (f foreigner) subject() rbacv1.Subject {
	if f.namespace == "" {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: f.account}
	}
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: f.account}
}

func mayExist(t *testing.T, err error) {
	t.Helper()
	if !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
}

// tally counts what other programs and their users write to their Services.
type tally struct {
	*testing.T
	when             string
	allowed, refused int
}

func newTally(t *testing.T, when string) *tally {
	tally := &tally{T: t, when: when}
	t.Cleanup(func() {
		_, _ = fmt.Fprintf(t.Output(), "figure foreign_writes_allowed %d writes, %s\n", tally.allowed, when)
		_, _ = fmt.Fprintf(t.Output(), "figure foreign_writes_refused %d writes, %s\n", tally.refused, when)
	})
	return tally
}

// wrote counts a write, which must have been allowed.
func (w *tally) wrote(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		w.allowed++
		return
	}
	w.refused++
	t.Errorf("%s: %s: %v", w.when, what, err)
}

// life is that of a Service which another program serves: what its users write, and what it does.
func (f foreigner) life(t *testing.T, w *tally, class string) {
	t.Helper()
	author := services{t, authorIn(t, "default")}
	server := f.client(t)
	service := ofClass("of-another", class)
	service.Spec.LoadBalancerIP = foreignAddress
	service.Annotations = map[string]string{contract.KubeVIPAddresses: foreignAddress}
	for _, key := range f.requests {
		service.Annotations[key] = foreignAddress
	}
	name := service.Name
	what := func(step string) string { return fmt.Sprintf("%s, class %q: %s", f.name, class, step) }
	err := author.create(service)
	w.wrote(t, what("user creates it with spec.loadBalancerIP"), err)
	if err != nil { // so that the later steps have a Service
		must(t, services{t, clientOf(t, cp.Config())}.create(service))
	}
	w.wrote(t, what("gets an address"), f.serve(server, name, foreignAddress))
	f.askAgain(t, w, author, name)
	w.wrote(t, what("another address"), f.serve(server, name, otherAddress))
	w.wrote(t, what("no address"), f.release(server, name))
	w.wrote(t, what("an address again"), f.serve(server, name, otherAddress))
	w.wrote(t, what("user makes it another type"), author.patch(name, object{"spec": object{"type": "ClusterIP",
		"loadBalancerClass": nil, "loadBalancerIP": nil}}))
	w.wrote(t, what("released at the end"), f.release(server, name))
	must(t, author.client.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// askAgain is a user who asks for another address, in every way that the program reads.
func (f foreigner) askAgain(t *testing.T, w *tally, author services, name string) {
	t.Helper()
	what := f.name + ": user changes "
	w.wrote(t, what+"spec.loadBalancerIP", author.patch(name, object{"spec": object{"loadBalancerIP": otherAddress}}))
	for _, key := range append([]string{contract.KubeVIPAddresses}, f.requests...) {
		w.wrote(t, what+key, author.patch(name, annotations(object{key: otherAddress})))
	}
}
