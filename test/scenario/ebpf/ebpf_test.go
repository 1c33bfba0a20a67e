//go:build linux

package ebpf

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
)

func TestMain(m *testing.M) { os.Exit(kernel.Main(m)) }

const (
	vlanID      = 100
	publicLink  = "eno1.100" // the VLAN of the public network
	defaultLink = "eno9"     // the network of the default route
	podLink     = "lxc0"
	// patience is how long a client waits for an answer that must come, and attempt for one that must not.
	patience = 30 * time.Second
	attempt  = 5 * time.Second
)

var (
	service = netip.MustParseAddrPort("203.0.113.3:80")
	pod     = netip.MustParseAddrPort("10.244.1.10:8080")
	client  = netip.MustParseAddr("198.51.100.10")
)

func expected() check.Expected {
	return check.Expected{Published: true, Interface: publicLink, Uplink: "eno1",
		PodSources: []netip.Addr{pod.Addr()}, Network: contract.NodeNetwork{
			VLAN: vlanID, Member: true, IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
			Blocks: []contract.NetworkBlock{
				{CIDR: netip.MustParsePrefix("192.0.2.0/28"), Gateway: netip.MustParseAddr("192.0.2.1")},
				{CIDR: netip.MustParsePrefix("203.0.113.0/29"), Gateway: netip.MustParseAddr("203.0.113.1")},
			}}}
}

// node is a server with a pod; the world beyond it drops packets that do not come by the network of their source. The
// test's thread is in the server's namespace.
type node struct {
	t                *testing.T
	server, pod, out netns.NsHandle
}

func newNode(t *testing.T) *node {
	t.Helper()
	// Namespaces belong to threads. This one is never unlocked, so the runtime ends it with the test.
	runtime.LockOSThread()
	n := &node{t: t}
	n.out = n.namespace()
	n.pod = n.namespace()
	n.server = n.namespace()
	n.cable("eno1", "port1", n.out)
	n.cable(defaultLink, "port9", n.out)
	n.cable(podLink, "eth0", n.pod)
	n.vlan("eno1", publicLink, "192.0.2.2/28", "203.0.113.3/32")
	n.address(defaultLink, "10.66.0.2/24")
	n.address(podLink, "10.244.1.1/24")
	n.route("0.0.0.0/0", "10.66.0.1")
	n.sysctl("net/ipv4/ip_forward", "1")
	n.in(n.pod, func() {
		n.address("eth0", "10.244.1.10/24")
		n.route("0.0.0.0/0", "10.244.1.1")
		n.serve()
	})
	n.in(n.out, func() {
		n.vlan("port1", "port1.100", "192.0.2.1/28", "203.0.113.1/29")
		n.address("port9", "10.66.0.1/24")
		n.address("lo", client.String()+"/32")
		// The anti-spoofing of a provider's network (BCP 38).
		for _, link := range []string{"port9", "port1.100"} {
			n.sysctl("net/ipv4/conf/"+link+"/rp_filter", "1")
		}
	})
	return n
}

// serve answers each connection to the pod.
func (n *node) serve() {
	listener, err := net.Listen("tcp4", pod.String())
	n.must("listen in the pod", err)
	n.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, "hello")
			_ = connection.Close()
		}
	}()
}

// answered reports whether a client outside gets an answer from the Service. Each client has a port of its own, so that
// nothing is left of the previous one.
func (n *node) answered(limit time.Duration) bool {
	n.t.Helper()
	answer := ""
	n.in(n.out, func() {
		dialer := net.Dialer{Timeout: limit, LocalAddr: &net.TCPAddr{IP: client.AsSlice()}}
		connection, err := dialer.DialContext(n.t.Context(), "tcp4", service.String())
		if err != nil {
			return
		}
		defer func() { _ = connection.Close() }()
		_ = connection.SetDeadline(time.Now().Add(limit))
		raw, _ := io.ReadAll(connection)
		answer = string(raw)
	})
	return answer == "hello"
}

