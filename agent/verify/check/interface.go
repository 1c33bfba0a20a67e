package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// checkHardwareAddress: a VLAN interface takes the address of its uplink when it is made. One that differs makes the
// network card receive frames for an address that it filters, and is unknown to a switch that limits addresses.
func checkHardwareAddress(v view) Finding {
	own := v.vlan.MAC
	below := v.uplink.MAC
	if own == "" || below == "" {
		return notApplicable("the interface has no hardware address")
	}
	if own == below {
		return ok(v.vlan.Name + ": " + own)
	}
	return Finding{Status: Warn, Reason: "ForeignHardwareAddress",
		Expected: below + ", as " + v.uplink.Name, Observed: own,
		Cause: fmt.Sprintf("%s has the hardware address %s, its uplink %s has %s", v.vlan.Name, own, v.uplink.Name,
			below),
		Fixes: fixHardwareAddress(v.vlan.Name, below)}
}

// checkUniqueVLAN: the switch sees one port, so of two interfaces with the same VLAN ID only one receives, and which
// one depends on what lies below. One on a member of the bond takes the frames before the bond sees them
// (net/core/dev.c, __netif_receive_skb_core: vlan_do_receive comes before the bond's handler); one that is down drops
// them.
func checkUniqueVLAN(v view) Finding {
	var others, below []string
	for _, l := range v.Links {
		if !v.second(l) {
			continue
		}
		text := fmt.Sprintf("%s on %s", l.Name, v.parentName(l))
		if shared := v.shared(l); len(shared) > 0 {
			text += " with the same address " + joined(shared)
		}
		others = append(others, text)
		if p := v.LinkIndexed(l.Parent); p != nil && p.Master != 0 && v.takesBefore(*p) {
			below = append(below, text)
		}
	}
	if len(others) == 0 {
		return ok(v.vlan.Name)
	}
	slices.Sort(others)
	slices.Sort(below)
	if len(below) > 0 && v.noGatewayHeard() {
		return Finding{Status: Fail, Reason: "FramesTaken", Expected: "frames of the network on " + v.vlan.Name,
			Observed: "no gateway is heard, and " + strings.Join(below, ", ") + " takes the frames before " +
				v.uplink.Name,
			Cause: fmt.Sprintf("VLAN %d is also on %s, which takes the frames before %s gets them", v.Network.VLAN,
				strings.Join(below, ", "), v.vlan.Name),
			Fixes: fixSecondInterface(v)}
	}
	return Finding{Status: Warn, Reason: "SecondVLANInterface",
		Expected: "only " + v.vlan.Name, Observed: "also " + strings.Join(others, ", "),
		Cause: fmt.Sprintf("VLAN %d is also on %s", v.Network.VLAN, strings.Join(others, ", ")),
		Fixes: fixSecondInterface(v)}
}

// second reports whether a link is another VLAN interface of the network: one with its ID on the same trunk. On another
// trunk, or inside another VLAN, the ID is that of another network.
func (v view) second(l Link) bool {
	return v.isVLAN(l) && l.Index != v.vlan.Index && v.onTrunk(l)
}

// takesBefore reports whether the kernel gives frames to VLAN interfaces of a link before the uplink gets them.
func (v view) takesBefore(l Link) bool {
	return l.Master == v.uplink.Index || l.Master == v.trunk.Index
}

// noGatewayHeard reports that gateways were asked, with an address of their block, and none of them was heard at all.
func (v view) noGatewayHeard() bool {
	asked := false
	for _, b := range v.blocks4() {
		answer, has := v.arp(b.Gateway)
		if len(answer.MACs) > 0 {
			return false
		}
		asked = asked || has && answer.Error == "" && b.CIDR.Contains(answer.Source)
	}
	return asked
}

// shared are addresses that both the VLAN interface and another link carry.
func (v view) shared(other Link) []netip.Addr {
	var shared []netip.Addr
	for _, a := range v.Addresses {
		own := func(p netip.Prefix) bool { return p.Addr() == a.Prefix.Addr() }
		if a.LinkIndex == other.Index && slices.ContainsFunc(v.own, own) {
			shared = append(shared, a.Prefix.Addr())
		}
	}
	slices.SortFunc(shared, netip.Addr.Compare)
	return shared
}

// foreignAddress is an address of another interface whose subnet touches a block.
type foreignAddress struct {
	link    string
	address netip.Prefix
	gateway netip.Addr
}

// foreignAddresses leaves out what the announcement of Services puts on interfaces.
func (v view) foreignAddresses() []foreignAddress {
	var found []foreignAddress
	for _, a := range v.Addresses {
		l := v.LinkIndexed(a.LinkIndex)
		if l == nil || l.Index == v.vlan.Index || l.Name == ipvsInterface || v.isVirtual(a) {
			continue
		}
		for _, b := range v.blocks4() {
			if b.CIDR.Overlaps(a.Prefix.Masked()) {
				found = append(found, foreignAddress{link: l.Name, address: a.Prefix, gateway: b.Gateway})
			}
		}
	}
	slices.SortFunc(found, func(a, b foreignAddress) int {
		return cmp.Or(strings.Compare(a.link, b.link),
			strings.Compare(a.address.String()+a.gateway.String(), b.address.String()+b.gateway.String()))
	})
	return found
}

