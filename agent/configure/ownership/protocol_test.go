package ownership

import "testing"

// TestProtocolIsUnused: everything with this number counts as the agent's and is deleted in a clean-up.
func TestProtocolIsUnused(t *testing.T) {
	for _, used := range []struct {
		by          string
		first, last int
	}{
		{"the kernel and the tools of every machine", 0, 18}, {"babel", 42, 42}, {"Calico", 80, 80}, {"OVN", 84, 84},
		{"Open/R", 99, 99},
		{"BGP, IS-IS, OSPF, RIP and EIGRP in rtnetlink.h, and FRR's other protocols", 186, 199}, {"Cilium", 202, 202},
		{"kube-vip", 248, 248},
	} {
		if used.first <= Protocol && Protocol <= used.last {
			t.Errorf("the protocol number %d is in use by %s", Protocol, used.by)
		}
	}
}
