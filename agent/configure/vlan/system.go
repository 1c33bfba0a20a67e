//go:build linux

package vlan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
)

// System is the Kernel of the running machine, over netlink. Changes take CAP_NET_ADMIN.
type System struct {
	Journal *ownership.Journal
}

// Look reads links and addresses.
func (System) Look(ctx context.Context) (Observed, error) {
	links, err := netstate.Links(ctx)
	if err != nil {
		return Observed{}, err
	}
	addresses, err := netstate.Addresses(ctx)
	if err != nil {
		return Observed{}, err
	}
	var all []Link
	for _, l := range links {
		link := Link{Link: l.Link, Group: l.Group}
		// An interface without IPv4 has no settings, and one that was just deleted will not be in the next listing.
		if l.VLAN != nil {
			if settings, err := ownership.ReadSettings(l.Index); err == nil {
				link.Settings = settings
			}
		}
		all = append(all, link)
	}
	o := Recognize(all, addresses)
	o.Defaults, err = netstate.DefaultRoutes(ctx)
	return o, err
}

// Make makes a VLAN interface.
func (System) Make(name string, parent, id, mtu int) (int, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.ParentIndex = parent
	attrs.MTU = mtu
	attrs.Group = ownership.BirthGroup
	link := &netlink.Vlan{LinkAttrs: attrs, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	if err := netlink.LinkAdd(link); err != nil {
		return 0, fmt.Errorf("make %s with VLAN ID %d: %w", name, id, explain(err))
	}
	made, err := netlink.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find %s, which was just made: %w", name, err)
	}
	return made.Attrs().Index, nil
}

// Delete deletes a link that the agent made.
func (System) Delete(index int) error {
	link, err := netlink.LinkByIndex(index)
	if ownership.Gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete interface %d: %w", index, err)
	}
	name := link.Attrs().Name
	record, ours, err := ownership.ReadLink(link)
	if err != nil || !ours || !record.Made || link.Attrs().MasterIndex != 0 {
		return fmt.Errorf("delete %s: it is not an interface that the agent made and no one uses since", name)
	}
	if err := netlink.LinkDel(link); err != nil && !ownership.Gone(err) {
		return fmt.Errorf("delete %s: %w", name, explain(err))
	}
	return nil
}

// Note changes the record of a link.
func (s System) Note(index int, change func(*ownership.Record)) error {
	return explain(s.Journal.Update(index, change))
}

// SetSettings changes settings of an interface.
func (System) SetSettings(index int, settings ownership.Settings) error {
	return explain(ownership.WriteSettings(index, settings))
}

// SetUp brings an interface up or takes it down.
func (System) SetUp(index int, up bool) error {
	if up {
		return wrap(netlink.LinkSetUp(byIndex(index)), "bring up interface %d", index)
	}
	return wrap(netlink.LinkSetDown(byIndex(index)), "take down interface %d", index)
}

// SetMTU sets the MTU of an interface, in bytes.
func (System) SetMTU(index, mtu int) error {
	return wrap(netlink.LinkSetMTU(byIndex(index), mtu), "set the MTU %d of interface %d", mtu, index)
}

// SetMAC sets the hardware address of an interface.
func (System) SetMAC(index int, mac string) error {
	address, err := net.ParseMAC(mac)
	if err != nil {
		return fmt.Errorf("hardware address of interface %d: %w", index, err)
	}
	return wrap(netlink.LinkSetHardwareAddr(byIndex(index), address),
		"set the hardware address %s of interface %d", mac, index)
}

// AddAddress adds an address.
func (System) AddAddress(index int, prefix netip.Prefix) error {
	err := netlink.AddrAdd(byIndex(index), addressOf(prefix))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return wrap(err, "add %s to interface %d", prefix, index)
}

// DeleteAddress deletes an address.
func (System) DeleteAddress(index int, prefix netip.Prefix) error {
	err := netlink.AddrDel(byIndex(index), addressOf(prefix))
	if ownership.Gone(err) {
		return nil
	}
	return wrap(err, "delete %s from interface %d", prefix, index)
}

func byIndex(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

func addressOf(prefix netip.Prefix) *netlink.Addr {
	bits := prefix.Addr().BitLen()
	address := &netlink.Addr{IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), bits)}}
	if prefix.Addr().IsLinkLocalUnicast() {
		address.Scope = int(netlink.SCOPE_LINK)
	}
	return address
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, explain(err))...)
}

// explain adds the missing capability to an error.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (managing takes the capability NET_ADMIN)", err)
	}
	return err
}
