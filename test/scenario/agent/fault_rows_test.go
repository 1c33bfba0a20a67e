//go:build linux

package agent

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

func addressFaults() []fault {
	remake := (*server).remakeVLAN
	move := func(to string) func(*server) {
		return func(s *server) {
			s.delAddress(nodeVIF, "192.0.2.2/28")
			s.addAddress(nodeVIF, to)
			s.routes()
		}
	}
	return []fault{
		{"address deleted", func(s *server) { s.delAddress(nodeVIF, "192.0.2.2/28") }, remake, check.NodeAddress,
			check.Fail, "AddressMissing"},
		{"address on the private VLAN", func(s *server) {
			s.delAddress(nodeVIF, "192.0.2.2/28")
			s.addAddress(privateVIF, "192.0.2.2/32")
		}, func(s *server) {
			s.delAddress(privateVIF, "192.0.2.2/32")
			s.remakeVLAN()
		}, check.NodeAddress, check.Fail, "AddressOnWrongInterface"},
		{"address without a subnet", func(s *server) {
			s.delAddress(nodeVIF, "192.0.2.2/28")
			s.addAddress(nodeVIF, "192.0.2.2/32")
		}, remake, check.NodeAddress, check.Fail, "WrongPrefixLength"},
		{"address of a smaller subnet", move("192.0.2.2/29"), remake, check.NodeAddress, check.Warn,
			"WrongPrefixLength"},
		{"address that is not registered", move("192.0.2.9/28"), remake, check.NodeAddress, check.Warn,
			"AddressNotRegistered"},
		{"block on the pods' bridge, too", func(s *server) { s.addAddress(pods, "192.0.2.9/28") },
			func(s *server) { s.delAddress(pods, "192.0.2.9/28") },
			check.BlocksHere, check.Warn, "BlockOnOtherInterface"},
		{"block taken by the pods' bridge", func(s *server) { s.addAddress(pods, "192.0.2.3/29") },
			func(s *server) { s.delAddress(pods, "192.0.2.3/29") },
			check.BlocksHere, check.Fail, "GatewayRoutedElsewhere"},
		{"block taken by a route", func(s *server) {
			s.route(netlink.RouteAdd, "192.0.2.0/29",
				netlink.Route{LinkIndex: s.link(privateVIF).Attrs().Index, Scope: netlink.SCOPE_LINK})
		}, func(s *server) {
			s.route(netlink.RouteDel, "192.0.2.0/29",
				netlink.Route{LinkIndex: s.link(privateVIF).Attrs().Index, Scope: netlink.SCOPE_LINK})
		}, check.BlocksHere, check.Fail, "GatewayRoutedElsewhere"},
		{"gateway refused by a route", func(s *server) {
			s.route(netlink.RouteAdd, "192.0.2.1/32",
				netlink.Route{Type: unix.RTN_UNREACHABLE})
		},
			func(s *server) { s.route(netlink.RouteDel, "192.0.2.1/32", netlink.Route{Type: unix.RTN_UNREACHABLE}) },
			check.BlocksHere, check.Fail, "GatewayUnroutable"},
	}
}

// wireFaults are at the other end of the cable.
func wireFaults() []fault {
	at := func(do func(s *server)) func(*server) { return func(s *server) { s.in(s.gateway, func() { do(s) }) } }
	add := func(address string) func(*server) { return at(func(s *server) { s.addAddress(gatewayVIF, address) }) }
	del := func(address string) func(*server) { return at(func(s *server) { s.delAddress(gatewayVIF, address) }) }
	var other netns.NsHandle
	delay := func(s *server) netlink.Qdisc {
		return netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: s.link(gatewayVIF).Attrs().Index,
			Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			netlink.NetemQdiscAttrs{Latency: 120_000})
	}
	return []fault{
		{"address used twice", add("192.0.2.2/32"), del("192.0.2.2/32"), check.NoDuplicate, check.Fail, "AddressInUse"},
		{"gateway gone", del("192.0.2.1/28"), add("192.0.2.1/28"), check.GatewayAnswers, check.Fail, "GatewaySilent"},
		{"gateway of another block gone", del("203.0.113.1/29"), add("203.0.113.1/29"), check.GatewayAnswers,
			check.Warn, "GatewaySilent"},
		{"VLAN not on the switch port", at(func(s *server) { s.must("down", netlink.LinkSetDown(s.link(gatewayVIF))) }),
			at(func(s *server) { s.must("up", netlink.LinkSetUp(s.link(gatewayVIF))) }), check.GatewayAnswers,
			check.Fail, "GatewaySilent"},
		{"gateway's address on another machine", func(s *server) { other = s.secondGateway() }, func(s *server) {
			s.must("end the other machine", other.Close())
			s.in(s.gateway, func() {
				if l, err := netlink.LinkByName("other0"); err == nil {
					s.must("delete other0", netlink.LinkDel(l))
				}
			})
		}, check.GatewayUnique, check.Warn, "GatewayAnsweredTwice"},
		{"gateway's address on this node", func(s *server) { s.addAddress("lo", "203.0.113.1/32") },
			func(s *server) { s.delAddress("lo", "203.0.113.1/32") },
			check.GatewayUnique, check.Fail, "GatewayHeldHere"},
		{"gateway pinned to another machine", func(s *server) { s.must("pin", netlink.NeighSet(s.pin())) },
			func(s *server) { s.must("forget", netlink.NeighDel(s.pin())) },
			check.GatewayUnique, check.Fail, "GatewayPinned"},
		{"gateway slow", at(func(s *server) { s.must("delay", netlink.QdiscAdd(delay(s))) }),
			at(func(s *server) { s.must("no delay", netlink.QdiscDel(delay(s))) }), check.GatewayLatency, check.Warn,
			"GatewaySlow"},
	}
}

