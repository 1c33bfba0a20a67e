//go:build linux

package topology

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// site is the equipment of a location: a switch, and a router that leads from its public networks to the client.
type site struct {
	index    int
	location string
	sw       *space.Space
	gateway  *space.Space
	bridge   netlink.Link
	// wan is the network between the router, whose address is .1, and the client, whose address is .10. On the router
	// the link is wan0, on the client eth0 in the first location, then eth10 and so on.
	wan netip.Prefix
}

// Ports of a switch besides those of hosts.
const (
	gatewayPort = "p-gateway"
	trunkPort   = "p-trunk" // of each location but the first, to the switch of the first
)

func (n *Network) siteOf(s *server) *site {
	i, _ := siteNumber(n.locations, s.Location) // each server's location is one
	return n.sites[i]
}

// buildSites makes the equipment of all locations. Their switches pass the private network to each other, as a VPN
// between the locations would.
func (n *Network) buildSites() error {
	n.locations = locationsOf(n.setup.Servers)
	for i, location := range n.locations {
		s := &site{index: i, location: location, wan: wire.ClientNet}
		if i > 0 {
			s.wan = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(16 * i)}), 28) // RFC 5737
		}
		n.sites = append(n.sites, s)
		if err := errors.Join(n.buildSwitch(s), n.buildGateway(s)); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		if err := n.buildTrunk(s); err != nil {
			return err
		}
	}
	return nil
}

// buildSwitch makes the bridge. It has no default VLAN: what is not opened on a port does not pass it.
func (n *Network) buildSwitch(s *site) error {
	h, err := n.open(wire.SwitchOf(s.index))
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
	s.sw = h
	s.bridge = bridge
	return h.Up(bridge)
}

// buildGateway makes the router. VLANs come with the data plane.
func (n *Network) buildGateway(s *site) error {
	h, err := n.open(wire.GatewayOf(s.index))
	if err != nil {
		return err
	}
	s.gateway = h
	if err := s.cable(h, "eth0", gatewayPort, gatewayMAC(s.index)); err != nil {
		return err
	}
	// Strict, so that every interface that comes later only takes packets whose source is reached through it: the
	// anti-spoofing of the provider's routers.
	return h.Sysctls(map[string]string{
		"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "1", "ipv4/conf/default/rp_filter": "1",
	})
}

// buildTrunk connects the switch with that of the first location, for the private network only.
func (n *Network) buildTrunk(s *site) error {
	far := n.sites[0]
	farPort := fmt.Sprintf("%s%d", trunkPort, s.index)
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: trunkPort}, PeerName: farPort,
		PeerNamespace: netlink.NsFd(far.sw.Fd())}
	if err := s.sw.Net.LinkAdd(pair); err != nil {
		return fmt.Errorf("connect the switches: %w", err)
	}
	return errors.Join(s.plug(trunkPort), far.plug(farPort), s.vlan(trunkPort, wire.PrivateVLAN, tagged, true),
		far.vlan(farPort, wire.PrivateVLAN, tagged, true))
}

// joinClient connects router and client. What the client has no better route for goes to the first location; between
// locations it passes packets on, as the Internet does.
func (n *Network) joinClient(s *site, client *space.Space) error {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: s.clientLink()}, PeerName: "wan0",
		PeerNamespace: netlink.NsFd(s.gateway.Fd())}
	if err := client.Net.LinkAdd(pair); err != nil {
		return fmt.Errorf("connect client and gateway: %w", err)
	}
	router := nth(s.wan, 1)
	if err := errors.Join(s.gateway.Address("wan0", router), client.Address(s.clientLink(), s.client())); err != nil {
		return err
	}
	if s.index == 0 {
		return client.DefaultRoute(pair, router.Addr())
	}
	return client.Sysctl("ipv4/ip_forward", "1")
}

// clientLink is the client's interface to the router.
func (s *site) clientLink() string {
	if s.index == 0 {
		return "eth0"
	}
	return fmt.Sprintf("eth%d", 10*s.index)
}

// client is the client's address on the link to the router.
func (s *site) client() netip.Prefix { return nth(s.wan, 10) }

// announce makes a block of a location known to the client and to the routers of the others. There is nothing to do in
// a lab of one location.
func (n *Network) announce(g gatewayAddress) error {
	var errs []error
	for _, r := range n.routesTo(g) {
		link, err := r.host.Net.LinkByName(r.link)
		if err == nil {
			err = r.host.Route(link, g.address.Masked(), r.via)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// conceal is the opposite of announce.
func (n *Network) conceal(g gatewayAddress) error {
	var errs []error
	for _, r := range n.routesTo(g) {
		if err := r.host.Net.RouteDel(&netlink.Route{Dst: space.IPNet(g.address.Masked()),
			Gw: r.via.AsSlice()}); err != nil {
			errs = append(errs, fmt.Errorf("host %s: conceal %s: %w", r.host.Name, g.address, err))
		}
	}
	return errors.Join(errs...)
}

// hop is how a host reaches a block.
type hop struct {
	host *space.Space
	link string
	via  netip.Addr
}

func (n *Network) routesTo(g gatewayAddress) []hop {
	if len(n.sites) == 1 {
		return nil
	}
	home := n.sites[g.site]
	all := []hop{{n.hosts[wire.Client], home.clientLink(), nth(home.wan, 1).Addr()}}
	for _, other := range n.sites {
		if other != home {
			all = append(all, hop{other.gateway, "wan0", other.client().Addr()})
		}
	}
	return all
}

// gatewayMAC identifies the router of a site in a trace.
func gatewayMAC(index int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x50, 0x4e, 0, byte(index), 0x01}
}

// cable connects a new interface of a host with a new port of the switch.
func (s *site) cable(h *space.Space, link, port string, mac net.HardwareAddr) error {
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: link, HardwareAddr: mac}, PeerName: port,
		PeerNamespace: netlink.NsFd(s.sw.Fd()),
	}
	if err := h.Net.LinkAdd(pair); err != nil {
		return fmt.Errorf("connect %s to the switch: %w", h.Name, err)
	}
	if err := s.plug(port); err != nil {
		return err
	}
	return h.Up(pair)
}

// plug makes a link of the switch one of its ports.
func (s *site) plug(port string) error {
	link, err := s.sw.Net.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find port %s of the switch: %w", port, err)
	}
	if err := s.sw.Net.LinkSetMaster(link, s.bridge); err != nil {
		return fmt.Errorf("plug %s into the switch: %w", port, err)
	}
	return s.sw.Up(link)
}

// membership is how a port carries a VLAN.
type membership int

const (
	tagged membership = iota // frames carry the tag
	access                   // untagged frames belong to the VLAN
)

// vlan opens or closes a VLAN on a port. Closing what is closed is not an error.
func (s *site) vlan(port string, id int, kind membership, open bool) error {
	link, err := s.sw.Net.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find port %s of the switch: %w", port, err)
	}
	change := s.sw.Net.BridgeVlanAdd
	verb := "open"
	if !open {
		change = s.sw.Net.BridgeVlanDel
		verb = "close"
	}
	if err := change(link, uint16(id), kind == access, kind == access, false, true); err != nil && open {
		return fmt.Errorf("%s VLAN %d on port %s: %w", verb, id, port, err)
	}
	return nil
}