// ways are how the address of a Service may be translated.
var ways = []struct {
	name string
	do   func(*node)
	// managed is whether clients are answered while the agent manages the return path. Without it, never.
	managed bool
	// seen is whether the agent can see a program that may balance Services.
	seen bool
}{
	{name: "netfilter, as kube-proxy", do: (*node).translateInNetfilter, managed: true},
	{name: "netfilter, Cilium's mark on what comes from pods", managed: true, do: func(n *node) {
		n.translateInNetfilter()
		// MARK_MAGIC_IDENTITY, with an identity above and of a cluster below.
		n.attach(podLink, "cil_from_container-lxc0", netlink.HANDLE_MIN_INGRESS, mark(0x12340f07))
	}},
	// The kernel drops what comes from a pod with an address of the node (accept_local is 0).
	{name: "eBPF, translated back at the pod", managed: false, seen: true, do: func(n *node) {
		n.translateAtVLAN()
		n.attach(podLink, "cil_from_container-lxc0", netlink.HANDLE_MIN_INGRESS, back)
	}},
	{name: "eBPF, translated back at the pod, and routed there", managed: true, seen: true, do: func(n *node) {
		n.translateAtVLAN()
		n.attach(podLink, "cil_from_container-lxc0", netlink.HANDLE_MIN_INGRESS, back, n.routeReplies(podLink))
	}},
	{name: "eBPF, translated back where it leaves", managed: false, seen: true, do: func(n *node) {
		n.translateAtVLAN()
		n.attach(defaultLink, "cil_to_netdev-eno9", netlink.HANDLE_MIN_EGRESS, back)
	}},
	{name: "eBPF, translated back where it leaves, and routed again", managed: true, seen: true, do: func(n *node) {
		n.translateAtVLAN()
		n.attach(defaultLink, "cil_to_netdev-eno9", netlink.HANDLE_MIN_EGRESS, back, n.routeReplies(defaultLink))
	}},
}

// routeReplies routes replies to the client on a link by the address of the Service.
func (n *node) routeReplies(link string) asm.Instructions {
	return routeAgain(n.link(link).Attrs().Index, service.Addr(), client)
}

// back translates replies.
var back = translation{address: sourceIP, port: sourcePort, from: pod, to: service}.instructions()

// translateAtVLAN translates requests as they come in, and hands them to the pod past netfilter.
func (n *node) translateAtVLAN() {
	n.attach(publicLink, "cil_from_netdev-"+publicLink, netlink.HANDLE_MIN_INGRESS,
		translation{address: targetIP, port: targetPort, from: service, to: pod}.instructions(),
		redirect(n.link(podLink).Attrs().Index))
}

func (n *node) translateInNetfilter() {
	conn, err := nftables.New()
	n.must("nftables", err)
	table := conn.AddTable(&nftables.Table{Name: "proxy", Family: nftables.TableFamilyIPv4})
	chain := conn.AddChain(&nftables.Chain{Name: "services", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Cmp{Register: 1, Data: service.Addr().AsSlice()},
		&expr.Immediate{Register: 1, Data: pod.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: []byte{byte(pod.Port() >> 8), byte(pod.Port())}},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 3},
		&expr.Cmp{Register: 3, Data: []byte{unix.IPPROTO_TCP}},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
	}})
	n.must("translate in netfilter", conn.Flush())
}

// TestReplies asks a Service that is translated in each way, with and without a managed return path.
func TestReplies(t *testing.T) {
	n := newNode(t)
	reconciler := returnpath.New(returnpath.Config{
		Expected: func() []check.Expected { return []check.Expected{expected()} }})
	fmt.Fprintf(t.Output(), "%-56s %-12s %s\n", "translated by", "unmanaged", "managed")
	served := 0
	for _, w := range ways {
		w.do(n)
		unmanaged := n.answered(attempt)
		n.must("manage the return path", reconciler.Reconcile(t.Context()))
		limit := attempt
		if w.managed {
			limit = patience
		}
		managed := n.answered(limit)
		fmt.Fprintf(t.Output(), "%-56s %-12s %s\n", w.name, word(unmanaged), word(managed))
		if unmanaged || managed != w.managed {
			t.Errorf("%s: answered %t without the agent and %t with it, want false and %t", w.name, unmanaged, managed,
				w.managed)
		}
		if managed {
			served++
		}
		n.judged(w.name, w.seen)
		n.must("clean up", reconciler.Cleanup(t.Context()))
		n.detach(publicLink, defaultLink, podLink)
		n.flush()
	}
	fmt.Fprintf(t.Output(), "figure ebpf_ways_tried %d ways\nfigure ebpf_ways_answered %d ways\n", len(ways), served)
}

