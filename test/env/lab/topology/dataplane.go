//go:build linux

package topology

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/dataplane"
)

// Apply makes switch and gateway follow the data plane: what is gone there is closed here before anything is opened.
func (n *Network) Apply(state dataplane.DataPlane) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	want, err := planFor(state, n.locations)
	if err != nil {
		return err
	}
	return errors.Join(n.applyPorts(want), n.applyGateways(want))
}

// applyPorts opens and closes VLANs on the ports of servers.
func (n *Network) applyPorts(want plan) error {
	var errs []error
	for pv := range n.have.open.Difference(want.open) {
		errs = append(errs, n.setPort(pv, false))
	}
	for pv := range want.open.Difference(n.have.open) {
		errs = append(errs, n.setPort(pv, true))
	}
	n.have.open = want.open
	return errors.Join(errs...)
}

func (n *Network) setPort(pv portVLAN, open bool) error {
	for _, s := range n.servers {
		if s.ID == pv.server {
			return n.siteOf(s).vlan(s.port(), pv.vlan, tagged, open)
		}
	}
	return nil
}

// applyGateways gives and takes the gateway's VLANs and addresses.
func (n *Network) applyGateways(want plan) error {
	var errs []error
	for g := range n.have.gateways.Difference(want.gateways) {
		errs = append(errs, n.conceal(g), n.withdraw(g))
	}
	for t := range n.have.trunks.Difference(want.trunks) {
		errs = append(errs, n.dropTrunk(t))
	}
	for t := range want.trunks.Difference(n.have.trunks) {
		errs = append(errs, n.addTrunk(t))
	}
	for g := range want.gateways.Difference(n.have.gateways) {
		errs = append(errs, n.sites[g.site].gateway.Address(gatewayLink(g.vlan), g.address), n.announce(g))
	}
	n.have.gateways = want.gateways
	n.have.trunks = want.trunks
	return errors.Join(errs...)
}

// gatewayLink is the gateway's interface on a VLAN.
func gatewayLink(id int) string { return fmt.Sprintf("eth0.%d", id) }

// cacheAge is the age of ARP entries on routers of carriers: only an announcement moves an address earlier.
const (
	cacheAgeMilliseconds = "14400000"
	cacheAgeSeconds      = "14400"
)

// addTrunk brings a VLAN to the gateway.
func (n *Network) addTrunk(t trunk) error {
	at := n.sites[t.site]
	name := gatewayLink(t.vlan)
	if err := at.vlan(gatewayPort, t.vlan, tagged, true); err != nil {
		return err
	}
	h := at.gateway
	parent, err := h.Net.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("gateway: find eth0: %w", err)
	}
	if err := tag(h, parent, name, t.vlan); err != nil {
		return err
	}
	neighbours := "ipv4/neigh/" + name
	if err := h.Sysctls(map[string]string{
		neighbours + "/base_reachable_time_ms": cacheAgeMilliseconds,
		// A changed entry is used as it is; the kernel would soon ask whether it is still true, a router does not.
		neighbours + "/delay_first_probe_time":  cacheAgeSeconds,
		"ipv4/conf/" + name + "/send_redirects": "0",
	}); err != nil {
		return err
	}
	link, err := h.Net.LinkByName(name)
	if err != nil {
		return fmt.Errorf("gateway: find %s: %w", name, err)
	}
	if err := h.Up(link); err != nil {
		return err
	}
	stop, err := n.watch(h, t.vlan, link)
	if err != nil {
		return err
	}
	n.watches[t] = stop
	return nil
}

func (n *Network) dropTrunk(t trunk) error {
	if stop, ok := n.watches[t]; ok {
		stop()
		delete(n.watches, t)
	}
	at := n.sites[t.site]
	return errors.Join(remove(at.gateway, gatewayLink(t.vlan)), at.vlan(gatewayPort, t.vlan, tagged, false))
}

// withdraw takes a block from the gateway, and what it has learned about the block's addresses.
func (n *Network) withdraw(g gatewayAddress) error {
	h := n.sites[g.site].gateway
	link, err := h.Net.LinkByName(gatewayLink(g.vlan))
	if err != nil {
		return fmt.Errorf("gateway: find %s: %w", gatewayLink(g.vlan), err)
	}
	if err := h.Net.AddrDel(link, &netlink.Addr{IPNet: space.IPNet(g.address)}); err != nil {
		return fmt.Errorf("gateway: withdraw %s: %w", g.address, err)
	}
	return forget(h, link, g.address)
}

// forget deletes the ARP entries of a block. An entry may vanish by itself meanwhile.
func forget(h *space.Space, link netlink.Link, block netip.Prefix) error {
	entries, err := h.Net.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("gateway: list ARP entries: %w", err)
	}
	for _, e := range entries {
		if ip, ok := netip.AddrFromSlice(e.IP); ok && block.Contains(ip.Unmap()) {
			_ = h.Net.NeighDel(&e)
		}
	}
	return nil
}

// Neighbours is the ARP table of a host.
func (n *Network) Neighbours(host string, reply *[]wire.Neighbour) error {
	h, err := n.Host(host)
	if err != nil {
		return err
	}
	links, err := h.Net.LinkList()
	if err != nil {
		return fmt.Errorf("host %s: list links: %w", host, err)
	}
	for _, link := range links {
		entries, err := h.Net.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
		if err != nil {
			return fmt.Errorf("host %s: list ARP entries: %w", host, err)
		}
		for _, e := range entries {
			if ip, ok := netip.AddrFromSlice(e.IP); ok && e.State != netlink.NUD_NOARP {
				*reply = append(*reply, wire.Neighbour{
					Interface: link.Attrs().Name, IP: ip.Unmap(), MAC: e.HardwareAddr.String(),
				})
			}
		}
	}
	return nil
}
