//go:build linux

package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
)

const (
	privateVIF = "bond0.11"
	pods       = "cni0"
	// gatewayVIF is the gateway's interface, on the switch that both cables end in.
	gatewayVIF = "switch0.100"
	ownTable   = 1100
	ownMark    = 0x2000
)

// server is a node as phoenixNAP sets them up: a bond of two, the default route by a private VLAN, the public network
// by another; and as a cluster makes it: a bridge of pods, and rules that send replies back through the public network.
type server struct {
	*network
	expected check.Expected
	reader   *netstate.Reader
	prober   *arp.Prober
}

// undelayed takes every reply for one that came at once. On a busy machine replies are late, and that would be the
// first cause of tests that break something else.
type undelayed struct{ *arp.Prober }

func (u undelayed) Ask(ctx context.Context, name string, questions []arp.Question) ([]arp.Answer, error) {
	answers, err := u.Prober.Ask(ctx, name, questions)
	for i := range answers {
		answers[i].RTT = 0
		answers[i].Within = 0
	}
	return answers, err
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{network: newNetwork(t), reader: netstate.NewReader(), prober: arp.NewProber()}
	s.prober.Interval = 150 * time.Millisecond
	s.must("add a second cable", netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eno2"},
		PeerName: "port2"}))
	s.must("move its far end", netlink.LinkSetNsFd(s.link("port2"), int(s.gateway)))
	s.must("add a bridge", netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: pods}}))
	s.must("add a pod", netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth1"}, PeerName: "pod1"}))
	s.must("move the pod", netlink.LinkSetNsFd(s.link("pod1"), int(s.gateway)))
	s.must("enslave veth1", netlink.LinkSetMaster(s.link("veth1"), s.link(pods)))
	for _, name := range []string{pods, "veth1"} {
		s.must(name+" up", netlink.LinkSetUp(s.link(name)))
	}
	s.addAddress(pods, "10.244.1.1/24")
	s.in(s.gateway, func() {
		s.must("pod1 up", netlink.LinkSetUp(s.link("pod1")))
	})
	s.plainSwitch()
	s.rules()
	s.rebuild(netlink.BOND_MODE_ACTIVE_BACKUP)
	s.expect()
	return s
}

// expect sets what the controller publishes for the server.
func (s *server) expect() {
	s.expected = expected()
	s.expected.NodeAddresses = []netip.Addr{netip.MustParseAddr("10.0.0.11")}
}

// rebuild makes the bond and all that is on it again.
func (s *server) rebuild(mode netlink.BondMode) {
	s.t.Helper()
	if bond, err := netlink.LinkByName("bond0"); err == nil {
		s.must("delete bond0", netlink.LinkDel(bond))
	}
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
	bond.Mode = mode
	bond.Miimon = 50
	if mode == netlink.BOND_MODE_802_3AD {
		bond.LacpRate = netlink.BOND_LACP_RATE_FAST
	}
	s.must("add bond0", netlink.LinkAdd(bond))
	for _, name := range []string{"eno1", "eno2"} {
		s.must(name+" down", netlink.LinkSetDown(s.link(name)))
		s.must("enslave "+name, netlink.LinkSetMaster(s.link(name), s.link("bond0")))
		s.must(name+" up", netlink.LinkSetUp(s.link(name)))
	}
	s.must("bond0 up", netlink.LinkSetUp(s.link("bond0")))
	s.addVLAN("bond0", privateVIF, 11, "10.0.0.11/24")
	s.remakeVLAN()
}

// remakeVLAN makes the VLAN interface of the public network and what belongs to it.
func (s *server) remakeVLAN() {
	s.t.Helper()
	for _, name := range []string{nodeVIF, "eno1.100", "eno2.100"} {
		if l, err := netlink.LinkByName(name); err == nil {
			s.must("delete "+name, netlink.LinkDel(l))
		}
	}
	s.addVLAN("bond0", nodeVIF, vlanID, "192.0.2.2/28")
	s.conf("rp_filter", "2")
	s.waitForCarrier()
	s.routes()
}

// routes makes the routes that the kernel forgets when an interface goes down.
func (s *server) routes() {
	s.t.Helper()
	s.must("default route", netlink.RouteReplace(&netlink.Route{Gw: net.ParseIP("10.0.0.1"),
		LinkIndex: s.link(privateVIF).Attrs().Index}))
	s.must("default route of the network", netlink.RouteReplace(&netlink.Route{Gw: net.ParseIP("192.0.2.1"),
		LinkIndex: s.link(nodeVIF).Attrs().Index, Table: ownTable}))
}

func byMark() *netlink.Rule {
	r := netlink.NewRule()
	mask := uint32(ownMark)
	r.Priority = 1055
	r.Mark = ownMark
	r.Mask = &mask
	r.Table = ownTable
	r.Family = netlink.FAMILY_V4
	return r
}

func bySource() *netlink.Rule {
	r := netlink.NewRule()
	r.Priority = 1056
	r.Src = &net.IPNet{IP: net.IPv4(192, 0, 2, 0), Mask: net.CIDRMask(28, 32)}
	r.Table = ownTable
	r.Family = netlink.FAMILY_V4
	return r
}

