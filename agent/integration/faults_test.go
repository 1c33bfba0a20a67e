package integration

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

func TestHealthyNode(t *testing.T) {
	n := newNetwork(t)
	s, report := n.look(expected())
	for _, f := range report.Findings {
		if f.Status != check.OK && f.Status != check.Skip {
			t.Errorf("%s is %s: %s (%s)", f.ID, f.Status, f.Cause, f.Observed)
		}
	}
	for _, id := range []check.ID{check.GatewayAnswers, check.NodeAddress, check.BondHealthy, check.ReturnPath} {
		if f := report.Finding(id); f.Status != check.OK {
			t.Errorf("%s is %s %s, want it judged and OK", id, f.Status, f.Because)
		}
	}
	if l := s.LinkNamed(nodeVIF); l == nil || l.VLAN == nil || l.VLAN.Protocol != "802.1q" || l.Parent != s.LinkNamed("bond0").Index {
		t.Errorf("%s is read as %+v", nodeVIF, l)
	}
}

// TestFaults breaks a real node in each way; the finding must be the right one.
func TestFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  func(n *network)
		id     check.ID
		status check.Status
		reason string
	}{
		"VLAN interface down": {func(n *network) { n.must("down", netlink.LinkSetDown(n.link(nodeVIF))) },
			check.VLANUp, check.Fail, "VLANInterfaceDown"},
		"VLAN interface deleted": {func(n *network) { n.must("delete", netlink.LinkDel(n.link(nodeVIF))) },
			check.VLANInterface, check.Fail, "VLANInterfaceMissing"},
		"wrong VLAN ID": {func(n *network) {
			n.must("delete", netlink.LinkDel(n.link(nodeVIF)))
			n.addVLAN("bond0", nodeVIF, 101, "192.0.2.2/28")
		}, check.VLANInterface, check.Fail, "WrongVLANID"},
		"VLAN on a member of the bond": {func(n *network) {
			n.must("delete", netlink.LinkDel(n.link(nodeVIF)))
			n.addVLAN("eno1", "eno1.100", vlanID, "192.0.2.2/28")
		}, check.VLANInterface, check.Fail, "WrongParent"},
		"bond down": {func(n *network) { n.must("down", netlink.LinkSetDown(n.link("bond0"))) },
			check.UplinkUp, check.Fail, "UplinkDown"},
		"cable cut": {func(n *network) {
			n.in(n.gateway, func() { n.must("down", netlink.LinkSetDown(n.link("port1"))) })
			time.Sleep(300 * time.Millisecond) // the bond looks at its members every 50 ms
		}, check.UplinkUp, check.Fail, "UplinkNoCarrier"},
		"address deleted": {func(n *network) { n.delAddress(nodeVIF, "192.0.2.2/28") },
			check.NodeAddress, check.Fail, "AddressMissing"},
		"address of another prefix": {func(n *network) {
			n.delAddress(nodeVIF, "192.0.2.2/28")
			n.addAddress(nodeVIF, "192.0.2.2/32")
		}, check.NodeAddress, check.Fail, "WrongPrefixLength"},
		"gateway gone": {func(n *network) {
			n.in(n.gateway, func() { n.delAddress("port1.100", "192.0.2.1/28") })
		}, check.GatewayAnswers, check.Fail, "GatewaySilent"},
		"gateway of another block gone": {func(n *network) {
			n.in(n.gateway, func() { n.delAddress("port1.100", "203.0.113.1/29") })
		}, check.GatewayAnswers, check.Warn, "GatewaySilent"},
		"VLAN not on the switch port": {func(n *network) {
			n.in(n.gateway, func() { n.must("down", netlink.LinkSetDown(n.link("port1.100"))) })
		}, check.GatewayAnswers, check.Fail, "GatewaySilent"},
		"address used twice": {func(n *network) {
			n.in(n.gateway, func() { n.addAddress("port1.100", "192.0.2.2/32") })
		}, check.NoDuplicate, check.Fail, "AddressInUse"},
		"strict reverse path": {func(n *network) {
			n.must("no default route", netlink.RouteDel(&netlink.Route{Gw: []byte{192, 0, 2, 1}}))
			n.sysctl("net/ipv4/conf/"+nodeVIF+"/rp_filter", "1")
		}, check.ReversePath, check.Fail, "StrictReversePath"},
		"ARP ignored": {func(n *network) { n.sysctl("net/ipv4/conf/"+nodeVIF+"/arp_ignore", "8") },
			check.ARPAnswering, check.Fail, "ARPIgnored"},
		"forwarding off": {func(n *network) { n.sysctl("net/ipv4/ip_forward", "0") },
			check.Forwarding, check.Fail, "ForwardingOff"},
		"proxy ARP": {func(n *network) { n.sysctl("net/ipv4/conf/"+nodeVIF+"/proxy_arp", "1") },
			check.ProxyARP, check.Warn, "ProxyARP"},
		"jumbo frames": {func(n *network) {
			n.must("bond MTU", netlink.LinkSetMTU(n.link("bond0"), 9000))
			n.must("MTU", netlink.LinkSetMTU(n.link(nodeVIF), 9000))
		}, check.MTU, check.Warn, "UnusualMTU"},
		"no route back": {func(n *network) {
			n.must("no default route", netlink.RouteDel(&netlink.Route{Gw: []byte{192, 0, 2, 1}}))
		}, check.ReturnPath, check.Warn, "ReturnPathElsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			tc.fault(n)
			_, report := n.look(expected())
			if f := report.Finding(tc.id); f.Status != tc.status || f.Reason != tc.reason {
				t.Errorf("%s is %s %s%s (%s), want %s %s", tc.id, f.Status, f.Reason, f.Because, f.Observed, tc.status, tc.reason)
			}
			want := tc.status
			if want == check.Warn {
				want = check.OK
			}
			if v := report.Verdict(); v.Status != want || v.Status == check.Fail && v.Reason != tc.reason {
				t.Errorf("verdict is %s %s: %s", v.Status, v.Reason, v.Message)
			}
		})
	}
}
