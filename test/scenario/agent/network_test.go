//go:build linux

package agent

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

func TestMain(m *testing.M) { os.Exit(kernel.Main(m, kernel.Programs("ip", "nft"))) }

// network is a node and, at the other end of its cable, the gateway; each in a namespace of its own. The test's thread
// is in the node's namespace.
type network struct {
	t             *testing.T
	node, gateway netns.NsHandle
}

const (
	vlanID     = 100
	nodeVIF    = "bond0.100"
	serviceVIP = "203.0.113.3"
)

func expected() check.Expected {
	return check.Expected{Published: true, Network: contract.NodeNetwork{
		ServerID: "0123456789abcdef01234567", ID: "6104105e6b7c9a0012345678", VLAN: vlanID, Member: true,
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		Blocks: []contract.NetworkBlock{
			{CIDR: netip.MustParsePrefix("192.0.2.0/28"), Gateway: netip.MustParseAddr("192.0.2.1")},
			{CIDR: netip.MustParsePrefix("203.0.113.0/29"), Gateway: netip.MustParseAddr("203.0.113.1")},
		},
		Announcer: contract.AnnouncerKubeVIP,
	}}
}

// newNetwork makes a healthy node: bond0 with one member, bond0.100 with its address, default route by the gateway.
func newNetwork(t *testing.T) *network {
	t.Helper()
	// Namespaces belong to threads. This one is never unlocked, so the runtime ends it with the test.
	runtime.LockOSThread()
	n := &network{t: t}
	var err error
	n.gateway, err = netns.New()
	n.must("new namespace", err)
	t.Cleanup(func() { _ = n.gateway.Close() })
	n.must("loopback up", netlink.LinkSetUp(n.link("lo")))
	n.node, err = netns.New()
	n.must("new namespace", err)
	t.Cleanup(func() { _ = n.node.Close() })
	n.must("loopback up", netlink.LinkSetUp(n.link("lo")))

	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
	bond.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
	bond.Miimon = 50
	n.must("add bond0", netlink.LinkAdd(bond))
	n.must("add a cable", netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eno1"}, PeerName: "port1"}))
	n.must("move its far end", netlink.LinkSetNsFd(n.link("port1"), int(n.gateway)))
	n.must("enslave eno1", netlink.LinkSetMaster(n.link("eno1"), n.link("bond0")))
	n.must("bond0 up", netlink.LinkSetUp(n.link("bond0")))
	n.must("eno1 up", netlink.LinkSetUp(n.link("eno1")))
	n.addVLAN("bond0", nodeVIF, vlanID, "192.0.2.2/28")
	n.must("default route", netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("192.0.2.1")}))
	n.sysctl("net/ipv4/ip_forward", "1")

	n.in(n.gateway, func() {
		n.must("port1 up", netlink.LinkSetUp(n.link("port1")))
		n.addVLAN("port1", "port1.100", vlanID, "192.0.2.1/28", "203.0.113.1/29")
	})
	n.waitForCarrier()
	return n
}

// waitForCarrier waits until the bond has noticed its member.
func (n *network) waitForCarrier() {
	n.t.Helper()
	for deadline := time.Now().Add(limits.Wait); n.link(nodeVIF).Attrs().OperState != netlink.OperUp; {
		if time.Now().After(deadline) {
			n.t.Fatalf("%s has no carrier after %s", nodeVIF, limits.Wait)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (n *network) must(what string, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

// in runs do in another namespace.
func (n *network) in(ns netns.NsHandle, do func()) {
	n.t.Helper()
	n.must("enter the namespace", netns.Set(ns))
	do()
	n.must("return to the node", netns.Set(n.node))
}

func (n *network) link(name string) netlink.Link {
	n.t.Helper()
	l, err := netlink.LinkByName(name)
	n.must("find "+name, err)
	return l
}

func (n *network) addVLAN(parent, name string, id int, addresses ...string) {
	n.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.ParentIndex = n.link(parent).Attrs().Index
	attrs.MTU = 1500
	n.must("add "+name, netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: id,
		VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}))
	n.must(name+" up", netlink.LinkSetUp(n.link(name)))
	for _, a := range addresses {
		n.addAddress(name, a)
	}
}

func (n *network) addAddress(name, address string) {
	n.t.Helper()
	a, err := netlink.ParseAddr(address)
	n.must("parse "+address, err)
	n.must("add "+address, netlink.AddrAdd(n.link(name), a))
}

func (n *network) delAddress(name, address string) {
	n.t.Helper()
	a, err := netlink.ParseAddr(address)
	n.must("parse "+address, err)
	n.must("delete "+address, netlink.AddrDel(n.link(name), a))
}

func (n *network) sysctl(key, value string) {
	n.t.Helper()
	n.must("set "+key, os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0o644))
}

// look takes a real snapshot of the node and judges it.
func (n *network) look(e check.Expected) (check.Snapshot, check.Report) {
	n.t.Helper()
	s, err := sampler.Look(n.t.Context(), netstate.NewReader(), arp.NewProber(), e)
	n.must("diagnose", err)
	return s, check.Evaluate(e, s)
}

// rests checks that a reconciler without work does nothing: the kernel reports no change. A watch calls once at its
// start, because changes before that are not reported.
func (n *network) rests(what string, watch func(context.Context, func()) error) {
	n.t.Helper()
	time.Sleep(time.Second) // what the last disturbance called for is done
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*time.Second)
	defer cancel()
	var changes atomic.Int32
	n.must("watch the "+what, watch(ctx, func() { changes.Add(1) }))
	if calls := changes.Load(); calls != 1 {
		n.t.Errorf("%d calls for changes of the %s in 2 s without a cause, want only the one at the start", calls, what)
	}
}
