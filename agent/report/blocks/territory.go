package blocks

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Area is a network with its blocks. One that the Node does not list has no ID.
type Area struct {
	ID, Name string
	Blocks   []contract.NetworkBlock
}

// Territory says which network an address is of: that with its block, else the default one.
type Territory []Area

// With returns the territory together with the networks that the Node does not list, of all networks by name.
func (t Territory) With(all map[string][]contract.NetworkBlock) Territory {
	listed := len(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.ContainsFunc(t[:listed], func(a Area) bool { return a.Name == name }) {
			t = append(t, Area{Name: name, Blocks: all[name]})
		}
	}
	return t
}

// Of returns the ID of the network of an address; empty for one that the Node does not list.
func (t Territory) Of(address netip.Addr) string {
	ofDefault := ""
	for _, a := range t {
		if slices.ContainsFunc(a.Blocks, func(b contract.NetworkBlock) bool { return b.CIDR.Contains(address) }) {
			return a.ID
		}
		if a.Name == v1beta1.DefaultNetwork {
			ofDefault = a.ID
		}
	}
	return ofDefault
}

// Services returns those whose addresses are of a network. Without a territory, no network is known yet.
func (t Territory) Services(all []*corev1.Service, id string) []*corev1.Service {
	if len(t) == 0 {
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