func word(answered bool) string {
	if answered {
		return "answered"
	}
	return "no answer"
}

// judged compares what the agent reports of the managed return path.
func (n *node) judged(way string, seen bool) {
	n.t.Helper()
	s, err := sampler.Look(n.t.Context(), netstate.NewReader(), arp.NewProber(), expected())
	n.must("diagnose", err)
	report := check.Evaluate(expected(), s)
	verifiable := check.OK
	replies := check.OK
	if seen {
		verifiable = check.Warn
		replies = check.Skip
	}
	if f := report.Finding(check.Verifiable); f.Status != verifiable ||
		seen && !strings.Contains(f.Observed, "cil_from_netdev-"+publicLink) {
		n.t.Errorf("%s: %s is %s: %s%s, %s", way, f.ID, f.Status, f.Cause, f.Because, f.Observed)
	}
	if f := report.Finding(check.ServiceReplies); f.Status != replies {
		n.t.Errorf("%s: %s is %s: %s%s", way, f.ID, f.Status, f.Cause, f.Because)
	}
}

// flush removes the translation in netfilter.
func (n *node) flush() {
	conn, err := nftables.New()
	n.must("nftables", err)
	tables, err := conn.ListTables()
	n.must("list tables", err)
	if slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == "proxy" }) {
		conn.DelTable(&nftables.Table{Name: "proxy", Family: nftables.TableFamilyIPv4})
		n.must("delete the translation", conn.Flush())
	}
}

func (n *node) must(what string, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

// namespace makes a network namespace and enters it.
func (n *node) namespace() netns.NsHandle {
	n.t.Helper()
	handle, err := netns.New()
	n.must("new namespace", err)
	n.t.Cleanup(func() { _ = handle.Close() })
	n.must("loopback up", netlink.LinkSetUp(n.link("lo")))
	return handle
}

// in runs do in another namespace.
func (n *node) in(ns netns.NsHandle, do func()) {
	n.t.Helper()
	n.must("enter the namespace", netns.Set(ns))
	do()
	n.must("return to the server", netns.Set(n.server))
}

// cable connects the server with another namespace.
func (n *node) cable(here, there string, ns netns.NsHandle) {
	n.t.Helper()
	n.must("add "+here, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: here}, PeerName: there}))
	n.must("move "+there, netlink.LinkSetNsFd(n.link(there), int(ns)))
	n.must(here+" up", netlink.LinkSetUp(n.link(here)))
	n.in(ns, func() { n.must(there+" up", netlink.LinkSetUp(n.link(there))) })
}

func (n *node) vlan(parent, name string, addresses ...string) {
	n.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.ParentIndex = n.link(parent).Attrs().Index
	n.must("add "+name, netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: vlanID,
		VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}))
	n.must(name+" up", netlink.LinkSetUp(n.link(name)))
	for _, a := range addresses {
		n.address(name, a)
	}
}

func (n *node) address(link, address string) {
	n.t.Helper()
	a, err := netlink.ParseAddr(address)
	n.must("parse "+address, err)
	n.must("add "+address, netlink.AddrAdd(n.link(link), a))
}

func (n *node) route(destination, gateway string) {
	n.t.Helper()
	_, d, err := net.ParseCIDR(destination)
	n.must("parse "+destination, err)
	n.must("add a route", netlink.RouteAdd(&netlink.Route{Dst: d, Gw: net.ParseIP(gateway)}))
}

func (n *node) link(name string) netlink.Link {
	n.t.Helper()
	l, err := netlink.LinkByName(name)
	n.must("find "+name, err)
	return l
}

func (n *node) sysctl(key, value string) {
	n.t.Helper()
	n.must("set "+key, os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0o644))
}
