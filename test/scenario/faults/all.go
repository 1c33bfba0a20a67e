//go:build linux

package faults

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
)

// All are the faults that are made. Their order is that of the layers.
func All() []Fault {
	return slices.Concat(publishedFaults, linkFaults, bondFaults, addressFaults, networkFaults, kernelFaults,
		routeFaults)
}

var publishedFaults = []Fault{
	{"published network unreadable", "PN000", "NetworkUnreadable", 0,
		annotate("fifty-six"), annotate(fmt.Sprint(cluster.VLAN))},
	{"server with the identity of another", "PN003", "OtherServer", Silent,
		instanceData, here("rm /run/cloud-init/instance-data.json")},
	{"server taken out of the network", "PN001", "NotAMember", Slow,
		portal(func(s *site) pnapsim.Edit {
			return pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: s.server.ID, Network: cluster.NetworkID}
		}),
		portal(func(s *site) pnapsim.Edit {
			return pnapsim.Edit{Kind: pnapsim.EditAddMember, Server: s.server.ID, Network: cluster.NetworkID,
				IPs: []string{s.server.Public.Addr().String()}}
		})},
}

// annotate overwrites what the controller has published on the Node.
func annotate(value string) action {
	return func(ctx context.Context, s *site) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, contract.NodePublicNetworkVLAN, value)
		_, err := s.cluster.Kube.CoreV1().Nodes().Patch(ctx, s.server.Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("annotate Node %s: %w", s.server.Name, err)
		}
		return nil
	}
}

// instanceData is what cloud-init leaves on a server that was installed from the image of another one.
func instanceData(ctx context.Context, s *site) error {
	data := fmt.Appendf(nil, `{"v1":{"instance_id":%q,"local_hostname":%q}}`, s.neighbour.ID, s.server.Name)
	return s.cluster.Lab.WriteHostFile(ctx, s.server.Name, "/run/cloud-init/instance-data.json", data, 0o644)
}

// remade deletes the VLAN interface, makes another in its place and gives it address and route.
func remade(link string) action {
	return here("ip link delete bond0.56\nip link add link " + link +
		"\nip link set bond0.56 up\nip address add $OWN dev bond0.56")
}

// configured deletes the VLAN interface and configures it as its user did.
var configured = then(here("ip link delete bond0.56"), restore)

var linkFaults = []Fault{
	{"VLAN interface set down", "PN103", "VLANInterfaceDown", Event | Short, breakVLAN(lab.LinkDown), restore},
	{"VLAN interface deleted", "PN102", "VLANInterfaceMissing", Event | Short, breakVLAN(lab.LinkDeleted), restore},
	{"VLAN interface with another VLAN ID", "PN102", "WrongVLANID", Event | Short, breakVLAN(lab.WrongVLAN), restore},
	{"VLAN interface on a member of the bond", "PN102", "WrongParent", Event,
		remade("eth0 name bond0.56 type vlan id 56"), configured},
	{"VLAN interface with tags of 802.1ad", "PN102", "WrongVLANProtocol", Event,
		remade("bond0 name bond0.56 type vlan protocol 802.1ad id 56"), configured},
	{"MTU of jumbo frames", "PN105", "UnusualMTU", Warns | Event | Short,
		here("ip link set eth0 mtu 9000\nip link set bond0 mtu 9000\nip link set bond0.56 mtu 9000"),
		here("ip link set bond0.56 mtu 1500\nip link set bond0 mtu 1500\nip link set eth0 mtu 1500")},
	{"MTU too small", "PN105", "UnusualMTU", Warns | Event,
		here("ip link set bond0.56 mtu 1200"), here("ip link set bond0.56 mtu 1500")},
	{"hardware address of its own", "PN106", "ForeignHardwareAddress", Warns | Event,
		here("ip link set bond0.56 address 02:50:4e:ff:ff:01"),
		here("ip link set bond0.56 address $(cat /sys/class/net/bond0/address)")},
	{"second interface for the VLAN", "PN107", "SecondVLANInterface", Warns | Event | Short,
		here("ip link add link pod0 name public0 type vlan id 56\nip link set public0 up"),
		here("ip link delete public0")},
	{"second interface below the bond takes the frames", "PN107", "FramesTaken", Short,
		here("ip link add link eth0 name public0 type vlan id 56\nip link set public0 up"),
		here("ip link delete public0")},
}

var bondFaults = []Fault{
	{"bond set down", "PN101", "UplinkDown", Fails | Described | Event | Short,
		here("ip link set bond0 down"), then(here("ip link set bond0 up"), restore)},
	{"cable of the bond cut", "PN101", "UplinkNoCarrier", Fails | Described | Event,
		onSwitch("ip link set p-$SERVER down"), onSwitch("ip link set p-$SERVER up")},
	{"member of the bond without carrier", "PN104", "BondDegraded", Warns | Event | Short,
		here("ip link add eth1 type veth peer name cable1\nip link set eth1 master bond0\nip link set eth1 up"),
		here("ip link delete eth1")},
}

