package reconcile_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestEditsThatCostNothing: after each of them the Service has the address that it had, nothing was asked of the
// account that changes it, and nothing is refused.
//
//proves:service-changes/ports
//proves:service-changes/labels
//proves:service-changes/traffic-policy
//proves:service-changes/ip-replace
//proves:service-changes/no-wish
//proves:service-changes/written-by-controller
func TestEditsThatCostNothing(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Service){
		"ports": func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP})
		},
		"port number": func(s *corev1.Service) { s.Spec.Ports[0].Port++ },
		"selector":    func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "other"} },
		"traffic policy": func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		},
		"session affinity": func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
		"source ranges": func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		},
		"labels":                func(s *corev1.Service) { s.Labels = map[string]string{"a": "b"} },
		"annotation of others":  annotated("example.com/a", "b"),
		"replacement allowed":   annotated(contract.ServiceIPReplace, "true"),
		"own address asked for": annotated(contract.ServiceRequestedIP, "203.0.113.10"),
		"location taken away":   func(s *corev1.Service) { delete(s.Annotations, contract.ServiceIPLocation) },
		"size taken away":       func(s *corev1.Service) { delete(s.Annotations, contract.ServiceIPBlockSize) },
		"what we wrote": annotated(contract.ServiceIPAddress, "203.0.113.99", contract.ServiceIPBlockCIDR,
			"203.0.113.96/29"),
		"the address of kube-vip": annotated(contract.KubeVIPAddresses, "203.0.113.99"),
		"our address in the spec": func(s *corev1.Service) { s.Spec.LoadBalancerIP = "" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.service("web", annotated(contract.ServiceIPLocation, "ASH", contract.ServiceIPBlockSize, "/29"))
			w.settle("web")
			before := w.sim.Counters()
			w.edit("web", edit)
			w.clock.Advance(time.Minute)
			w.settle("web")
			if got := w.address("web"); got != "203.0.113.10" {
				t.Errorf("address is %q", got)
			}
			for operation, counts := range w.sim.Counters() {
				if !strings.HasPrefix(operation, "GET") && total(counts) != total(before[operation]) {
					t.Errorf("%s was asked", operation)
				}
			}
			if c := w.condition("web"); c.Reason != "BlockAssigned" {
				t.Errorf("condition %s: %s", c.Reason, c.Message)
			}
			w.wantBlocks("203.0.113.8/29 assigned")
		})
	}
}

// TestAnotherAddressOfTheOwnBlock is the one change of address that is made in place.
//
//proves:service-changes/own-address
func TestAnotherAddressOfTheOwnBlock(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Service){
		"annotation": annotated(contract.ServiceRequestedIP, "203.0.113.13"),
		"spec":       func(s *corev1.Service) { s.Spec.LoadBalancerIP = "203.0.113.13" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.service("web")
			w.settle("web")
			w.eventReasons()
			w.edit("web", edit)
			w.settle("web")
			if got := w.address("web"); got != "203.0.113.13" {
				t.Errorf("address is %q", got)
			}
			w.wantPurchases(1)
			w.wantBlocks("203.0.113.8/29 assigned")
			if got := strings.Join(w.eventReasons(), " "); !strings.Contains(got, "AddressReplaced") {
				t.Errorf("events %q", got)
			}
		})
	}
}

// TestOptionsBindNewServicesOnly: a controller that starts with other options leaves addresses as they are.
//
//proves:service-changes/defaults
func TestOptionsBindNewServicesOnly(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	w.config.Allocation = contract.AllocationShared
	w.config.BlockSize = "/28"
	w.config.MaxBlocks = 1
	w.restart()
	w.settle("web")
	if got := w.address("web"); got != "203.0.113.10" {
		t.Errorf("address is %q", got)
	}
	if c := w.condition("web"); c.Reason != "BlockAssigned" {
		t.Errorf("condition %s: %s", c.Reason, c.Message)
	}
	w.wantPurchases(1)
	w.wantBlocks("203.0.113.8/29 assigned")
}