func (s *server) rules() {
	s.t.Helper()
	s.must("rule by mark", netlink.RuleAdd(byMark()))
	s.must("rule by source", netlink.RuleAdd(bySource()))
}

// conf sets a setting of the VLAN interface.
func (s *server) conf(key, value string) { s.sysctl("net/ipv4/conf/"+nodeVIF+"/"+key, value) }

// vlanOn replaces the VLAN interface by another.
func (s *server) vlanOn(parent, name string, id int, protocol netlink.VlanProtocol) {
	s.t.Helper()
	s.must("delete the VLAN interface", netlink.LinkDel(s.link(nodeVIF)))
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.ParentIndex = s.link(parent).Attrs().Index
	attrs.MTU = 1500
	s.must("add "+name, netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: id, VlanProtocol: protocol}))
	s.must(name+" up", netlink.LinkSetUp(s.link(name)))
	s.addAddress(name, "192.0.2.2/28")
}

// route adds or deletes a route of the main table.
func (s *server) route(do func(*netlink.Route) error, destination string, r netlink.Route) {
	s.t.Helper()
	_, target, err := net.ParseCIDR(destination)
	s.must("parse "+destination, err)
	r.Dst = target
	s.must("change the route to "+destination, do(&r))
}

// judge takes a real snapshot and judges it.
func (s *server) judge() check.Report {
	s.t.Helper()
	snapshot, err := sampler.Look(s.t.Context(), s.reader, s.prober, s.expected)
	s.must("diagnose", err)
	return check.Evaluate(s.expected, snapshot)
}

// settle checks until the first cause is as wanted: a bond polls its members only at intervals, LACP takes time, and a
// frame may be lost.
func (s *server) settle(within time.Duration, wanted func(first check.Finding, found bool) bool) (check.Finding, bool) {
	s.t.Helper()
	for deadline := time.Now().Add(within); ; {
		first, found := s.judge().FirstCause()
		if wanted(first, found) || time.Now().After(deadline) {
			return first, found
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// sound waits until everything is healthy.
func (s *server) sound(within time.Duration) {
	s.t.Helper()
	if first, found := s.settle(within, func(_ check.Finding, found bool) bool { return !found }); found {
		s.t.Fatalf("%s %s %s: %s (%s)", first.ID, first.Status, first.Reason, first.Cause, first.Observed)
	}
}

// unplug takes the cables out of all switches.
func (s *server) unplug() {
	s.t.Helper()
	for _, name := range []string{"port1.100", "switch0.100", "switch0.11", "switch0", "switch1", "switch2"} {
		if l, err := netlink.LinkByName(name); err == nil {
			s.must("delete "+name, netlink.LinkDel(l))
		}
	}
}

// plainSwitch plugs both cables into a switch that speaks no LACP.
func (s *server) plainSwitch() {
	s.t.Helper()
	s.in(s.gateway, func() {
		s.unplug()
		s.must("add switch0", netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "switch0"}}))
		s.must("switch0 up", netlink.LinkSetUp(s.link("switch0")))
		for _, name := range []string{"port1", "port2"} {
			s.must("plug "+name, netlink.LinkSetMaster(s.link(name), s.link("switch0")))
			s.must(name+" up", netlink.LinkSetUp(s.link(name)))
		}
		s.addGateways("switch0")
	})
}

func (s *server) addGateways(on string) {
	s.t.Helper()
	s.addVLAN(on, on+".100", vlanID, "192.0.2.1/28", "203.0.113.1/29")
	s.addVLAN(on, on+".11", 11, "10.0.0.1/24")
}

// switches plugs the cables into switches that speak LACP, each with some ports; the gateways are on each, for the
// bond may choose either. A port of no switch is up and silent.
func (s *server) switches(partners ...[]string) {
	s.t.Helper()
	s.in(s.gateway, func() {
		s.unplug()
		for i, ports := range partners {
			s.partner(fmt.Sprintf("switch%d", i+1), ports)
		}
		for _, name := range []string{"port1", "port2"} {
			s.must(name+" up", netlink.LinkSetUp(s.link(name)))
		}
		for i := range partners {
			s.addGateways(fmt.Sprintf("switch%d", i+1))
		}
	})
}

func (s *server) partner(name string, ports []string) {
	s.t.Helper()
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: name})
	bond.Mode = netlink.BOND_MODE_802_3AD
	bond.Miimon = 50
	bond.LacpRate = netlink.BOND_LACP_RATE_FAST
	s.must("add "+name, netlink.LinkAdd(bond))
	for _, port := range ports {
		s.must(port+" down", netlink.LinkSetDown(s.link(port)))
		s.must("enslave "+port, netlink.LinkSetMaster(s.link(port), s.link(name)))
	}
	s.must(name+" up", netlink.LinkSetUp(s.link(name)))
}

// flush deletes the routes of a table.
func (s *server) flush(table int) {
	s.t.Helper()
	routes, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	s.must("list routes", err)
	for _, r := range slices.Backward(routes) {
		s.must("delete a route", netlink.RouteDel(&r))
	}
}

func readerAt(settings, files string) *netstate.Reader {
	return &netstate.Reader{SysctlRoot: settings, FileRoot: files}
}
