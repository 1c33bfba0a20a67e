//go:build linux

package faults

import (
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
)

// remade deletes the VLAN interface, makes another in its place and gives it address and route.
func remade(link string) action {
	return here("ip link delete bond0.56\nip link add link " + link +
		"\nip link set bond0.56 up\nip address add $OWN dev bond0.56")
}

// anew deletes the VLAN interface and configures it as its user did.
var anew = then(here("ip link delete bond0.56"), restore)

func linkFaults() []Fault {
	return []Fault{
		{Name: "VLAN interface set down", ID: "PN103", Reason: "VLANInterfaceDown", Told: ByCondition, Event: true,
			Short: true,
			make:  breakVLAN(lab.LinkDown), mend: restore},
		{Name: "VLAN interface deleted", ID: "PN102", Reason: "VLANInterfaceMissing", Told: ByCondition, Event: true,
			Short: true,
			make:  breakVLAN(lab.LinkDeleted), mend: restore},
		{Name: "VLAN interface with another VLAN ID", ID: "PN102", Reason: "WrongVLANID", Told: ByCondition,
			Event: true, Short: true,
			make: breakVLAN(lab.WrongVLAN), mend: restore},
		{Name: "VLAN interface on a member of the bond", ID: "PN102", Reason: "WrongParent", Told: ByCondition,
			Event: true,
			make:  remade("eth0 name bond0.56 type vlan id 56"), mend: anew},
		{Name: "VLAN interface with tags of 802.1ad", ID: "PN102", Reason: "WrongVLANProtocol", Told: ByCondition,
			Event: true,
			make:  remade("bond0 name bond0.56 type vlan protocol 802.1ad id 56"), mend: anew},
		{Name: "MTU of jumbo frames", ID: "PN105", Reason: "UnusualMTU", Told: ByMetric, Status: check.Warn,
			Event: true, Short: true,
			make: here("ip link set eth0 mtu 9000\nip link set bond0 mtu 9000\nip link set bond0.56 mtu 9000"),
			mend: here("ip link set bond0.56 mtu 1500\nip link set bond0 mtu 1500\nip link set eth0 mtu 1500")},
		{Name: "MTU too small", ID: "PN105", Reason: "UnusualMTU", Told: ByMetric, Status: check.Warn, Event: true,
			make: here("ip link set bond0.56 mtu 1200"), mend: here("ip link set bond0.56 mtu 1500")},
		{Name: "hardware address of its own", ID: "PN106", Reason: "ForeignHardwareAddress", Told: ByMetric,
			Status: check.Warn, Event: true,
			make: here("ip link set bond0.56 address 02:50:4e:ff:ff:01"),
			mend: here("ip link set bond0.56 address $(cat /sys/class/net/bond0/address)")},
		{Name: "second interface for the VLAN", ID: "PN107", Reason: "SecondVLANInterface", Told: ByMetric,
			Status: check.Warn, Event: true, Short: true,
			make: here("ip link add link pod0 name public0 type vlan id 56\nip link set public0 up"),
			mend: here("ip link delete public0")},
		{Name: "second interface below the bond takes the frames", ID: "PN107", Reason: "FramesTaken",
			Told: ByCondition, Short: true,
			make: here("ip link add link eth0 name public0 type vlan id 56\nip link set public0 up"),
			mend: here("ip link delete public0")},
	}
}

// byHand describes the network to `agent diagnose`: with the bond the way to the API server is gone, too.
var byHand = []string{"--vlan", "56", "--network", "203.0.113.0/29"}

func bondFaults() []Fault {
	return []Fault{
		{Name: "bond set down", ID: "PN101", Reason: "UplinkDown", Told: ByMetric, Status: check.Fail, Flags: byHand,
			Event: true, Short: true,
			make: here("ip link set bond0 down"), mend: then(here("ip link set bond0 up"), restore)},
		{Name: "cable of the bond cut", ID: "PN101", Reason: "UplinkNoCarrier", Told: ByMetric, Status: check.Fail,
			Flags: byHand, Event: true,
			make: onSwitch("ip link set p-$SERVER down"), mend: onSwitch("ip link set p-$SERVER up")},
		{Name: "member of the bond without carrier", ID: "PN104", Reason: "BondDegraded", Told: ByMetric,
			Status: check.Warn, Event: true, Short: true,
			make: here("ip link add eth1 type veth peer name cable1\nip link set eth1 master bond0\nip link set eth1 " +
				"up"),
			mend: here("ip link delete eth1")},
	}
}
