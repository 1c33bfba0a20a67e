package cluster

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// The simulated account.
const (
	// Account is the account's name in the simulator.
	Account = "demo"
	// Location is the site of everything but Options.AwayServers.
	Location = "ASH"
	// NetworkID is the ID of the public network.
	NetworkID = "60473c2509268bc77fd06d29"
	// NodeBlockID is the ID of the user's own block, from which the servers have their addresses.
	NodeBlockID = "60473a6115e34466c9f8f083"
	// AwayLocation, AwayNetworkID and AwayNodeBlockID are the same for Options.AwayServers.
	AwayLocation    = "PHX"
	AwayNetworkID   = "60473c2509268bc77fd06d2b"
	AwayNodeBlockID = "60473a6115e34466c9f8f084"
	// SecondNetworkID and SecondNodeBlockID are those of Options.SecondNetwork.
	SecondNetworkID   = "60473c2509268bc77fd06d2d"
	SecondNodeBlockID = "60473a6115e34466c9f8f085"
	// VLAN is the VLAN ID of the public network of each location: equal numbers in two locations are ordinary.
	VLAN = 56
	// SecondVLAN is that of Options.SecondNetwork: in one location the numbers differ.
	SecondVLAN = 57

	clientID     = "ccm"
	clientSecret = "a-secret-that-must-not-leak"
)

// PublicInterface is the name of the VLAN interface on the public network.
const PublicInterface = "bond0.56"

// Server is one of the cluster's servers.
type Server struct {
	wire.Server
	// Public is its address on the public network, from the user's node block; the zero value where the controller is
	// to choose it.
	Public netip.Prefix
	// Second is its address on the second public network of its location; the zero value where it is in no second one.
	Second netip.Prefix

	at place
}

// place is a public network of a location, and the user's block there for the servers' own addresses; its first
// usable address is the gateway.
type place struct {
	location, name, networkID, blockID string
	vlan                               int
	block                              netip.Prefix
}

func (p place) gateway() netip.Addr { return p.block.Addr().Next() }

var (
	home = place{Location, "public", NetworkID, NodeBlockID, VLAN, nodeBlock}
	away = place{AwayLocation, "public elsewhere", AwayNetworkID, AwayNodeBlockID, 0,
		netip.MustParsePrefix("192.0.2.0/29")}
	second = place{Location, "second public", SecondNetworkID, SecondNodeBlockID, SecondVLAN,
		netip.MustParsePrefix("192.0.2.8/29")}
)

// membership is a public network that a server is in, with the server's address there.
type membership struct {
	place
	address netip.Prefix
}

// memberships are the networks for which the server is set up. The default route leads by the first one.
func (s Server) memberships() []membership {
	all := []membership{{s.at, s.Public}, {second, s.Second}}
	return slices.DeleteFunc(all, func(m membership) bool { return !m.address.IsValid() })
}

// PodAddress is where the backend of the server listens.
func (s Server) PodAddress() netip.Addr {
	host := s.Pods.Masked().Addr().As4()
	host[3] = 10
	return netip.AddrFrom4(host)
}

// servers are the bare servers of the account, srv-a, srv-b and so on, first those at home.
func servers(atHome, elsewhere, awayVLAN int) ([]Server, error) {
	all, err := home.servers(0, atHome)
	if err != nil {
		return nil, err
	}
	place := away
	place.vlan = awayVLAN
	others, err := place.servers(atHome, elsewhere)
	return append(all, others...), err
}

// addresses are those of a number of servers, after the gateway's.
func (p place) addresses(count int) ([]netip.Prefix, error) {
	all := make([]netip.Prefix, count)
	next := p.gateway()
	for i := range all {
		if next = next.Next(); !p.block.Contains(next.Next()) { // the last address is the broadcast address
			return nil, fmt.Errorf("%d servers: block %s has room for %d", count, p.block, i)
		}
		all[i] = netip.PrefixFrom(next, p.block.Bits())
	}
	return all, nil
}

// servers are the servers of a location, each with an address of the node block.
func (p place) servers(before, count int) ([]Server, error) {
	all := make([]Server, count)
	addresses, err := p.addresses(count)
	if err != nil {
		return nil, err
	}
	for i, public := range addresses {
		number := byte(before + i + 1)
		all[i] = Server{
			Server: wire.Server{
				Name: "srv-" + string(rune('a'+before+i)), ID: fmt.Sprintf("66a1f0c2b5d3e4f5a6b7c8%02x", number),
				Location: p.location,
				Private:  netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, 10 + number}), management.Bits()),
				Pods:     netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, number, 0}), 24),
			},
			Public: public,
			at:     p,
		}
	}
	return all, nil
}

// joinSecond puts servers at home into the second network there, too.
func joinSecond(all []Server) error {
	addresses, err := second.addresses(len(all))
	for i, address := range addresses {
		all[i].Second = address
	}
	return err
}

// bare makes the servers ones that are not set up for the public networks.
func bare(all []Server) {
	for i := range all {
		all[i].Public = netip.Prefix{}
		all[i].Second = netip.Prefix{}
		all[i].Router = management.Addr()
	}
}

var (
	nodeBlock = netip.MustParsePrefix("203.0.113.0/29")
	// management is where servers reach the API server, over the private network.
	management = wire.ManagementAddress
	podRange   = netip.MustParsePrefix("10.244.0.0/16")
)

// seed is the account as its user set it up in the portal: a public network with a block for the nodes, and
// the servers with an address as its members. The controller's client is judged by all rules of the simulator.
func seed(all []Server) pnapsim.Seed {
	account := pnapsim.AccountSeed{
		ID: Account,
		Clients: []pnapsim.ClientSeed{{
			ID: clientID, Secret: clientSecret, Judged: true, RequestsPerMinute: 600,
		}},
	}
	for _, p := range placesOf(all) {
		account.Networks = append(account.Networks, pnapsim.NetworkSeed{ID: p.networkID, Name: p.name,
			Location: p.location, VLAN: p.vlan})
		account.Blocks = append(account.Blocks, pnapsim.BlockSeed{ID: p.blockID, Name: "addresses of the nodes",
			Location: p.location, CIDR: p.block.String(), Network: p.networkID})
	}
	for _, s := range all {
		server := pnapsim.ServerSeed{
			ID: s.ID, Hostname: s.Name, Location: s.Location, Type: "s1.c1.small", NetworkType: "PRIVATE_ONLY",
			PrivateIPs: []string{s.Private.Addr().String()}, Gateway: s.Router.String(),
		}
		for i, m := range s.memberships() {
			if i == 0 {
				server.Gateway = m.gateway().String()
			}
			server.Networks = append(server.Networks, pnapsim.MembershipSeed{Network: m.networkID,
				IPs: []string{m.address.Addr().String()}})
		}
		account.Servers = append(account.Servers, server)
	}
	return pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}}
}

// placesOf are the networks that the servers need.
func placesOf(all []Server) []place {
	places := []place{home}
	for _, s := range all {
		for _, p := range append([]membership{{place: s.at}}, s.memberships()...) {
			if !slices.Contains(places, p.place) {
				places = append(places, p.place)
			}
		}
	}
	return places
}

// Gateway is the gateway of the block of the nodes.
func Gateway() netip.Addr { return home.gateway() }

// Management is the address on the private network at which the servers reach the API server.
func Management() netip.Prefix { return management }