// pin is a permanent entry of the neighbour table for the gateway.
func (s *server) pin() *netlink.Neigh {
	s.t.Helper()
	return &netlink.Neigh{LinkIndex: s.link(nodeVIF).Attrs().Index, Family: netlink.FAMILY_V4,
		State: netlink.NUD_PERMANENT,
		IP:    net.ParseIP("192.0.2.1"), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0x66}}
}

// secondGateway puts another machine with the gateway's address on the VLAN.
func (s *server) secondGateway() netns.NsHandle {
	s.t.Helper()
	other, err := netns.New()
	s.must("new namespace", err)
	s.in(s.gateway, func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "other0"
		attrs.ParentIndex = s.link(gatewayVIF).Attrs().Index
		s.must("add other0", netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}))
		s.must("move other0", netlink.LinkSetNsFd(s.link("other0"), int(other)))
	})
	s.in(other, func() {
		s.must("other0 up", netlink.LinkSetUp(s.link("other0")))
		s.addAddress("other0", "192.0.2.1/28")
	})
	return other
}

func kernelFaults() []fault {
	setting := func(name, key, bad, good string, id check.ID, status check.Status, reason string) fault {
		return fault{name, func(s *server) { s.conf(key, bad) }, func(s *server) { s.conf(key, good) }, id, status,
			reason}
	}
	return []fault{
		setting("strict reverse path", "rp_filter", "1", "2", check.ReversePath, check.Fail, "StrictReversePath"),
		{"no route to clients", func(s *server) {
			s.must("no default route", netlink.RouteDel(&netlink.Route{Gw: net.ParseIP("10.0.0.1")}))
		}, (*server).routes, check.ReversePath, check.Fail, "NoRouteToClients"},
		{"ARP off", func(s *server) { s.must("off", netlink.LinkSetARPOff(s.link(nodeVIF))) },
			func(s *server) { s.must("on", netlink.LinkSetARPOn(s.link(nodeVIF))) },
			check.ARPAnswering, check.Fail, "ARPOff"},
		setting("ARP ignored", "arp_ignore", "8", "0", check.ARPAnswering, check.Fail, "ARPIgnored"),
		setting("ARP restricted", "arp_ignore", "2", "0", check.ARPAnswering, check.Warn, "ARPRestricted"),
		setting("ARP filtered", "arp_filter", "1", "0", check.ARPAnswering, check.Warn, "ARPFiltered"),
		{"sender borrowed", func(s *server) {
			s.delAddress(nodeVIF, "192.0.2.2/28")
			s.expected.Network.IPs = nil
			s.expected.Network.Blocks = nil
		}, func(s *server) {
			s.expect()
			s.remakeVLAN()
		}, check.ARPSource, check.Warn, "ARPSourceForeign"},
		{"IPVS without strict ARP", func(s *server) {
			s.must("add kube-ipvs0", netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "kube-ipvs0"}}))
		}, func(s *server) { s.must("delete kube-ipvs0", netlink.LinkDel(s.link("kube-ipvs0"))) }, check.StrictARP,
			check.Fail, "StrictARPMissing"},
		{"forwarding off", func(s *server) { s.sysctl("net/ipv4/ip_forward", "0") },
			func(s *server) { s.sysctl("net/ipv4/ip_forward", "1") },
			check.Forwarding, check.Fail, "ForwardingOff"},
		setting("forwarding off on the interface", "forwarding", "0", "1", check.Forwarding, check.Fail,
			"ForwardingOffHere"),
		setting("proxy ARP", "proxy_arp", "1", "0", check.ProxyARP, check.Warn, "ProxyARP"),
		setting("own packets let in", "accept_local", "1", "0", check.RiskySettings, check.Warn, "AcceptLocal"),
		{"secondaries are not kept", func(s *server) { s.addAddress(nodeVIF, "192.0.2.5/28") },
			func(s *server) { s.delAddress(nodeVIF, "192.0.2.5/28") }, check.RiskySettings, check.Warn,
			"SecondariesLost"},
	}
}

