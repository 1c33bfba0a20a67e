//go:build linux

package returnpath

import (
	"net"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// TestRuleOf: whatever a rule has beyond those of the agent makes it another one.
func TestRuleOf(t *testing.T) {
	number := uint(7)
	for name, edit := range map[string]func(*netlink.Rule){
		"destination":      func(r *netlink.Rule) { r.Dst = netOf(blocks[0].CIDR) },
		"input":            func(r *netlink.Rule) { r.IifName = "lo" },
		"output":           func(r *netlink.Rule) { r.OifName = "lo" },
		"type of service":  func(r *netlink.Rule) { r.Tos = 8 },
		"inverted":         func(r *netlink.Rule) { r.Invert = true },
		"tunnel":           func(r *netlink.Rule) { r.TunID = number },
		"goto":             func(r *netlink.Rule) { r.Goto = 100 },
		"destination port": func(r *netlink.Rule) { r.Dport = netlink.NewRulePortRange(80, 80) },
		"source port":      func(r *netlink.Rule) { r.Sport = netlink.NewRulePortRange(80, 80) },
		"protocol":         func(r *netlink.Rule) { r.IPProto = unix.IPPROTO_TCP },
		"user":             func(r *netlink.Rule) { r.UIDRange = netlink.NewRuleUIDRange(0, 0) },
		"flow":             func(r *netlink.Rule) { r.Flow = 0 },
		"interface group":  func(r *netlink.Rule) { r.SuppressIfgroup = 0 },
		"prefix length":    func(r *netlink.Rule) { r.SuppressPrefixlen = 8 },
	} {
		r := *netlink.NewRule()
		r.Src = netOf(blocks[0].CIDR)
		if ruleOf(r).hasExtras {
			t.Fatal("a rule by source is taken for another one")
		}
		if edit(&r); !ruleOf(r).hasExtras {
			t.Errorf("%s: a rule with it is taken for one of the agent's kind", name)
		}
	}
}

// TestRouteOf likewise.
func TestRouteOf(t *testing.T) {
	for name, edit := range map[string]func(*netlink.Route){
		"type":            func(r *netlink.Route) { r.Type = unix.RTN_BLACKHOLE },
		"several ways":    func(r *netlink.Route) { r.MultiPath = []*netlink.NexthopInfo{{}} },
		"type of service": func(r *netlink.Route) { r.Tos = 8 },
		"source":          func(r *netlink.Route) { r.Src = net.IPv4(192, 0, 2, 2) },
		"encapsulation":   func(r *netlink.Route) { r.Encap = &netlink.MPLSEncap{} },
		"IPv6 gateway":    func(r *netlink.Route) { r.Via = &netlink.Via{} },
	} {
		r := netlink.Route{Type: unix.RTN_UNICAST, Gw: net.IPv4(192, 0, 2, 1)}
		if ruled := routeOf(r); ruled.hasExtras || ruled.destination.Bits() != 0 || ruled.gateway != blocks[0].Gateway {
			t.Fatalf("a default route is read as %+v", ruled)
		}
		if edit(&r); !routeOf(r).hasExtras {
			t.Errorf("%s: a route with it is taken for one of the agent's kind", name)
		}
	}
}

// TestTakeRoutes: of the main table, only the links of default routes matter.
func TestTakeRoutes(t *testing.T) {
	var o observed
	o.takeRoutes([]netlink.Route{{Table: check.TableMain, LinkIndex: 4}, {Table: 1056, LinkIndex: 5},
		{Table: check.TableMain, MultiPath: []*netlink.NexthopInfo{{LinkIndex: 6}, {LinkIndex: 7}}}})
	if len(o.routes) != 1 || o.routes[0].link != 5 || !slices.Equal(o.defaults, []int{4, 0, 6, 7}) {
		t.Errorf("routes %+v, default routes by %v", o.routes, o.defaults)
	}
}

// TestFind: the interface is the named one, else one of the VLAN above an uplink, the first by name.
func TestFind(t *testing.T) {
	const lo = 1 // in every namespace, and readable by everyone
	vlan := func(name string, parent, id int) netstate.Link {
		return netstate.Link{Link: check.Link{Index: lo, Name: name, Parent: parent, VLAN: &check.VLAN{ID: id}}}
	}
	below := func(name string, index, master int) netstate.Link {
		return netstate.Link{Link: check.Link{Index: index, Name: name, Master: master}}
	}
	links := []netstate.Link{below("bond0", 10, 0), below("eno1", 11, 10), below("eno9", 12, 0), vlan("a", 11, 100),
		vlan("c", 10, 100), vlan("b", 10, 100), vlan("d", 12, 100), vlan("e", 10, 7)}
	for name, tc := range map[string]struct {
		e    check.Expected
		want string
	}{
		"first by name, not on a member": {check.Expected{}, "b"},
		"on the uplink":                  {check.Expected{Uplink: "eno9"}, "d"},
		"named":                          {check.Expected{Interface: "e"}, "e"},
		"no VLAN interface":              {check.Expected{Interface: "bond0.9"}, ""},
		"on no such uplink":              {check.Expected{Uplink: "bond9"}, ""},
	} {
		tc.e.Network.VLAN = 100
		got, err := machine{}.find(links, tc.e)
		if err != nil {
			t.Fatal(err)
		}
		if tc.want == "" && got != nil || tc.want != "" && (got == nil || got.name != tc.want) {
			t.Errorf("%s: %+v, want %q", name, got, tc.want)
		}
	}
}

// TestUnreadableChainIsAnError: only the kernel's word that there is no chain means that there is none.
func TestUnreadableChainIsAnError(t *testing.T) {
	conn, err := nftables.New(nftables.WithNetNSFd(1 << 20)) // no file
	if err != nil {
		t.Fatal(err)
	}
	if lines, err := readChain(conn, &nftables.Table{Name: nftTable}, "replied"); err == nil {
		t.Errorf("read %q without a kernel", lines)
	}
}

// TestRepliedOncePerMark: blocks that share a mark share the statement that restores it.
func TestRepliedOncePerMark(t *testing.T) {
	gateways := []gateway{{mark: 0x1000}, {mark: 0x2000}, {mark: 0x1000}, {mark: 0x2000}}
	if got := replied(gateways, 0x3000); len(got) != 2 {
		t.Errorf("%d statements for two marks: %v", len(got), got)
	}
}
