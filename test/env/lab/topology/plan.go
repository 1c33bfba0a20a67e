package topology

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/dataplane"
)

// plan is what switch and gateway have to look like for one state of the data plane.
type plan struct {
	// open are the VLANs that are open on the ports of servers; the key is the server's ID.
	open sets.Set[portVLAN]
	// trunk are the VLANs that reach the gateway.
	trunk sets.Set[int]
	// gateways are the addresses that the gateway holds.
	gateways sets.Set[gatewayAddress]
}

type portVLAN struct {
	server string
	vlan   int
}

// gatewayAddress is the gateway's address in a block on a VLAN; its prefix is the block.
type gatewayAddress struct {
	vlan    int
	address netip.Prefix
}

// planFor reads a state of the data plane. Servers that the lab does not have are passed over.
func planFor(state dataplane.DataPlane) (plan, error) {
	p := plan{open: sets.Set[portVLAN]{}, trunk: sets.Set[int]{}, gateways: sets.Set[gatewayAddress]{}}
	for _, n := range state.Networks {
		if n.VLAN < 1 || n.VLAN > 4094 {
			return plan{}, fmt.Errorf("network %s: VLAN %d is outside 1 to 4094 (IEEE 802.1Q)", n.ID, n.VLAN)
		}
		p.trunk.Insert(n.VLAN)
		for _, server := range n.Members {
			p.open.Insert(portVLAN{server, n.VLAN})
		}
		for _, b := range n.Blocks {
			address, err := gatewayOf(b)
			if err != nil {
				return plan{}, fmt.Errorf("network %s: %w", n.ID, err)
			}
			p.gateways.Insert(gatewayAddress{n.VLAN, address})
		}
	}
	return p, nil
}

// gatewayOf is the gateway's address with the length of the block.
func gatewayOf(b dataplane.Block) (netip.Prefix, error) {
	block, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("block %s: %w", b.ID, err)
	}
	gateway, err := netip.ParseAddr(b.Gateway)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("block %s: gateway: %w", b.ID, err)
	}
	if !block.Contains(gateway) {
		return netip.Prefix{}, fmt.Errorf("block %s: gateway %s lies outside %s", b.ID, gateway, block)
	}
	return netip.PrefixFrom(gateway, block.Bits()), nil
}
