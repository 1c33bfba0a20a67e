//go:build linux

package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// patience is how long a fault may take to show: a bond polls its members only at intervals, a frame may be lost, and
// the machine that the tests run on may be busy.
const patience = 30 * time.Second

func TestHealthyNode(t *testing.T) {
	s := newServer(t)
	s.sound(patience)
	report := s.judge()
	passedOver := []check.ID{check.StrictARP, check.MarkBits}
	for _, f := range report.Findings {
		if f.Status == check.Skip && !slices.Contains(passedOver, f.ID) {
			t.Errorf("%s is passed over: %s", f.ID, f.Because)
		}
	}
}

// fault is one row of the table: something is broken in a real kernel, or on a real wire, and repaired.
type fault struct {
	name         string
	make, repair func(*server)
	id           check.ID
	status       check.Status
	reason       string
}

// TestFaults breaks a real node in each way: the first cause must be the right one, and gone when the fault is
// repaired. All rows work on one node, so it must be healthy after each repair.
func TestFaults(t *testing.T) {
	s := newServer(t)
	s.sound(patience)
	for _, f := range slices.Concat(linkFaults(), addressFaults(), wireFaults(), kernelFaults(), routeFaults(),
		identityFaults(t)) {
		s.suffer(f)
	}
}

// suffer makes a fault, diagnoses it, and repairs it.
func (s *server) suffer(f fault) {
	s.t.Helper()
	f.make(s)
	first, _ := s.settle(patience, func(first check.Finding, _ bool) bool { return first.Reason == f.reason })
	if first.ID != f.id || first.Status != f.status || first.Reason != f.reason {
		s.t.Errorf("%s: the first cause is %s %s %s: %s (%s), want %s %s %s",
			f.name, first.ID, first.Status, first.Reason, first.Cause, first.Observed, f.id, f.status, f.reason)
	}
	if len(first.Fixes) == 0 && first.Status != check.Unknown {
		s.t.Errorf("%s: no fix", f.name)
	}
	f.repair(s)
	if first, found := s.settle(patience, func(_ check.Finding, found bool) bool { return !found }); found {
		s.t.Fatalf("%s, repaired: %s %s %s: %s (%s)",
			f.name, first.ID, first.Status, first.Reason, first.Cause, first.Observed)
	}
}

// TestFaultsOfLACP lets the node's bond negotiate with one switch, then with less than that.
func TestFaultsOfLACP(t *testing.T) {
	s := newServer(t)
	s.switches([]string{"port1", "port2"})
	s.rebuild(netlink.BOND_MODE_802_3AD)
	s.sound(patience)
	together := func(s *server) { s.switches([]string{"port1", "port2"}) }
	for _, f := range []fault{
		{"one member speaks no LACP", func(s *server) { s.switches([]string{"port1"}) }, together,
			check.BondHealthy, check.Warn, "MemberWithoutPartner"},
		{"members of two switches", func(s *server) { s.switches([]string{"port1"}, []string{"port2"}) }, together,
			check.BondHealthy, check.Warn, "AggregatorsDiffer"},
	} {
		s.suffer(f)
	}
}

