//go:build linux

// Package vlan proves that kernel.Main keeps its promise, with the smallest network that needs it: two hosts with a
// VLAN link each, on a bridge that filters VLANs.
package vlan

import (
	"bytes"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

func TestMain(m *testing.M) { os.Exit(kernel.Main(m)) }

// etherType is one that no protocol of the kernel uses (IEEE 802, local experimental).
const etherType = 0x88b5

func TestFramesCrossTheBridgeOnlyOnAnOpenVLAN(t *testing.T) {
	// Namespaces belong to threads. This one is never unlocked, so that the runtime ends it with the test.
	runtime.LockOSThread()
	bridge := newBridge(t)
	sender := bridge.host(t, "h1", 100)
	receiver := bridge.host(t, "h2", 100)
	if got := exchange(t, sender, receiver, "open", limits.Wait); !bytes.HasPrefix(got, []byte("open")) {
		t.Errorf("received %q through an open VLAN, want what was sent", got)
	}
	check(t, "close the VLAN on a port", netlink.BridgeVlanDel(bridge.port(t, "h2"), 100, false, false, false, true))
	if got := exchange(t, sender, receiver, "closed", time.Second); got != nil {
		t.Errorf("received %q through a closed VLAN", got)
	}
}

func TestFilesOfThePackageAreThere(t *testing.T) {
	data, err := os.ReadFile("testdata/note.txt")
	if err != nil || len(data) == 0 {
		t.Errorf("read testdata: %q, %v", data, err)
	}
}

// TestOnDemand fails on request, so that a test outside can see a failure come through.
func TestOnDemand(t *testing.T) {
	if reason := os.Getenv("PNAP_TEST_FAILURE"); reason != "" {
		t.Fatal(reason)
	}
}

// bridge is a VLAN-filtering bridge in the namespace of the calling thread.
type bridge struct {
	link netlink.Link
	ns   netns.NsHandle
}

func newBridge(t *testing.T) bridge {
	t.Helper()
	ns, err := netns.New()
	check(t, "new namespace", err)
	t.Cleanup(func() { _ = ns.Close() })
	filtering := true
	check(t, "add a bridge", netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"},
		VlanFiltering: &filtering}))
	link, err := netlink.LinkByName("br0")
	check(t, "find the bridge", err)
	check(t, "set the bridge up", netlink.LinkSetUp(link))
	return bridge{link: link, ns: ns}
}

func (b bridge) port(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	check(t, "find port "+name, err)
	return link
}

// host makes a namespace with a VLAN link on a new port and returns a packet socket on that link.
func (b bridge) host(t *testing.T, name string, vlan int) *packet.Conn {
	t.Helper()
	ns, err := netns.New()
	check(t, "new namespace", err)
	defer func() { check(t, "return to the bridge", netns.Set(b.ns)) }()
	defer func() { _ = ns.Close() }()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: name, PeerNamespace: netlink.NsFd(b.ns)}
	check(t, "add a pair", netlink.LinkAdd(pair))
	check(t, "set eth0 up", netlink.LinkSetUp(pair))
	tagged := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "tagged", ParentIndex: pair.Index}, VlanId: vlan}
	check(t, "add a VLAN link", netlink.LinkAdd(tagged))
	check(t, "set the VLAN link up", netlink.LinkSetUp(tagged))
	b.connect(t, name, vlan)
	ifi, err := net.InterfaceByName("tagged")
	check(t, "find the VLAN link", err)
	conn, err := packet.Listen(ifi, packet.Raw, etherType, nil)
	check(t, "listen on the VLAN link", err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// connect enslaves a port and opens the VLAN on it.
func (b bridge) connect(t *testing.T, name string, vlan int) {
	t.Helper()
	h, err := netlink.NewHandleAt(b.ns, unix.NETLINK_ROUTE) // without the family it fails where XFRM is missing
	check(t, "handle", err)
	defer h.Close()
	link, err := h.LinkByName(name)
	check(t, "find the port", err)
	check(t, "enslave the port", h.LinkSetMaster(link, b.link))
	check(t, "set the port up", h.LinkSetUp(link))
	check(t, "open the VLAN", h.BridgeVlanAdd(link, uint16(vlan), false, false, false, true))
}

// exchange sends a broadcast and returns what arrives in a time at the other host; nil when nothing does.
func exchange(t *testing.T, from, to *packet.Conn, text string, within time.Duration) []byte {
	t.Helper()
	frame := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 1, etherType>>8, etherType&0xff)
	frame = append(frame, text...)
	_, err := from.WriteTo(frame, &packet.Addr{HardwareAddr: net.HardwareAddr(frame[:6])})
	check(t, "send", err)
	check(t, "deadline", to.SetReadDeadline(time.Now().Add(within)))
	buffer := make([]byte, 1500)
	n, _, err := to.ReadFrom(buffer)
	if err != nil {
		return nil
	}
	return buffer[14:n]
}

func check(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
