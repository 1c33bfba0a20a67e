package check

import (
	"net/netip"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	testVLAN   = 100
	gatewayMAC = "00:1c:73:00:00:99"
)

var (
	nodeIP     = netip.MustParseAddr("192.0.2.2")
	gateway    = netip.MustParseAddr("192.0.2.1")
	everywhere = netip.MustParsePrefix("0.0.0.0/0")
	second     = netip.MustParseAddr("203.0.113.1")
)

// expectedNode is what the controller publishes for the node of goodNode.
func expectedNode() Expected {
	return Expected{Published: true, Network: contract.NodeNetwork{
		ServerID: "0123456789abcdef01234567", ID: "6104105e6b7c9a0012345678", VLAN: testVLAN, Member: true,
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		Blocks: []contract.NetworkBlock{
			{CIDR: netip.MustParsePrefix("192.0.2.0/28"), Gateway: netip.MustParseAddr("192.0.2.1")},
			{CIDR: netip.MustParsePrefix("203.0.113.0/29"), Gateway: netip.MustParseAddr("203.0.113.1")},
		},
		Announcer: contract.AnnouncerKubeVIP,
	}, NodeAddresses: []netip.Addr{netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("192.0.2.2")},
		Virtual: []netip.Addr{netip.MustParseAddr("203.0.113.3")}}
}

// goodNode is a healthy server: a bond of two, a private VLAN with the default route, the VLAN of the public network, a
// pod network, and a routing table of the network for what has its addresses or the mark. Routes are asked with
// askRoutes.
func goodNode() Snapshot {
	up := func(l Link) Link {
		l.Up = true
		l.LowerUp = true
		l.OperState = "up"
		return l
	}
	return Snapshot{
		Hostname: "worker-1",
		Links: []Link{
			up(Link{Index: 1, Name: "lo", Type: "device", MTU: 65536}),
			up(Link{Index: 2, Name: "eno1", Type: "device", MAC: "02:00:00:00:00:01", MTU: 9000, Master: 4,
				Slave: &Slave{Up: true, Aggregator: 1}}),
			up(Link{Index: 3, Name: "eno2", Type: "device", MAC: "02:00:00:00:00:01", MTU: 9000, Master: 4,
				Slave: &Slave{Up: true, Aggregator: 1}}),
			up(Link{Index: 4, Name: "bond0", Type: "bond", MAC: "02:00:00:00:00:01", MTU: 9000,
				Bond: &Bond{Mode: "802.3ad", PartnerMAC: "00:1c:73:00:00:01", Aggregator: 1}}),
			up(Link{Index: 5, Name: "bond0.11", Type: "vlan", MAC: "02:00:00:00:00:01", MTU: 9000, Parent: 4,
				VLAN: &VLAN{ID: 11, Protocol: "802.1q"}}),
			up(Link{Index: 6, Name: "bond0.100", Type: "vlan", MAC: "02:00:00:00:00:01", MTU: 1500, Parent: 4,
				VLAN: &VLAN{ID: 100, Protocol: "802.1q"}}),
			up(Link{Index: 7, Name: "cni0", Type: "bridge", MAC: "02:00:00:00:00:07", MTU: 1500}),
		},
		Addresses: []Address{
			{LinkIndex: 1, Prefix: netip.MustParsePrefix("127.0.0.1/8")},
			{LinkIndex: 5, Prefix: netip.MustParsePrefix("10.0.0.11/24")},
			{LinkIndex: 6, Prefix: netip.MustParsePrefix("192.0.2.2/28")},
			{LinkIndex: 6, Prefix: netip.MustParsePrefix("203.0.113.3/32"), Deprecated: true},
			{LinkIndex: 7, Prefix: netip.MustParsePrefix("10.244.1.1/24")},
		},
		Settings: map[string]Settings{
			"all":       {},
			"bond0.11":  {},
			"bond0.100": {"rp_filter": 2, "arp_announce": 2},
		},
		IPForward: true,
		ARP: []ARPAnswer{
			{Target: netip.MustParseAddr("192.0.2.2"), Source: netip.IPv4Unspecified()},
			{Target: netip.MustParseAddr("192.0.2.1"), Source: netip.MustParseAddr("192.0.2.2"),
				MACs: []string{gatewayMAC}, Replied: true, RTT: 600 * time.Microsecond},
			{Target: netip.MustParseAddr("203.0.113.1"), Source: netip.MustParseAddr("192.0.2.2"),
				MACs: []string{gatewayMAC}, Replied: true, RTT: 700 * time.Microsecond},
		},
		Machine: Machine{ServerID: "0123456789abcdef01234567", ServerIDFrom: "cloud-init's instance ID"},
		Rules: []Rule{
			{Priority: 0, Table: TableLocal},
			{Priority: 1055, Mark: 0x2000, Mask: 0x2000, Table: 1100},
			{Priority: 1056, Source: netip.MustParsePrefix("192.0.2.0/28"), Table: 1100},
			{Priority: 32766, Table: TableMain},
			{Priority: 32767, Table: TableDefault},
		},
		Tables: map[int][]Route{
			TableMain: {{Destination: everywhere, Gateway: netip.MustParseAddr("10.0.0.1"), LinkIndex: 5,
				Type: "unicast"}},
			1100: {{Destination: everywhere, Gateway: gateway, LinkIndex: 6, Type: "unicast"}},
		},
	}
}
