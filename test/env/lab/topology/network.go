//go:build linux

// Package topology builds the lab's network out of namespaces: servers on a switch that filters VLANs, a gateway for
// every assigned block, and a client beyond it.
package topology

import (
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// Network is the whole of it. Its methods may be called at the same time.
type Network struct {
	// Uplink is wire.Topology.Uplink.
	Uplink string

	setup   wire.Setup
	watch   Watch
	mu      sync.Mutex
	hosts   map[string]*space.Space
	servers map[string]*server // by name
	bridge  netlink.Link
	have    plan
	watches map[int]func() // VLAN → ends the watch on the gateway's interface
}

// Watch observes an interface of the gateway from the moment it exists; the function returned ends that.
type Watch func(host *space.Space, vlan int, link netlink.Link) (stop func(), err error)

// New returns a network that is to be built.
func New(watch Watch) *Network {
	return &Network{
		watch: watch, hosts: map[string]*space.Space{}, servers: map[string]*server{}, watches: map[int]func(){},
	}
}

// Build makes the network; nothing is open on it but the private VLAN.
func (n *Network) Build(setup wire.Setup) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.setup = setup
	for _, step := range []func() error{n.buildSwitch, n.buildGateway, n.buildClient, n.buildManagement,
		n.buildServers} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Host finds a host by name.
func (n *Network) Host(name string) (*space.Space, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h, ok := n.hosts[name]; ok {
		return h, nil
	}
	return nil, fmt.Errorf("the lab has no host %q", name)
}

// Close removes everything.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, stop := range n.watches {
		stop()
	}
	for _, h := range n.hosts {
		h.Close()
	}
}

// open makes a host.
func (n *Network) open(name string) (*space.Space, error) {
	h, err := space.Open(name)
	if err == nil {
		n.hosts[name] = h
	}
	return h, err
}

// buildSwitch makes the bridge. It has no default VLAN: what is not opened on a port does not pass it.
func (n *Network) buildSwitch() error {
	h, err := n.open(wire.Switch)
	if err != nil {
		return err
	}
	filtering := true
	noDefault := uint16(0)
	snooping := false
	bridge := &netlink.Bridge{
		LinkAttrs: netlink.LinkAttrs{Name: "br0"}, VlanFiltering: &filtering, VlanDefaultPVID: &noDefault,
		MulticastSnooping: &snooping,
	}
	if err := h.Net.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make the switch: %w", err)
	}
	n.bridge = bridge
	return h.Up(bridge)
}

// buildGateway makes the router. The client's side is up from the start; VLANs come with the data plane.
func (n *Network) buildGateway() error {
	h, err := n.open(wire.Gateway)
	if err != nil {
		return err
	}
	if err := n.cable(h, "eth0", "p-gateway", gatewayMAC); err != nil {
		return err
	}
	// Strict, so that every interface that comes later only takes packets whose source is reached through it: the
	// anti-spoofing of the provider's routers.
	return h.Sysctls(map[string]string{
		"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "1", "ipv4/conf/default/rp_filter": "1",
	})
}

// buildClient makes a host beyond the gateway.
func (n *Network) buildClient() error {
	h, err := n.open(wire.Client)
	if err != nil {
		return err
	}
	gateway := n.hosts[wire.Gateway]
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "wan0",
		PeerNamespace: netlink.NsFd(gateway.Fd())}
	if err := h.Net.LinkAdd(pair); err != nil {
		return fmt.Errorf("connect client and gateway: %w", err)
	}
	router := nth(wire.ClientNet, 1)
	if err := gateway.Address("wan0", router); err != nil {
		return err
	}
	if err := h.Address("eth0", nth(wire.ClientNet, 10)); err != nil {
		return err
	}
	if err := h.DefaultRoute(pair, router.Addr()); err != nil || !n.setup.ClientPrivate.IsValid() {
		return err
	}
	return n.joinPrivate(h, "eth1", clientMAC, n.setup.ClientPrivate)
}

// buildManagement makes the host through which servers and their pods reach the caller's services: a port of the
// private VLAN only.
func (n *Network) buildManagement() error {
	h, err := n.open(wire.Management)
	if err != nil {
		return err
	}
	if err := n.joinPrivate(h, "eth0", managementMAC, wire.ManagementAddress); err != nil {
		return err
	}
	link, err := h.Net.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("host %s: find the private network: %w", h.Name, err)
	}
	return n.routeToPods(h, link)
}

// joinPrivate gives a host an address on the private network, behind a port of its own.
func (n *Network) joinPrivate(h *space.Space, link string, mac net.HardwareAddr, address netip.Prefix) error {
	port := "p-" + h.Name
	if err := n.cable(h, link, port, mac); err != nil {
		return err
	}
	if err := n.vlan(port, wire.PrivateVLAN, access, true); err != nil {
		return err
	}
	return h.Address(link, address)
}

// Hardware addresses are locally administered and identify each machine in a trace.
var (
	gatewayMAC    = net.HardwareAddr{0x02, 0x50, 0x4e, 0, 0, 0x01}
	managementMAC = net.HardwareAddr{0x02, 0x50, 0x4e, 0, 0, 0x02}
	clientMAC     = net.HardwareAddr{0x02, 0x50, 0x4e, 0, 0, 0x03}
)

func serverMAC(index int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x50, 0x4e, 0x01, byte(index >> 8), byte(index)}
}

// cable connects a new interface of a host with a new port of the switch.
func (n *Network) cable(h *space.Space, link, port string, mac net.HardwareAddr) error {
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: link, HardwareAddr: mac}, PeerName: port,
		PeerNamespace: netlink.NsFd(n.hosts[wire.Switch].Fd()),
	}
	if err := h.Net.LinkAdd(pair); err != nil {
		return fmt.Errorf("connect %s to the switch: %w", h.Name, err)
	}
	return n.plug(h, pair, port)
}

func (n *Network) plug(h *space.Space, uplink netlink.Link, port string) error {
	sw := n.hosts[wire.Switch]
	link, err := sw.Net.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find port %s of the switch: %w", port, err)
	}
	if err := sw.Net.LinkSetMaster(link, n.bridge); err != nil {
		return fmt.Errorf("plug %s into the switch: %w", port, err)
	}
	if err := sw.Up(link); err != nil {
		return err
	}
	return h.Up(uplink)
}

// membership is how a port carries a VLAN.
type membership int

const (
	tagged membership = iota // frames carry the tag
	access                   // untagged frames belong to the VLAN
)

// vlan opens or closes a VLAN on a port. Closing what is closed is not an error.
func (n *Network) vlan(port string, id int, kind membership, open bool) error {
	sw := n.hosts[wire.Switch]
	link, err := sw.Net.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find port %s of the switch: %w", port, err)
	}
	change := sw.Net.BridgeVlanAdd
	verb := "open"
	if !open {
		change = sw.Net.BridgeVlanDel
		verb = "close"
	}
	if err := change(link, uint16(id), kind == access, kind == access, false, true); err != nil && open {
		return fmt.Errorf("%s VLAN %d on port %s: %w", verb, id, port, err)
	}
	return nil
}

// nth is the n-th address of a network, with its length.
func nth(network netip.Prefix, n int) netip.Prefix {
	a := network.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return netip.PrefixFrom(a, network.Bits())
}