// checkOtherInterfaces: with an address of a block on another interface the kernel looks for its machines there.
func checkOtherInterfaces(v view) Finding {
	if o, wrong := v.checkGatewayRoutes(); wrong {
		return o
	}
	found := v.foreignAddresses()
	if len(found) == 0 {
		return ok("no other interface has addresses of the blocks")
	}
	f := found[0]
	return Finding{Status: Warn, Reason: "BlockOnOtherInterface", Expected: "the blocks only on " + v.vlan.Name,
		Observed: fmt.Sprintf("%s on %s", f.address, f.link), Fixes: fixForeignAddress(v, f),
		Cause: fmt.Sprintf("%s carries %s, which belongs to the public network", f.link, f.address)}
}

// checkGatewayRoutes: the kernel must look for the gateway of a block that it has an address in on the VLAN interface.
func (v view) checkGatewayRoutes() (Finding, bool) {
	for _, b := range v.blocks4() {
		r, asked := v.route(RouteQuestion{Destination: b.Gateway})
		onLink := func(p netip.Prefix) bool { return p.Contains(b.Gateway) }
		if !asked || r.Interface == v.vlan.Name || r.Local || !slices.ContainsFunc(v.own, onLink) {
			continue
		}
		o := Finding{Status: Fail, Reason: "GatewayRoutedElsewhere", Observed: "by " + r.Interface,
			Expected: fmt.Sprintf("gateway %s by %s", b.Gateway, v.vlan.Name),
			Cause: fmt.Sprintf("the kernel looks for gateway %s on %s instead of %s", b.Gateway, r.Interface,
				v.vlan.Name)}
		if r.Interface == "" {
			o.Reason = "GatewayUnroutable"
			o.Observed = r.Error
			o.Cause = fmt.Sprintf("the kernel has no route to gateway %s: %s", b.Gateway, r.Error)
		}
		o.Fixes = anyTool("delete the address, route or rule that takes the block away from "+v.vlan.Name,
			"ip route get "+b.Gateway.String(), "ip address show to "+b.CIDR.String(), "ip rule show")
		for _, i := range v.foreignAddresses() {
			if i.link == r.Interface && i.gateway == b.Gateway {
				o.Fixes = fixForeignAddress(v, i)
			}
		}
		return o, true
	}
	return Finding{}, false
}

// fixHardwareAddress: no tool restores an address that it does not set itself, so the command does.
func fixHardwareAddress(name, mac string) []Fix {
	const note = "remove the hardware address that the configuration gives the VLAN interface"
	own := fmt.Sprintf("ip link set %s address %s", name, mac)
	return []Fix{
		fix(Netplan, note+" (macaddress)",
			fmt.Sprintf("netplan set vlans.%s.macaddress=null", strings.ReplaceAll(name, ".", `\.`)), "netplan apply",
			own),
		fix(NetworkManager, note, changeProfile(name, `802-3-ethernet.cloned-mac-address ""`), own),
		fix(Ifupdown, note+" (hwaddress)", own),
		fix(Networkd, note+" (MACAddress)", own),
		fix(IPRoute2, volatile, own),
	}
}

// fixSecondInterface removes the VLAN interfaces of the same ID that are not the one on the uplink, and that have
// nothing of their own. Addresses that the right one has, too, are no loss.
func fixSecondInterface(v view) []Fix {
	var commands, kept []string
	var lost []Route
	for _, l := range v.Links {
		if !v.second(l) {
			continue
		}
		if why := v.keeps(l, v.shared(l)...); why != "" {
			kept = append(kept, why)
			continue
		}
		commands = append(commands, "ip link delete "+l.Name)
		lost = append(lost, v.defaultsOver(l.Index)...)
	}
	if len(kept) > 0 {
		return v.refusal(sorted(kept))
	}
	return v.restoring(perTool(sorted(commands), "remove it from the configuration of the machine's network, too"),
		v.vlan.Name, lost)
}

// fixForeignAddress: the address may be that of pods or virtual machines, so nothing can take it over.
func fixForeignAddress(v view, i foreignAddress) []Fix {
	fixes := perTool([]string{fmt.Sprintf("ip address delete %s dev %s", i.address, i.link)},
		fmt.Sprintf("remove %s from the configuration of %s, too; the blocks belong on %s", i.address, i.link,
			v.vlan.Name))
	warning := ""
	if !slices.ContainsFunc(v.own, func(p netip.Prefix) bool { return p.Addr() == i.address.Addr() }) {
		warning = fmt.Sprintf("what reaches this machine by %s, or other machines through it, loses the connection",
			i.address.Addr())
	}
	if l := v.LinkNamed(i.link); l != nil && v.onlyAddress(*l, i.address) && len(v.defaultsOver(l.Index)) > 0 {
		warning = joinedNotes(warning, fmt.Sprintf("the default route over %s goes with its last address", i.link))
	}
	return warned(fixes, warning)
}
