package walk

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// sharedKeys are the keys of addresses that Services have together, the first one more often.
var sharedKeys = []string{"front", "front", "front", "back"}

// portOf is a port by the name of a Service, which two of them have in common.
func portOf(name string) corev1.ServicePort { return port(max(0, slices.Index(names, name))) }

func port(i int) corev1.ServicePort {
	protocols := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}
	return corev1.ServicePort{Name: "main", Port: int32(80 + i%5/2), Protocol: protocols[i%2]}
}

// shareAddresses has users create, edit and delete Services that have an address together, at once or in turn.
func (w *world) shareAddresses() {
	w.inject(classShared)
	key := func() string { return sharedKeys[w.random.IntN(len(sharedKeys))] }
	for range 3 + w.random.IntN(5) {
		name := w.anyName()
		switch w.random.IntN(8) {
		case 0:
			w.remove(name)
		case 1:
			w.edit(name, "another port", func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{port(w.random.IntN(5))}
			})
		case 2:
			chosen := key()
			w.edit(name, "key "+chosen, func(s *corev1.Service) {
				s.Annotations[contract.ServiceSharedAddress] = chosen
			})
		case 3:
			w.edit(name, "policy", func(s *corev1.Service) {
				policies := []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster,
					corev1.ServiceExternalTrafficPolicyLocal}
				s.Spec.ExternalTrafficPolicy = policies[w.random.IntN(2)]
			})
		default:
			w.createWith(name, map[string]string{contract.ServiceSharedAddress: key()})
		}
		if w.random.IntN(2) == 0 {
			time.Sleep(w.upTo(90 * time.Second))
		}
	}
}

// noteKey notes the key that a Service has.
func (w *world) noteKey(service *corev1.Service) {
	key := service.Annotations[contract.ServiceSharedAddress]
	if key == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keysOf[service.UID] == nil {
		w.keysOf[service.UID] = map[string]bool{}
	}
	w.keysOf[service.UID][key] = true
}

// mayShare reports whether two Services of the cluster have had a key in common: one that changes it keeps its address.
func (w *world) mayShare(one, other *corev1.Service) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := func(uid types.UID) []string { return slices.Collect(maps.Keys(w.keysOf[uid])) }
	return slices.ContainsFunc(keys(one.UID), func(key string) bool { return slices.Contains(keys(other.UID), key) })
}

// touchClashing notes that an edit may take the address from the Services with which the edited one clashes.
func (w *world) touchClashing(edited *corev1.Service) {
	for _, other := range w.services() {
		if w.mayShare(edited, &other) && clash(edited, &other) {
			w.mu.Lock()
			w.observer.touched[other.UID] = true
			w.mu.Unlock()
		}
	}
}

// clash reports whether two Services cannot have one address.
func clash(one, other *corev1.Service) bool {
	local := func(s *corev1.Service) bool {
		return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	}
	return local(one) || local(other) || slices.ContainsFunc(one.Spec.Ports, func(p corev1.ServicePort) bool {
		return slices.ContainsFunc(other.Spec.Ports, func(q corev1.ServicePort) bool {
			return p.Port == q.Port && p.Protocol == q.Protocol
		})
	})
}

// checkShared judges at rest the addresses that several Services have: they do not clash, and while one of them is
// published the address is recorded as its own and neither free nor in quarantine.
func (w *world) checkShared() {
	services := slices.DeleteFunc(w.services(), func(s corev1.Service) bool { return addressOf(&s) == "" })
	for i := range services {
		for j := range i {
			if addressOf(&services[i]) == addressOf(&services[j]) && clash(&services[i], &services[j]) {
				w.fail("%s and %s have %s, and clash: %v, %v", services[j].Name, services[i].Name,
					addressOf(&services[i]), services[j].Spec, services[i].Spec)
			}
		}
	}
	list, err := w.ipBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, object := range list.Items {
		if object.Status.Allocations == nil || object.Status.CIDR == "" {
			continue
		}
		held := map[string]bool{}
		for _, allocated := range *object.Status.Allocations {
			for _, service := range allocated.Services {
				held[service.Name+"="+allocated.Address] = true
			}
		}
		for _, s := range services {
			address := addressOf(&s)
			if s.Annotations[contract.ServiceSharedAddress] != "" && s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
				within(address, object.Status.CIDR) && explanation(&s) == "" && !held[s.Name+"="+address] {
				w.fail("Service %s has %s, which IPBlock %s does not record: %+v", s.Name, address, object.Name,
					object.Status.Allocations)
			}
		}
	}
}
