package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const controllerAccount = "phoenixnap-cloud-controller-manager"

// kubeVIPOn is the client of kube-vip's pod on a Node.
func kubeVIPOn(t *testing.T, node string) kubernetes.Interface {
	t.Helper()
	config, err := cp.ServiceAccountOn(t.Context(), metav1.NamespaceSystem, "kube-vip", node)
	must(t, err)
	return clientOf(t, config)
}

// installKubeVIP installs the shipped kube-vip and waits until the API server enforces its policies.
func installKubeVIP(t *testing.T) kubernetes.Interface {
	t.Helper()
	admin := install(t)
	apply(t, "kube-vip/kube-vip.yaml")
	return admin
}

func lease(name, holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](5), RenewTime: ptr.To(metav1.NowMicro())}}
}

// stolen are changes of a Service of someone else, by which whoever holds a token could take traffic or stop it.
func stolen() map[string]func(*corev1.Service) {
	return map[string]func(*corev1.Service){
		"selector":     func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "evil"} },
		"external IPs": func(s *corev1.Service) { s.Spec.ExternalIPs = []string{gateway} },
		"ports":        func(s *corev1.Service) { s.Spec.Ports[0].TargetPort.IntVal = 8080 },
		"another port": func(s *corev1.Service) { s.Spec.Ports[0].Port = 443 },
		"type":         func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort },
		"external name": func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeExternalName
			s.Spec.ExternalName = "example.com"
		},
		"source ranges": func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
		"local":         func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal },
		"internal": func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		},
		"distribution": func(s *corev1.Service) { s.Spec.TrafficDistribution = ptr.To("PreferSameZone") },
		"affinity":     func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
		"not ready":    func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true },
		"node ports":   func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = ptr.To(false) },
		"label":        func(s *corev1.Service) { metav1.SetMetaDataLabel(&s.ObjectMeta, "app", "evil") },
		"owner": func(s *corev1.Service) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "1"}}
		},
		"finalizer":  func(s *corev1.Service) { s.Finalizers = append(s.Finalizers, "example.com/evil") },
		"annotation": func(s *corev1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, "example.com/evil", "1") },
		"request": func(s *corev1.Service) {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, contract.ServiceIPBlock, "mail")
		},
		// To retain a block needs a right besides, for which another policy asks.
		"no retention": func(s *corev1.Service) {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, contract.ServiceIPRetain, "false")
		},
		"annotation of the user, away": func(s *corev1.Service) { delete(s.Annotations, "example.com/users") },
		"finalizer of the user, away": func(s *corev1.Service) {
			s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == "example.com/users" })
		},
	}
}

// victim is a Service of a user, of another class if there is one.
func victim(t *testing.T, admin kubernetes.Interface, name string, class *string) {
	t.Helper()
	service := loadBalancer(name)
	service.Spec.Selector = map[string]string{"app": "users"}
	service.Spec.LoadBalancerClass = class
	service.Annotations = map[string]string{"example.com/users": "1", contract.KubeVIPAddresses: address}
	service.Finalizers = []string{"example.com/users"}
	must(t, services{t, admin}.create(service))
	must(t, services{t, admin}.updateStatus(name, func(s *corev1.Service) {
		s.Status.Conditions = []metav1.Condition{{Type: "example.com/Users", Status: "True", Reason: "Test",
			LastTransitionTime: metav1.Now()}}
	}))
}

