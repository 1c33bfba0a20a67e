package agent

import (
	"fmt"
	"net/netip"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// The node that is measured, the one that announces the addresses of all Services, and the one that asks for them.
const (
	server    = "node-0000"
	announcer = "node-0001"
	asker     = "node-0002"
	vlanID    = 56
	vlanLink  = "bond0.56"
	serverID  = "66a1f0c2b5d3e4f5a6b70000"
	networkID = "60473c2509268bc77fd06d29"
)

var (
	ownAddress   = netip.MustParsePrefix("198.18.0.2/26")
	nextAddress  = netip.MustParsePrefix("198.18.0.3/26")
	askerAddress = netip.MustParsePrefix("198.18.0.4/26")
	management   = netip.MustParsePrefix("10.0.0.1/24")
)

// firstBlock is the block of the nodes; those of the Services follow it.
var firstBlock = netip.MustParsePrefix("198.18.0.0/26")

// blocks are the ten that a public network may have at most.
func blocks() []contract.NetworkBlock {
	var all []contract.NetworkBlock
	start := firstBlock.Addr().As4()
	for i := range 10 {
		base := netip.AddrFrom4([4]byte{start[0], start[1], byte(i / 4), byte(i % 4 * 64)})
		all = append(all, contract.NetworkBlock{CIDR: netip.PrefixFrom(base, firstBlock.Bits()), Gateway: base.Next()})
	}
	return all
}

// perBlock is how many addresses of a /26 Services may have: not network, gateway and broadcast address.
const perBlock = 61

// addresses are those of the Services.
func addresses(count int) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, b := range blocks()[1:] {
		address := b.Gateway
		for range perBlock {
			if address = address.Next(); len(all) < count {
				all = append(all, address)
			}
		}
	}
	if len(all) < count {
		return nil, fmt.Errorf("%d Services: the network has room for %d", count, len(all))
	}
	return all, nil
}

// network is what the controller publishes on the Node.
func network() contract.NodeNetwork {
	return contract.NodeNetwork{
		ServerID: serverID, NetworkID: networkID, VLAN: vlanID, Member: true, IPs: []netip.Addr{ownAddress.Addr()},
		Blocks: blocks(), Announcer: contract.AnnouncerKubeVIP,
	}
}
