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
	// locations are those of the servers, sites what is in them.
	locations []string
	sites     []*site
	have      plan
	watches   map[trunk]func() // ends the watch on the gateway's interface
}

// Watch observes an interface of the gateway from the moment it exists; the function returned ends that.
type Watch func(host *space.Space, vlan int, link netlink.Link) (stop func(), err error)

// New returns a network that is to be built.
func New(watch Watch) *Network {
	return &Network{
		watch: watch, hosts: map[string]*space.Space{}, servers: map[string]*server{}, watches: map[trunk]func(){},
	}
}

// Build makes the network; nothing is open on it but the private VLAN.
func (n *Network) Build(setup wire.Setup) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.setup = setup
	for _, step := range []func() error{n.buildSites, n.buildClient, n.buildManagement,
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

// buildClient makes a host beyond the gateways.
func (n *Network) buildClient() error {
	h, err := n.open(wire.Client)
	if err != nil {
		return err
	}
	for _, s := range n.sites {
		if err := n.joinClient(s, h); err != nil {
			return err
		}
	}
	if !n.setup.ClientPrivate.IsValid() {
		return nil
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

// joinPrivate gives a host an address on the private network, behind a port of its own in the first location.
func (n *Network) joinPrivate(h *space.Space, link string, mac net.HardwareAddr, address netip.Prefix) error {
	port := "p-" + h.Name
	if err := n.sites[0].cable(h, link, port, mac); err != nil {
		return err
	}
	if err := n.sites[0].vlan(port, wire.PrivateVLAN, access, true); err != nil {
		return err
	}
	return h.Address(link, address)
}

// Hardware addresses are locally administered and identify each machine in a trace.
var (
	managementMAC = net.HardwareAddr{0x02, 0x50, 0x4e, 0, 0, 0x02}
	clientMAC     = net.HardwareAddr{0x02, 0x50, 0x4e, 0, 0, 0x03}
)

func serverMAC(index int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x50, 0x4e, 0x01, byte(index >> 8), byte(index)}
}

// nth is the n-th address of a network, with its length.
func nth(network netip.Prefix, n int) netip.Prefix {
	a := network.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return netip.PrefixFrom(a, network.Bits())
}
