package vlan

import (
	"net/netip"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// fullNetwork has ten blocks, and the server has all their addresses but the first two and the last.
func fullNetwork(first string) contract.NodeNetwork {
	n := network()
	n.IPs = nil
	n.Blocks = nil
	base := netip.MustParseAddr(first)
	for range 10 {
		block := netip.PrefixFrom(base, 28)
		n.Blocks = append(n.Blocks, contract.NetworkBlock{CIDR: block, Gateway: base.Next()})
		for i := range 16 {
			if i >= 2 && i < 15 {
				n.IPs = append(n.IPs, base)
			}
			base = base.Next()
		}
	}
	return n
}

// TestEveryAddressOfTenBlocks: the agent adds them to an interface that it made and to one that a person made, replaces
// them by those of ten other blocks, and in the end takes away its own and leaves the alias of the person.
func TestEveryAddressOfTenBlocks(t *testing.T) {
	const alias = "uplink to rack 7"
	for name, adopted := range map[string]bool{"made": false, "adopted": true} {
		t.Run(name, func(t *testing.T) {
			runHarness(t, func(h *harness) {
				h.expected.Network = fullNetwork("192.0.2.0")
				if adopted {
					h.kernel.add(Link{Link: check.Link{Name: "bond0.100", Parent: 1, MTU: 1500, Alias: alias,
						MAC: "02:00:00:00:00:01", VLAN: &check.VLAN{ID: 100, Protocol: "802.1q"}}})
				}
			}, func(h *harness) {
				for _, first := range []string{"192.0.2.0", "198.51.100.0"} {
					h.expected.Network = fullNetwork(first)
					h.wake()
					if got := h.Status(); got.Problem != "" || len(h.kernel.addresses) != len(h.expected.Network.IPs) {
						t.Fatalf("from %s: %d addresses, want %d; %s", first, len(h.kernel.addresses),
							len(h.expected.Network.IPs), got.Problem)
					}
				}
				h.expected.Network.Member = false
				h.pass(2 * Grace)
				l := h.link()
				if adopted && (l == nil || l.Alias != alias) || !adopted && l != nil || len(h.kernel.addresses) > 0 {
					t.Errorf("in the end there is %+v with %v", l, h.kernel.addresses)
				}
				if adopted && len(l.Settings.Missing(inherited)) > 0 {
					t.Errorf("in the end the settings are %v", l.Settings)
				}
			})
		})
	}
}
