//go:build linux

package labtest

import (
	"fmt"
	"net/netip"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim/dataplane"
)

// Servers are some servers, srv-a, srv-b and so on, each with addresses of its own for itself and for its pods.
func Servers(count int) []lab.Server {
	var all []lab.Server
	for i := range count {
		all = append(all, lab.Server{
			Name: fmt.Sprintf("srv-%c", 'a'+i), ID: fmt.Sprintf("66a1f0c2b5d3e4f5a6b7c8%02d", i),
			Private: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(11 + i)}), 24),
			Pods:    netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(1 + i), 0}), 24),
		})
	}
	return all
}

// Names are those of servers.
func Names(servers []lab.Server) (names []string) {
	for _, s := range servers {
		names = append(names, s.Name)
	}
	return names
}

// PublicNetwork is a data plane of one public network: its VLAN is open on the ports of all servers, and the first
// address of each block is the gateway's.
func PublicNetwork(vlan int, servers []lab.Server, blocks ...netip.Prefix) dataplane.DataPlane {
	network := dataplane.Network{ID: "public", VLAN: vlan}
	for _, s := range servers {
		network.Members = append(network.Members, s.ID)
	}
	for _, b := range blocks {
		network.Blocks = append(network.Blocks, dataplane.Block{ID: b.String(), CIDR: b.String(),
			Gateway: b.Addr().Next().String()})
	}
	return dataplane.DataPlane{Revision: 1, Networks: []dataplane.Network{network}}
}
