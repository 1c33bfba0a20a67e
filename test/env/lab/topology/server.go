//go:build linux

package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// server is a bare-metal server with a pod on it.
type server struct {
	wire.Server
	index int
	// vlans is what the user has configured, the latest last; it comes back after a restart, as netplan's files do.
	vlans []wire.VLAN
	dead  bool
}

// bond is the name of the uplink in the operating system of a phoenixNAP server.
const bond = "bond0"

func (s *server) port() string { return "p-" + s.Name }

func (s *server) pod() string { return s.Name + wire.PodSuffix }

// storageBond leads to another switch, where a VLAN ID is that of another network.
const storageBond = "bond1"

// uplink is the link that the VLAN interfaces of a server are on: the bond, or the bridge over it.
func (n *Network) uplink(h *space.Space) string { return cmp.Or(n.servers[h.Name].Bridge, bond) }

// vlanLink names an 802.1Q interface as phoenixNAP's images and the installers of hypervisors do.
func (n *Network) vlanLink(h *space.Space, id int) string {
	return fmt.Sprintf("%s.%d", n.uplink(h), id)
}

func (n *Network) buildServers() error {
	for i, described := range n.setup.Servers {
		s := &server{Server: described, index: i + 1}
		if len(s.port()) > 15 { // IFNAMSIZ, less the terminating zero
			return fmt.Errorf("server %s: the name is longer than 13 characters", s.Name)
		}
		n.servers[s.Name] = s
		if err := n.buildServer(s); err != nil {
			return err
		}
	}
	return nil
}

// buildServer does what switching a server on does: uplink, private network, routes, pod, the user's VLANs.
func (n *Network) buildServer(s *server) error {
	h, err := n.open(s.Name)
	if err != nil {
		return err
	}
	for _, step := range []func(*space.Space, *server) error{n.buildUplink, n.buildBridge, n.buildStorage,
		n.buildPrivate,
		n.buildPod, n.openVLANs, n.configureAll} {
		if err := step(h, s); err != nil {
			return err
		}
	}
	return nil
}

// buildUplink makes bond0 with eth0 as its slave, or names the uplink bond0 where the kernel has no bonding.
func (n *Network) buildUplink(h *space.Space, s *server) error {
	if err := n.siteOf(s).cable(h, "eth0", s.port(), serverMAC(s.index)); err != nil {
		return err
	}
	eth0, err := h.Net.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("host %s: find eth0: %w", h.Name, err)
	}
	master := netlink.NewLinkBond(netlink.LinkAttrs{Name: bond})
	// A bridge speaks no LACP, so the mode is the one that needs no partner.
	master.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
	master.Miimon = 100
	switch err := h.Net.LinkAdd(master); {
	case isUnsupported(err):
		n.Uplink = "veth"
		return n.rename(h, eth0)
	case err != nil:
		return fmt.Errorf("host %s: make %s: %w", h.Name, bond, err)
	}
	n.Uplink = "bonding"
	return enslave(h, eth0, master)
}

// rename gives the uplink the name of the bond that the kernel cannot make.
func (n *Network) rename(h *space.Space, link netlink.Link) error {
	if err := h.Net.LinkSetDown(link); err != nil {
		return fmt.Errorf("host %s: set %s down: %w", h.Name, link.Attrs().Name, err)
	}
	if err := h.Net.LinkSetName(link, bond); err != nil {
		return fmt.Errorf("host %s: name the uplink %s: %w", h.Name, bond, err)
	}
	return h.Up(link)
}

// enslave adds a link to the bond; the kernel takes only links that are down.
func enslave(h *space.Space, slave, master netlink.Link) error {
	if err := h.Net.LinkSetDown(slave); err != nil {
		return fmt.Errorf("host %s: set %s down: %w", h.Name, slave.Attrs().Name, err)
	}
	if err := h.Net.LinkSetMaster(slave, master); err != nil {
		return fmt.Errorf("host %s: enslave %s: %w", h.Name, slave.Attrs().Name, err)
	}
	if err := h.Up(slave); err != nil {
		return err
	}
	return h.Up(master)
}