func linkFaults() []fault {
	remake, rebuild := (*server).remakeVLAN, func(s *server) { s.rebuild(netlink.BOND_MODE_ACTIVE_BACKUP) }
	setUp := func(name string) func(*server) {
		return func(s *server) {
			s.must(name+" up", netlink.LinkSetUp(s.link(name)))
			s.waitForCarrier()
			s.routes()
		}
	}
	setDown := func(name string) func(*server) {
		return func(s *server) { s.must(name+" down", netlink.LinkSetDown(s.link(name))) }
	}
	setMTU := func(mtu int) func(*server) {
		return func(s *server) {
			s.must("bond MTU", netlink.LinkSetMTU(s.link("bond0"), max(mtu, 1500)))
			s.must("MTU", netlink.LinkSetMTU(s.link(nodeVIF), mtu))
		}
	}
	return []fault{
		{"bond deleted", func(s *server) { s.must("delete bond0", netlink.LinkDel(s.link("bond0"))) }, rebuild,
			check.UplinkUp, check.Fail, "UplinkMissing"},
		{"bond down", setDown("bond0"), setUp("bond0"), check.UplinkUp, check.Fail, "UplinkDown"},
		{"all cables cut", func(s *server) { s.ports(netlink.LinkSetDown) },
			func(s *server) { s.ports(netlink.LinkSetUp) },
			check.UplinkUp, check.Fail, "UplinkNoCarrier"},
		{"one cable cut", func(s *server) { s.port("port2", netlink.LinkSetDown) },
			func(s *server) { s.port("port2", netlink.LinkSetUp) },
			check.BondHealthy, check.Warn, "BondDegraded"},
		{"member down", setDown("eno2"), func(s *server) { s.must("eno2 up", netlink.LinkSetUp(s.link("eno2"))) },
			check.BondHealthy, check.Warn, "BondDegraded"},
		{"bond of another mode", func(s *server) { s.rebuild(netlink.BOND_MODE_BROADCAST) }, rebuild, check.BondHealthy,
			check.Warn, "UnexpectedBondMode"},
		{"LACP without a partner", func(s *server) { s.rebuild(netlink.BOND_MODE_802_3AD) }, rebuild,
			check.BondHealthy, check.Warn, "NoLACPPartner"},
		{"VLAN interface deleted", func(s *server) { s.must("delete", netlink.LinkDel(s.link(nodeVIF))) }, remake,
			check.VLANInterface, check.Fail, "VLANInterfaceMissing"},
		{"wrong VLAN ID", func(s *server) { s.vlanOn("bond0", nodeVIF, 101, netlink.VLAN_PROTOCOL_8021Q) }, remake,
			check.VLANInterface, check.Fail, "WrongVLANID"},
		{"VLAN of a provider", func(s *server) { s.vlanOn("bond0", nodeVIF, vlanID, netlink.VLAN_PROTOCOL_8021AD) },
			remake,
			check.VLANInterface, check.Fail, "WrongVLANProtocol"},
		{"VLAN on a member of the bond", func(s *server) {
			s.vlanOn("eno1", "eno1.100", vlanID,
				netlink.VLAN_PROTOCOL_8021Q)
		}, remake,
			check.VLANInterface, check.Fail, "WrongParent"},
		{"bridge instead of a VLAN", func(s *server) { s.expected.Interface = pods }, (*server).expect,
			check.VLANInterface, check.Fail, "NotAVLANInterface"},
		{"VLAN interface in a bridge", func(s *server) {
			s.must("enslave",
				netlink.LinkSetMaster(s.link(nodeVIF), s.link(pods)))
		}, remake,
			check.VLANInterface, check.Fail, "VLANInterfaceEnslaved"},
		{"VLAN interface down", setDown(nodeVIF), setUp(nodeVIF), check.VLANUp, check.Fail, "VLANInterfaceDown"},
		{"jumbo frames", setMTU(9000), setMTU(1500), check.MTU, check.Warn, "UnusualMTU"},
		{"tiny frames", setMTU(1000), setMTU(1500), check.MTU, check.Warn, "UnusualMTU"},
		{"hardware address of its own", func(s *server) {
			s.must("set it", netlink.LinkSetHardwareAddr(s.link(nodeVIF), []byte{2, 0, 0, 0, 0, 0x77}))
		}, remake, check.HardwareAddress, check.Warn, "ForeignHardwareAddress"},
		{"VLAN interface on a member, too", func(s *server) { s.addVLAN("eno2", "eno2.100", vlanID) }, remake,
			check.VLANUnique, check.Warn, "SecondVLANInterface"},
		{"VLAN interface on the active member, too", func(s *server) { s.addVLAN("eno1", "eno1.100", vlanID) }, remake,
			check.VLANUnique, check.Fail, "FramesTaken"},
	}
}

// ports sets all cables of the node at their far ends.
func (s *server) ports(set func(netlink.Link) error) {
	s.t.Helper()
	s.port("port1", set)
	s.port("port2", set)
}

func (s *server) port(name string, set func(netlink.Link) error) {
	s.t.Helper()
	s.in(s.gateway, func() { s.must("set "+name, set(s.link(name))) })
}