// TestControllerChangesOnlyItsFieldsOfServices tries every change, as RBAC lets it: by a patch.
func TestControllerChangesOnlyItsFieldsOfServices(t *testing.T) {
	admin := install(t)
	controller := services{t, account(t, controllerAccount)}
	victim(t, admin, "users", nil)
	victim(t, admin, "another", ptr.To("example.com/lb"))
	for what, change := range stolen() {
		if err := controller.patchTo("users", change); !refusedBy(err, "phoenixnap-controller-services") {
			t.Errorf("%s: %v", what, err)
		}
	}
	users := func(s *corev1.Service) { s.Status.Conditions = nil }
	for what, err := range map[string]error{
		"a condition of the user":         controller.patchTo("users", users, "status"),
		"a label, through the status":     controller.patchTo("users", stolen()["label"], "status"),
		"a finalizer, through the status": controller.patchTo("users", stolen()["finalizer"], "status"),
		"annotation, through the status":  controller.patchTo("users", stolen()["annotation"], "status"),
		"the address of another class": controller.patch("another",
			object{"spec": object{"loadBalancerIP": address}}),
		"the status of another class":      controller.patch("another", ingress(address), "status"),
		"another Service of kube-system":   controller.createDry("stranger", nil),
		"its own Service with a selector":  controller.createDry("phoenixnap-control-plane", stolen()["selector"]),
		"its own Service, external IPs":    controller.createDry("phoenixnap-control-plane", stolen()["external IPs"]),
		"its own Service, an outside name": controller.createDry("phoenixnap-control-plane", stolen()["external name"]),
	} {
		if !refusedBy(err, "phoenixnap-controller-services") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestControllerChangesItsFieldsOfServices writes all of them, and takes them back.
func TestControllerChangesItsFieldsOfServices(t *testing.T) {
	admin := install(t)
	controller := services{t, account(t, controllerAccount)}
	victim(t, admin, "served", nil)
	written := published()
	written[contract.KubeVIPInterface] = "bond0.56"
	for _, name := range contract.OwnedServiceAnnotations() {
		if written[name] == "" {
			t.Errorf("%s is not tried", name)
		}
	}
	own := []string{contract.LoadBalancerFinalizer, "service.kubernetes.io/load-balancer-cleanup"}
	must(t, controller.patchTo("served", func(s *corev1.Service) {
		s.Finalizers = append(s.Finalizers, own...)
	}, "status"))
	must(t, controller.patchTo("served", func(s *corev1.Service) {
		maps.Copy(s.Annotations, written)
		s.Spec.LoadBalancerIP = address
	}))
	must(t, controller.patchTo("served", func(s *corev1.Service) {
		s.Status.LoadBalancer = ingressOf(address)
		for _, kind := range contract.OwnedServiceConditions() {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
				Type: kind, Status: "True", Reason: "Test",
				LastTransitionTime: metav1.Now()})
		}
	}, "status"))
	must(t, controller.patchTo("served", func(s *corev1.Service) {
		s.Spec.LoadBalancerIP = ""
		for name := range written {
			delete(s.Annotations, name)
		}
	}))
	must(t, controller.patchTo("served", func(s *corev1.Service) {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		s.Status.Conditions = slices.DeleteFunc(s.Status.Conditions, func(c metav1.Condition) bool {
			return slices.Contains(contract.OwnedServiceConditions(), c.Type)
		})
		s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return slices.Contains(own, f) })
	}, "status"))
	// What it wrote on a Service that became one of another class.
	victim(t, admin, "left", ptr.To("example.com/lb"))
	must(t, services{t, admin}.patch("left", object{"spec": object{"loadBalancerIP": address},
		"metadata": annotations(object{contract.ServiceIPAddress: address})["metadata"]}))
	must(t, controller.patchTo("left", func(s *corev1.Service) {
		s.Spec.LoadBalancerIP = ""
		delete(s.Annotations, contract.ServiceIPAddress)
	}))
}

// TestKubeVIPChangesOnlyItsFieldsOfServices has the token of one node.
func TestKubeVIPChangesOnlyItsFieldsOfServices(t *testing.T) {
	admin := installKubeVIP(t)
	kubeVIP := services{t, kubeVIPOn(t, "srv-a")}
	victim(t, admin, "users", nil)
	victim(t, admin, "another", ptr.To("example.com/lb"))
	changes := stolen()
	for _, name := range append(contract.OwnedServiceAnnotations(), contract.KubeVIPAddresses,
		contract.KubeVIPInterface, contract.KubeVIPLease) {
		changes[name] = func(s *corev1.Service) { s.Annotations[name] = gateway }
	}
	changes["spec.loadBalancerIP"] = func(s *corev1.Service) { s.Spec.LoadBalancerIP = gateway }
	changes["the name of another Node"] = func(s *corev1.Service) { s.Annotations["kube-vip.io/vipHost"] = "srv-b" }
	for what, change := range changes {
		if err := kubeVIP.update("users", change); !refusedBy(err, "phoenixnap-kube-vip-services") {
			t.Errorf("%s: %v", what, err)
		}
	}
	published := func(address string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Status.LoadBalancer = ingressOf(address) }
	}
	config, err := cp.ServiceAccount(t.Context(), metav1.NamespaceSystem, "kube-vip")
	must(t, err)
	unbound := services{t, clientOf(t, config)}
	host := func(s *corev1.Service) { s.Annotations["kube-vip.io/vipHost"] = "srv-a" }
	for what, err := range map[string]error{
		"an address that it has not":  kubeVIP.updateStatus("users", published(gateway)),
		"the status of another class": kubeVIP.updateStatus("another", published(address)),
		"a condition": kubeVIP.updateStatus("users", func(s *corev1.Service) {
			s.Status.Conditions = nil
		}),
		"a label, through the status":     kubeVIP.updateStatus("users", stolen()["label"]),
		"with a token that names no Node": unbound.update("users", host),
	} {
		if !refusedBy(err, "phoenixnap-kube-vip-services") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, kubeVIP.update("users", host))
	must(t, kubeVIP.updateStatus("users", published(address)))
	must(t, kubeVIP.updateStatus("users", published(address)))
	must(t, services{t, kubeVIPOn(t, "srv-b")}.update("users", func(s *corev1.Service) {
		for _, name := range []string{"vipHost", "active-endpoint", "active-endpoint-ipv6", "egress-nftables-table"} {
			s.Annotations["kube-vip.io/"+name] = "srv-b"
		}
	}))
	must(t, kubeVIP.updateStatus("users", func(s *corev1.Service) { s.Status.LoadBalancer = ingressOf() }))
}