// buildBridge puts a bridge over the bond, which passes all VLANs, as one of Proxmox VE without "VLAN aware" does.
func (n *Network) buildBridge(h *space.Space, s *server) error {
	if s.Bridge == "" {
		return nil
	}
	uplink, err := h.Net.LinkByName(bond)
	if err != nil {
		return fmt.Errorf("host %s: find %s: %w", h.Name, bond, err)
	}
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: s.Bridge, HardwareAddr: uplink.Attrs().HardwareAddr},
		MulticastSnooping: &snooping}
	if err := h.Net.LinkAdd(bridge); err != nil {
		return fmt.Errorf("host %s: make %s: %w", h.Name, s.Bridge, err)
	}
	if err := h.Net.LinkSetMaster(uplink, bridge); err != nil {
		return fmt.Errorf("host %s: make %s a port of %s: %w", h.Name, bond, s.Bridge, err)
	}
	return h.Up(bridge)
}

// buildStorage makes a second bond, whose other end is no switch of the lab.
func (n *Network) buildStorage(h *space.Space, s *server) error {
	if !s.Storage.IsValid() {
		return nil
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}, PeerName: "storage"}
	if err := h.Net.LinkAdd(pair); err != nil {
		return fmt.Errorf("host %s: make eth1: %w", h.Name, err)
	}
	master := netlink.NewLinkBond(netlink.LinkAttrs{Name: storageBond})
	master.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
	if err := h.Net.LinkAdd(master); err != nil {
		return fmt.Errorf("host %s: make %s: %w", h.Name, storageBond, err)
	}
	return enslave(h, pair, master)
}

// configureStorage makes the storage network's interface with the ID of the public network.
func (n *Network) configureStorage(h *space.Space, id int) error {
	address := n.servers[h.Name].Storage
	name := fmt.Sprintf("%s.%d", storageBond, id)
	if !address.IsValid() {
		return nil
	}
	parent, err := h.Net.LinkByName(storageBond)
	if err != nil {
		return fmt.Errorf("host %s: find %s: %w", h.Name, storageBond, err)
	}
	if err := remove(h, name); err != nil {
		return err
	}
	if err := tag(h, parent, name, id); err != nil {
		return err
	}
	return h.Address(name, address)
}

// buildPrivate gives the server its private address; the private VLAN is open on every port.
func (n *Network) buildPrivate(h *space.Space, s *server) error {
	if err := n.siteOf(s).vlan(s.port(), wire.PrivateVLAN, tagged, true); err != nil {
		return err
	}
	if err := n.addTagged(h, wire.PrivateVLAN, wire.PrivateVLAN, s.Private); err != nil {
		return err
	}
	link, err := h.Net.LinkByName(n.vlanLink(h, wire.PrivateVLAN))
	if err != nil {
		return fmt.Errorf("host %s: find the private network: %w", h.Name, err)
	}
	if s.Router.IsValid() {
		if err := h.DefaultRoute(link, s.Router); err != nil {
			return err
		}
	}
	return n.routeToPods(h, link)
}