var addressFaults = []Fault{
	{"own address deleted", "PN201", "AddressMissing", Event | Short,
		here("ip address delete $OWN dev bond0.56"), restore},
	{"own address without its network", "PN201", "WrongPrefixLength", Event,
		here("ip address delete $OWN dev bond0.56\nip address add $ADDRESS/32 dev bond0.56"),
		then(here("ip address delete $ADDRESS/32 dev bond0.56"), restore)},
	{"own address on the bond itself", "PN201", "AddressOnWrongInterface", Event,
		here("ip address delete $OWN dev bond0.56\nip address add $OWN dev bond0"),
		then(here("ip address delete $OWN dev bond0"), restore)},
	{"block on a second interface", "PN203", "BlockOnOtherInterface", Warns | Event | Short,
		here("ip address add $ADDRESS/32 dev lo"), here("ip address delete $ADDRESS/32 dev lo")},
	{"block routed by another interface", "PN203", "GatewayRoutedElsewhere", Event,
		here("ip route add $GATEWAY/32 dev bond0.4"), here("ip route delete $GATEWAY/32 dev bond0.4")},
	{"block of the gateway refused by a route", "PN203", "GatewayUnroutable", Event,
		here("ip route add blackhole $GATEWAY/32"), here("ip route delete blackhole $GATEWAY/32")},
	{"own address used by another server", "PN202", "AddressInUse", Exclusive | Short,
		nextDoor("ip address add $ADDRESS/32 dev bond0.56"), nextDoor("ip address delete $ADDRESS/32 dev bond0.56")},
}

var networkFaults = []Fault{
	{"VLAN closed on the port of the server", "PN301", "GatewaySilent", Short,
		onSwitch("bridge vlan delete dev p-$SERVER vid 56"), onSwitch("bridge vlan add dev p-$SERVER vid 56")},
	{"gateway gone", "PN301", "GatewaySilent", Exclusive,
		atGateway("ip address delete $GATEWAY/$BITS dev eth0.56"),
		atGateway("ip address add $GATEWAY/$BITS dev eth0.56")},
	{"another server answers for the gateway", "PN302", "GatewayAnsweredTwice", Warns | Exclusive,
		nextDoor("ip address add $GATEWAY/32 dev bond0.56"), nextDoor("ip address delete $GATEWAY/32 dev bond0.56")},
	{"server holds the address of the gateway", "PN302", "GatewayHeldHere", Event | Exclusive,
		here("ip address add $GATEWAY/32 dev bond0.56"), here("ip address delete $GATEWAY/32 dev bond0.56")},
	{"gateway slow", "PN303", "GatewaySlow", Warns | Exclusive,
		atGateway("tc qdisc add dev eth0.56 root netem delay 150ms"), atGateway("tc qdisc delete dev eth0.56 root")},
}

// set sets a kernel setting of the VLAN interface.
func set(key string, value int) action { return here(fmt.Sprintf("echo %d > $CONF/%s", value, key)) }

var kernelFaults = []Fault{
	{"strict reverse path filter, default route elsewhere", "PN401", "StrictReversePath", Event,
		here("echo 1 > $CONF/rp_filter\nip route replace default via $ELSEWHERE dev bond0.4"),
		here("echo 2 > $CONF/rp_filter\nip route replace default via $GATEWAY dev bond0.56")},
	{"ARP ignored", "PN402", "ARPIgnored", Short, set("arp_ignore", 8), set("arp_ignore", 1)},
	{"ARP answered to neighbours only", "PN402", "ARPRestricted", Warns, set("arp_ignore", 2), set("arp_ignore", 1)},
	{"ARP filtered, default route elsewhere", "PN402", "ARPFiltered", Warns | Event,
		here("echo 1 > $CONF/arp_filter\nip route replace default via $ELSEWHERE dev bond0.4"),
		here("echo 0 > $CONF/arp_filter\nip route replace default via $GATEWAY dev bond0.56")},
	{"IPVS without strict ARP", "PN404", "StrictARPMissing", Event,
		here("echo 0 > $CONF/arp_ignore\nip link add kube-ipvs0 type dummy"),
		here("echo 1 > $CONF/arp_ignore\nip link delete kube-ipvs0")},
	{"forwarding off", "PN405", "ForwardingOff", Event | Short,
		here("echo 0 > /proc/sys/net/ipv4/ip_forward"), here("echo 1 > /proc/sys/net/ipv4/ip_forward")},
	{"forwarding off on the VLAN interface", "PN405", "ForwardingOffHere", Event,
		set("forwarding", 0), set("forwarding", 1)},
	{"proxy ARP", "PN406", "ProxyARP", Warns | Event, set("proxy_arp", 1), set("proxy_arp", 0)},
}

var routeFaults = []Fault{
	{"default route by the private network", "PN501", "ReturnPathElsewhere", Warns | Event | Short,
		here("ip route replace default via $ELSEWHERE dev bond0.4"),
		here("ip route replace default via $GATEWAY dev bond0.56 onlink")},
	{"replies of pods by the private network", "PN502", "ServiceRepliesElsewhere", Warns | Event,
		here("ip route add default via $ELSEWHERE dev bond0.4 table 77\nip rule add from $PODS lookup 77 priority 77"),
		here("ip rule delete priority 77\nip route flush table 77")},
	{"routing table that a rule names is empty", "PN503", "TableEmpty", Warns | Event,
		here("ip rule add from $BLOCK lookup 78 priority 78"), here("ip rule delete priority 78")},
}