// TestKubeVIPHoldsOnlyItsLeases has the tokens of two nodes.
func TestKubeVIPHoldsOnlyItsLeases(t *testing.T) {
	admin := installKubeVIP(t)
	a := kubeVIPOn(t, "srv-a").CoordinationV1()
	b := kubeVIPOn(t, "srv-b").CoordinationV1()
	for _, tc := range []struct{ namespace, name, holder string }{
		{metav1.NamespaceSystem, controllerAccount, "srv-a"}, {metav1.NamespaceSystem, "phoenixnap-agent-srv-a", "srv-a"},
		{metav1.NamespaceSystem, "kube-controller-manager", "srv-a"}, {"default", "an-operator", "srv-a"},
		{"default", "plndr-svcs-lock", "srv-a"}, {"default", "kubevip-web", "srv-b"}, {"default", "kubevip-web", ""},
		{"kube-node-lease", "srv-b", "srv-a"}, {"kube-node-lease", "kubevip-b", "srv-a"},
	} {
		_, err := a.Leases(tc.namespace).Create(t.Context(), lease(tc.name, tc.holder), dryRun)
		if !refusedBy(err, "phoenixnap-kube-vip-leases") {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	made, err := a.Leases("default").Create(t.Context(), lease("kubevip-web", "srv-a"), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = admin.CoordinationV1().Leases("default").Delete(cleanup(t), made.Name, metav1.DeleteOptions{})
	})
	hold := func(client kubernetes.Interface, holder string) error {
		made, err := client.CoordinationV1().Leases("default").Get(t.Context(), made.Name, metav1.GetOptions{})
		must(t, err)
		made.Spec.HolderIdentity = &holder
		_, err = client.CoordinationV1().Leases("default").Update(t.Context(), made, metav1.UpdateOptions{})
		return err
	}
	for what, err := range map[string]error{
		"released for another":  hold(kubeVIPOn(t, "srv-b"), ""),
		"given to another":      hold(kubeVIPOn(t, "srv-a"), "srv-b"),
		"taken as another node": hold(kubeVIPOn(t, "srv-b"), "srv-c"),
	} {
		if !refusedBy(err, "phoenixnap-kube-vip-leases") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, hold(kubeVIPOn(t, "srv-a"), "srv-a"))
	must(t, hold(kubeVIPOn(t, "srv-b"), "srv-b")) // it expired
	must(t, hold(kubeVIPOn(t, "srv-b"), ""))
	must(t, hold(kubeVIPOn(t, "srv-a"), "srv-a"))
	shared, err := b.Leases(metav1.NamespaceSystem).Create(t.Context(), lease("plndr-svcs-lock", "host.example.com"),
		metav1.CreateOptions{})
	must(t, err)
	leases := admin.CoordinationV1().Leases(metav1.NamespaceSystem)
	must(t, leases.Delete(t.Context(), shared.Name, metav1.DeleteOptions{}))
}

// patchTo changes a Service by a strategic merge patch, as the controller does.
func (s services) patchTo(name string, change func(*corev1.Service), subresources ...string) error {
	s.Helper()
	before, after, err := s.changed(name, change)
	must(s.T, err)
	raw := make([][]byte, 0, 2)
	for _, version := range []*corev1.Service{before, after} {
		encoded, err := json.Marshal(version)
		must(s.T, err)
		raw = append(raw, encoded)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(raw[0], raw[1], corev1.Service{})
	must(s.T, err)
	_, err = s.client.CoreV1().Services("default").Patch(s.Context(), name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, subresources...)
	return err
}

// createDry tries to create a Service in kube-system.
func (s services) createDry(name string, change func(*corev1.Service)) error {
	s.Helper()
	service := loadBalancer(name)
	service.Namespace = metav1.NamespaceSystem
	if change != nil {
		change(service)
	}
	_, err := s.client.CoreV1().Services(service.Namespace).Create(s.Context(), service, dryRun)
	return err
}