func routeFaults() []fault {
	foreign := byMark()
	foreign.Priority = 900
	foreign.Table = unix.RT_TABLE_MAIN
	rule := func(do func(*netlink.Rule) error, r *netlink.Rule) func(*server) {
		return func(s *server) { s.must("change a rule", do(r)) }
	}
	return []fault{
		{"no rule by source", rule(netlink.RuleDel, bySource()), rule(netlink.RuleAdd, bySource()), check.ReturnPath,
			check.Warn, "ReturnPathElsewhere"},
		{"no rule by mark", rule(netlink.RuleDel, byMark()), rule(netlink.RuleAdd, byMark()), check.ServiceReplies,
			check.Warn, "ServiceRepliesElsewhere"},
		{"table lost", func(s *server) { s.flush(ownTable) }, (*server).routes, check.RoutingTables, check.Warn,
			"TableEmpty"},
		{"table lost by an interface that went down and up", func(s *server) {
			s.must("down", netlink.LinkSetDown(s.link(nodeVIF)))
			s.must("up", netlink.LinkSetUp(s.link(nodeVIF)))
		}, (*server).routes, check.RoutingTables, check.Warn, "TableEmpty"},
		{"table without a default route", func(s *server) {
			s.flush(ownTable)
			s.route(netlink.RouteAdd, "192.0.2.0/28",
				netlink.Route{LinkIndex: s.link(nodeVIF).Attrs().Index, Scope: netlink.SCOPE_LINK, Table: ownTable})
		}, func(s *server) {
			s.flush(ownTable)
			s.routes()
		}, check.RoutingTables, check.Warn, "TableWithoutDefault"},
		{"half of the Internet elsewhere", func(s *server) {
			s.route(netlink.RouteAdd, "0.0.0.0/1", netlink.Route{Gw: net.ParseIP("10.0.0.1"), Table: ownTable})
		}, func(s *server) {
			s.route(netlink.RouteDel, "0.0.0.0/1", netlink.Route{Gw: net.ParseIP("10.0.0.1"), Table: ownTable})
		}, check.ReturnPath, check.Warn, "ReturnPathElsewhere"},
		{"mark bits of another program", func(s *server) {
			s.expected.Mask = ownMark
			s.must("add a rule", netlink.RuleAdd(foreign))
		}, func(s *server) {
			s.expect()
			s.must("delete a rule", netlink.RuleDel(foreign))
		}, check.MarkBits, check.Warn, "MarkClash"},
	}
}

func identityFaults(t *testing.T) []fault {
	root := t.TempDir()
	instance := filepath.Join(root, "var/lib/cloud/data/instance-id")
	if err := os.MkdirAll(filepath.Dir(instance), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(instance, []byte("ffffffffffffffffffffffff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []fault{
		{"another server", func(s *server) { s.reader = readerAt("/proc/sys", root) },
			func(s *server) { s.reader = readerAt("/proc/sys", "/") },
			check.Identity, check.Fail, "OtherServer"},
		{"another machine", func(s *server) {
			s.delAddress(privateVIF, "10.0.0.11/24")
			s.addAddress(privateVIF, "10.0.0.99/24")
		}, func(s *server) {
			s.delAddress(privateVIF, "10.0.0.99/24")
			s.addAddress(privateVIF, "10.0.0.11/24")
			s.routes()
		}, check.Identity, check.Fail, "OtherMachine"},
		{"settings that cannot be read", func(s *server) { s.reader = readerAt(filepath.Join(root, "sys"), "/") },
			func(s *server) { s.reader = readerAt("/proc/sys", "/") },
			check.ReversePath, check.Unknown, "SettingsUnreadable"},
		{"not a member", func(s *server) { s.expected.Network.Member = false }, (*server).expect, check.Membership,
			check.Fail, "NotAMember"},
		{"address that the Node does not have", func(s *server) {
			s.expected.NodeAddresses = []netip.Addr{netip.MustParseAddr("10.0.0.12")}
		}, (*server).expect,
			check.Identity, check.Fail, "OtherMachine"},
	}
}
