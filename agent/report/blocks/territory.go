package blocks

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Area is a network with its blocks.
type Area struct {
	ID     string
	Blocks []contract.NetworkBlock
}

// Territory says which network an address is of: that with its block, else the first one.
type Territory []Area

// Of returns the ID of the network of an address.
func (t Territory) Of(address netip.Addr) string {
	for _, a := range t {
		if slices.ContainsFunc(a.Blocks, func(b contract.NetworkBlock) bool { return b.CIDR.Contains(address) }) {
			return a.ID
		}
	}
	if len(t) == 0 {
		return ""
	}
	return t[0].ID
}

// Services returns those whose addresses are of a network.
func (t Territory) Services(all []*corev1.Service, id string) []*corev1.Service {
	if len(t) < 2 {
		return all
	}
	var own []*corev1.Service
	for _, s := range all {
		if t.Of(addressOf(s)) == id {
			own = append(own, s)
		}
	}
	return own
}

// addressOf is the address that was given to a Service, else the first one in its status; invalid where it has none.
func addressOf(s *corev1.Service) netip.Addr {
	texts := []string{s.Annotations[contract.ServiceIPAddress]}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		texts = append(texts, ingress.IP)
	}
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			return address
		}
	}
	return netip.Addr{}
}
