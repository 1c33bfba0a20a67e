package topology

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/dataplane"
)

// plan is what switch and gateway have to look like for one state of the data plane.
type plan struct {
	// open are the VLANs that are open on the ports of servers; the key is the server's ID.
	open sets.Set[portVLAN]
	// trunks are the VLANs that reach the gateways.
	trunks sets.Set[trunk]
	// gateways are the addresses that the gateway holds.
	gateways sets.Set[gatewayAddress]
}

type portVLAN struct {
	server string
	vlan   int
}

// trunk is a VLAN between the switch and the gateway of a site. Equal VLAN IDs in two locations are two networks.
type trunk struct {
	site int
	vlan int
}

// gatewayAddress is the gateway's address in a block on a VLAN; its prefix is the block.
type gatewayAddress struct {
	trunk
	address netip.Prefix
}

// locationsOf are the locations of servers in the order in which they are first named. A lab has at least one.
func locationsOf(servers []wire.Server) []string {
	var all []string
	for _, s := range servers {
		if !slices.Contains(all, s.Location) {
			all = append(all, s.Location)
		}
	}
	if len(all) == 0 {
		return []string{""}
	}
	return all
}

// siteNumber is the index of the site of a network, and whether the lab has it. In a lab of one location, all networks
// are there.
func siteNumber(locations []string, location string) (int, bool) {
	if len(locations) == 1 {
		return 0, true
	}
	i := slices.Index(locations, location)
	return i, i >= 0
}

// planFor reads a state of the data plane for a lab of these locations. Servers and locations that it does not have are
// passed over.
func planFor(state dataplane.DataPlane, locations []string) (plan, error) {
	p := plan{open: sets.Set[portVLAN]{}, trunks: sets.Set[trunk]{}, gateways: sets.Set[gatewayAddress]{}}
	for _, n := range state.Networks {
		if n.VLAN < 1 || n.VLAN > 4094 {
			return plan{}, fmt.Errorf("network %s: VLAN %d is outside 1 to 4094 (IEEE 802.1Q)", n.ID, n.VLAN)
		}
		number, here := siteNumber(locations, n.Location)
		if !here {
			continue
		}
		line := trunk{number, n.VLAN}
		p.trunks.Insert(line)
		for _, server := range n.Members {
			p.open.Insert(portVLAN{server, n.VLAN})
		}
		for _, b := range n.Blocks {
			address, err := gatewayOf(b)
			if err != nil {
				return plan{}, fmt.Errorf("network %s: %w", n.ID, err)
			}
			p.gateways.Insert(gatewayAddress{line, address})
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
