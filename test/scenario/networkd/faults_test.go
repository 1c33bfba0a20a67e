//go:build linux

package networkd

import (
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// fault is something that goes wrong in the kernel of a server, and the finding that it has.
type fault struct {
	name string
	// script makes it, on a healthy server or on one with the faults that stand after it in the list.
	script string
	id     check.ID
	reason string
}

// wrongMode is the fault that the switch expects another mode of the bond.
const wrongMode = "unexpected mode of the bond"

// takeFrames makes VLAN interfaces on the members of the bond, which get its frames first.
const takeFrames = "ip link add link eno1 name eno1.100 type vlan id 100; " +
	"ip link add link eno2 name eno2.100 type vlan id 100"

// kernelFaults are all that a command which a finding prints may repair, in the order of the catalogue: causes before
// consequences.
func kernelFaults() []fault {
	leave := func(rules string) string {
		return "ip route replace default via 10.0.0.1 dev bond0 metric 0; " +
			"ip route delete default dev bond0.100 2>/dev/null || true; " +
			"for pref in " + rules + "; do while ip rule delete pref $pref 2>/dev/null; do :; done; done"
	}
	elsewhere := leave("1055 1056 1057")
	return []fault{
		{"uplink down", "ip link set bond0 down", check.UplinkUp, "UplinkDown"},
		{"members down", "ip link set eno1 down; ip link set eno2 down", check.UplinkUp, "UplinkNoCarrier"},
		{"VLAN interface missing", "ip link delete bond0.100", check.VLANInterface, "VLANInterfaceMissing"},
		{"wrong VLAN ID", "ip link delete bond0.100; ip link add link bond0 name bond0.100 type vlan id 101; " +
			"ip link set bond0.100 mtu 1500 up; ip address replace 192.0.2.2/28 dev bond0.100",
			check.VLANInterface, "WrongVLANID"},
		{"wrong parent", "ip link delete bond0.100; ip link add link eno1 name bond0.100 type vlan id 100; " +
			"ip link set bond0.100 mtu 1500 up; ip address replace 192.0.2.2/28 dev bond0.100",
			check.VLANInterface, "WrongParent"},
		{"wrong protocol", "ip link delete bond0.100; " +
			"ip link add link bond0 name bond0.100 type vlan protocol 802.1ad id 100; " +
			"ip link set bond0.100 mtu 1500 up; ip address replace 192.0.2.2/28 dev bond0.100",
			check.VLANInterface, "WrongVLANProtocol"},
		{"in a bridge", "ip link set bond0.100 master cni0", check.VLANInterface, "VLANInterfaceEnslaved"},
		{"VLAN interface down", "ip link set bond0.100 down", check.VLANUp, "VLANInterfaceDown"},
		{wrongMode, "ip link delete bond0" +
			strings.ReplaceAll(bondByHand+vlanByHand, "802.3ad", "balance-rr"),
			check.BondHealthy, "UnexpectedBondMode"},
		{"jumbo frames", "ip link set bond0.100 mtu 9000", check.MTU, "UnusualMTU"},
		{"foreign hardware address", "ip link set bond0.100 address 02:00:00:00:00:77", check.HardwareAddress,
			"ForeignHardwareAddress"},
		{"VLAN interface twice", "ip link add link eno1 name eno1.100 type vlan id 100; ip link set eno1.100 up",
			check.VLANUnique, "SecondVLANInterface"},
		{"frames taken", takeFrames + "; ip link set eno1.100 up; ip link set eno2.100 up", check.VLANUnique,
			"FramesTaken"},
		{"frames taken by interfaces that are down", takeFrames, check.VLANUnique, "FramesTaken"},
		{"address missing", "ip address delete 192.0.2.2/28 dev bond0.100", check.NodeAddress, "AddressMissing"},
		{"address on wrong interface", "ip address delete 192.0.2.2/28 dev bond0.100; " +
			"ip address add 192.0.2.2/32 dev bond0", check.NodeAddress, "AddressOnWrongInterface"},
		{"wrong prefix length", "ip address delete 192.0.2.2/28 dev bond0.100; " +
			"ip address add 192.0.2.2/32 dev bond0.100", check.NodeAddress, "WrongPrefixLength"},
		{"block on a bridge", "ip address add 192.0.2.9/29 dev cni0", check.BlocksHere, "BlockOnOtherInterface"},
		{"block taken by a bridge", "ip address add 192.0.2.3/30 dev cni0", check.BlocksHere, "GatewayRoutedElsewhere"},
		{"gateway's address here", "ip address add 203.0.113.1/32 dev bond0.100", check.GatewayUnique,
			"GatewayHeldHere"},
		{"gateway pinned", "ip neighbour replace 192.0.2.1 lladdr 02:00:00:00:00:66 dev bond0.100 nud permanent",
			check.GatewayUnique, "GatewayPinned"},
		{"strict reverse path", elsewhere + "; sysctl -q -w net/ipv4/conf/bond0.100/rp_filter=1", check.ReversePath,
			"StrictReversePath"},
		{"no default route", "ip route flush 0.0.0.0/0; sysctl -q -w net/ipv4/conf/bond0.100/rp_filter=2",
			check.ReversePath, "NoRouteToClients"},
		{"ARP off", "ip link set bond0.100 arp off", check.ARPAnswering, "ARPOff"},
		{"ARP ignored", "sysctl -q -w net/ipv4/conf/all/arp_ignore=8", check.ARPAnswering, "ARPIgnored"},
		{"ARP restricted", "sysctl -q -w net/ipv4/conf/bond0.100/arp_ignore=2", check.ARPAnswering, "ARPRestricted"},
		{"ARP filtered", elsewhere + "; sysctl -q -w net/ipv4/conf/all/arp_filter=1", check.ARPAnswering,
			"ARPFiltered"},
		{"IPVS without strict ARP", "ip link add kube-ipvs0 type dummy", check.StrictARP, "StrictARPMissing"},
		{"forwarding off", "sysctl -q -w net/ipv4/ip_forward=0", check.Forwarding, "ForwardingOff"},
		{"forwarding off here", "sysctl -q -w net/ipv4/conf/bond0.100/forwarding=0", check.Forwarding,
			"ForwardingOffHere"},
		{"proxy ARP", "sysctl -q -w net/ipv4/conf/all/proxy_arp=1", check.ProxyARP, "ProxyARP"},
		{"own packets let in", "sysctl -q -w net/ipv4/conf/bond0.100/accept_local=1", check.RiskySettings,
			"AcceptLocal"},
		{"secondaries are not kept", "ip address add 192.0.2.3/28 dev bond0.100", check.RiskySettings,
			"SecondariesLost"},
		{"table empty", "ip route flush table 1100 2>/dev/null || true; " +
			"ip rule add pref 1057 from 192.0.2.0/28 lookup 1100 2>/dev/null || true", check.RoutingTables, "TableEmpty"},
		{"table without default", "ip rule add pref 1057 from 192.0.2.0/28 lookup 1100; " +
			"ip route add 192.0.2.0/28 dev bond0.100 table 1100", check.RoutingTables, "TableWithoutDefault"},
		{"replies elsewhere", leave("1056 1057"), check.ReturnPath, "ReturnPathElsewhere"},
		{"replies of pods elsewhere", leave("1055"), check.ServiceReplies, "ServiceRepliesElsewhere"},
	}
}
