//go:build linux

package topology

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/space"
)

// up sets a link up.
func up(h *space.Space, link netlink.Link) error {
	if err := h.Net.LinkSetUp(link); err != nil {
		return fmt.Errorf("host %s: set %s up: %w", h.Name, link.Attrs().Name, err)
	}
	return nil
}

// addressed sets a link up and gives it an address; having it already is not an error.
func addressed(h *space.Space, name string, address netip.Prefix) error {
	link, err := h.Net.LinkByName(name)
	if err != nil {
		return fmt.Errorf("host %s: find %s: %w", h.Name, name, err)
	}
	if err := up(h, link); err != nil || !address.IsValid() {
		return err
	}
	if err := h.Net.AddrReplace(link, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
		return fmt.Errorf("host %s: give %s the address %s: %w", h.Name, name, address, err)
	}
	return nil
}

// defaultRoute sends everything without a better route to the gateway, which is taken to be on the link.
func defaultRoute(h *space.Space, link netlink.Link, gateway netip.Addr) error {
	return route(h, link, netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway)
}

func route(h *space.Space, link netlink.Link, to netip.Prefix, via netip.Addr) error {
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Gw: via.AsSlice(),
		Flags: int(netlink.FLAG_ONLINK)}
	if err := h.Net.RouteReplace(r); err != nil {
		return fmt.Errorf("host %s: route to %s via %s: %w", h.Name, to, via, err)
	}
	return nil
}

// tag makes an 802.1Q interface.
func tag(h *space.Space, parent netlink.Link, name string, id int) error {
	link := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: parent.Attrs().Index}, VlanId: id}
	if err := h.Net.LinkAdd(link); err != nil {
		return fmt.Errorf("host %s: make %s with VLAN %d: %w", h.Name, name, id, err)
	}
	return nil
}

// remove deletes a link; that it does not exist is not an error.
func remove(h *space.Space, name string) error {
	link, err := h.Net.LinkByName(name)
	if isNotFound(err) {
		return nil
	}
	if err == nil {
		err = h.Net.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("host %s: delete %s: %w", h.Name, name, err)
	}
	return nil
}

func isNotFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

// isUnsupported reports that the kernel has no such kind of link.
func isUnsupported(err error) bool { return errors.Is(err, unix.EOPNOTSUPP) }

// sysctls sets values in no particular order.
func sysctls(h *space.Space, values map[string]string) error {
	for name, value := range values {
		if err := h.Sysctl(name, value); err != nil {
			return err
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