// routeToPods leads from a host to the pods of all servers but itself, over the private network, unless a network
// plugin does.
func (n *Network) routeToPods(h *space.Space, link netlink.Link) error {
	if n.setup.NetworkPlugin {
		return nil
	}
	for _, s := range n.setup.Servers {
		if s.Name == h.Name {
			continue
		}
		if err := h.Route(link, s.Pods, s.Private.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// addTagged makes <uplink>.<name> with a VLAN ID, normally the same, and an address.
func (n *Network) addTagged(h *space.Space, name, id int, address netip.Prefix) error {
	parent, err := h.Net.LinkByName(n.uplink(h))
	if err != nil {
		return fmt.Errorf("host %s: find %s: %w", h.Name, n.uplink(h), err)
	}
	if err := tag(h, parent, n.vlanLink(h, name), id); err != nil {
		return err
	}
	return h.Address(n.vlanLink(h, name), address)
}

// buildPod makes a namespace on the server. Unless a network plugin connects it, it does so as one would: address .10
// of the pod subnet, gateway .1.
func (n *Network) buildPod(h *space.Space, s *server) error {
	pod, err := n.open(s.pod())
	if err != nil || n.setup.NetworkPlugin {
		return err
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "pod0",
		PeerNamespace: netlink.NsFd(h.Fd())}
	if err := pod.Net.LinkAdd(pair); err != nil {
		return fmt.Errorf("connect %s: %w", pod.Name, err)
	}
	gateway := nth(s.Pods, 1)
	if err := h.Address("pod0", gateway); err != nil {
		return err
	}
	if err := pod.Address("eth0", nth(s.Pods, 10)); err != nil {
		return err
	}
	if err := pod.DefaultRoute(pair, gateway.Addr()); err != nil {
		return err
	}
	return h.Sysctl("ipv4/ip_forward", "1")
}

// openVLANs opens on the server's port what the data plane says; after a restart the port is a new one.
func (n *Network) openVLANs(_ *space.Space, s *server) error {
	for pv := range n.have.open {
		if pv.server != s.ID {
			continue
		}
		if err := n.siteOf(s).vlan(s.port(), pv.vlan, tagged, true); err != nil {
			return err
		}
	}
	return nil
}

func (n *Network) configureAll(h *space.Space, s *server) error {
	for _, v := range s.vlans {
		if err := n.configure(h, v); err != nil {
			return err
		}
	}
	return nil
}

// ConfigureVLAN carries out and remembers the user's configuration step on a server. The default route is that of the
// latest step.
func (n *Network) ConfigureVLAN(v wire.VLAN, _ *wire.Nothing) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, h, err := n.alive(v.Server)
	if err != nil {
		return err
	}
	if err := n.configure(h, v); err != nil {
		return err
	}
	s.vlans = append(slices.DeleteFunc(s.vlans, func(o wire.VLAN) bool { return o.ID == v.ID }), v)
	return nil
}

// configure makes the interface again: address, default route, and the kernel settings that a floating address needs.
func (n *Network) configure(h *space.Space, v wire.VLAN) error {
	if err := remove(h, n.vlanLink(h, v.ID)); err != nil {
		return err
	}
	if err := n.addTagged(h, v.ID, v.ID, v.Address); err != nil {
		return err
	}
	if err := n.configureStorage(h, v.ID); err != nil {
		return err
	}
	conf := "ipv4/conf/" + n.vlanLink(h, v.ID)
	if err := h.Sysctls(map[string]string{
		conf + "/rp_filter": "2", conf + "/arp_ignore": "1", conf + "/arp_announce": "2",
		conf + "/promote_secondaries": "1",
	}); err != nil {
		return err
	}
	return n.routeOut(h, v)
}

func (n *Network) routeOut(h *space.Space, v wire.VLAN) error {
	if !v.Gateway.IsValid() {
		return nil
	}
	link, err := h.Net.LinkByName(n.vlanLink(h, v.ID))
	if err != nil {
		return fmt.Errorf("host %s: find %s: %w", h.Name, n.vlanLink(h, v.ID), err)
	}
	return h.DefaultRoute(link, v.Gateway)
}

// alive finds a server that is switched on.
func (n *Network) alive(name string) (*server, *space.Space, error) {
	s, ok := n.servers[name]
	if !ok {
		return nil, nil, fmt.Errorf("the lab has no server %q", name)
	}
	if s.dead {
		return nil, nil, fmt.Errorf("server %s was killed: revive it first", name)
	}
	return s, n.hosts[name], nil
}
