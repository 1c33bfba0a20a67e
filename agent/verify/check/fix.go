package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const volatile = "lasts until the next reboot"

// plan is the configuration that the VLAN interface should have, with real values.
type plan struct {
	name, uplink string
	id           int
	// address is the node's own address, invalid when it is not known.
	address netip.Prefix
}

func planOf(v view) plan {
	p := plan{name: v.freeName(""), uplink: v.uplink.Name, id: v.Network.VLAN}
	if v.Interface != "" {
		p.name = v.Interface
	}
	if v.vlan != nil {
		p.name = v.vlan.Name
	}
	if ips := v.memberIPs(); len(ips) > 0 {
		p.address = v.prefixOf(ips[0])
	}
	return p
}

// prefixOf gives an address the prefix length of its block; /32 when its block is not known.
func (v view) prefixOf(ip netip.Addr) netip.Prefix {
	if block, known := v.block(ip); known {
		return netip.PrefixFrom(ip, block.CIDR.Bits())
	}
	return netip.PrefixFrom(ip, ip.BitLen())
}

// fixVLAN makes the VLAN interface as the network wants it, in place of one that is wrong.
func fixVLAN(v view) []Fix {
	if l := v.vlan; v.Interface != "" && l != nil && (l.VLAN == nil || l.VLAN.ID != v.Network.VLAN) {
		// A mistake in the option is likelier than one in the machine, and the interface may carry something else.
		return anyTool(fmt.Sprintf("set --interface to the interface with VLAN ID %d, or omit the option: the "+
			"interface is found by its ID", v.Network.VLAN))
	}
	if right := v.vlanOn(v.Snapshot, v.trunk); v.Interface != "" && v.vlan == nil && right != nil {
		return anyTool(fmt.Sprintf("set --interface to %s, which has VLAN ID %d, or omit the option: the interface is "+
			"found by its ID", right.Name, v.Network.VLAN))
	}
	p := planOf(v)
	wrong := v.vlan
	if wrong == nil {
		wrong = v.misnumbered()
	}
	if wrong == nil {
		return v.passing(p.fixes(nil))
	}
	if why := v.keeps(*wrong, v.Network.IPs...); why != "" {
		return v.refusal([]string{why})
	}
	// Names such as eno1.100 speak of the link below; on another link they would mislead.
	p.name = v.freeName(wrong.Name)
	if v.Interface != "" || wrong.Parent == v.uplink.Index {
		p.name = wrong.Name
	}
	fixes := v.passing(p.fixes([]string{"ip link delete " + wrong.Name}))
	return v.restoring(fixes, p.name, v.defaultsOver(wrong.Index))
}

// maxName is the longest name of an interface (IFNAMSIZ less the final zero).
const maxName = 15

// freeName is the customary name of the VLAN interface, or another one where that is too long, or that of an interface
// other than removed.
func (v view) freeName(removed string) string {
	customary := fmt.Sprintf("%s.%d", v.uplink.Name, v.Network.VLAN)
	for _, name := range []string{customary, fmt.Sprintf("vlan%d", v.Network.VLAN)} {
		if len(name) <= maxName && (name == removed || v.LinkNamed(name) == nil) {
			return name
		}
	}
	return fmt.Sprintf("pnap%d", v.Network.VLAN)
}

// passing opens the VLAN on a bridge that filters VLANs: for the bridge itself, and for its port to the switch.
func (v view) passing(fixes []Fix) []Fix {
	if !v.uplink.VLANAware {
		return fixes
	}
	commands := []string{fmt.Sprintf("bridge vlan add vid %d dev %s self", v.Network.VLAN, v.uplink.Name)}
	if v.trunk.Index != v.uplink.Index {
		commands = append(commands, fmt.Sprintf("bridge vlan add vid %d dev %s", v.Network.VLAN, v.trunk.Name))
	}
	return afterwards(fixes, commands)
}

// refusal is the fix where an interface has something that no command may take away.
func (v view) refusal(reasons []string) []Fix {
	where := "none"
	if v.uplink != nil {
		where = v.uplink.Name
	}
	return anyTool(fmt.Sprintf("delete nothing as long as %s: move that first, or name the right interfaces with "+
		"--uplink and --interface; the VLAN interface with ID %d belongs on %s", strings.Join(reasons, " and "),
		v.Network.VLAN, where), "ip -d link show type vlan", "ip address show", "ip route show default")
}

// restoring puts back default routes that go with what the fixes delete, by the interface that takes its place.
func (v view) restoring(fixes []Fix, name string, lost []Route) []Fix {
	var commands []string
	for _, r := range lost {
		route := fmt.Sprintf("ip route replace default via %s dev %s onlink", r.Gateway, name)
		if r.Metric > 0 {
			route += fmt.Sprintf(" metric %d", r.Metric)
		}
		commands = append(commands, route)
	}
	if len(commands) == 0 {
		return fixes
	}
	return warned(afterwards(fixes, sorted(commands)), "the default route moves to "+name+
		": do this from the remote console, and change the route in the configuration, too")
}

// onlyAddress reports whether a link has no other IPv4 address: with its last one, the kernel deletes its routes.
func (v view) onlyAddress(l Link, address netip.Prefix) bool {
	return !slices.ContainsFunc(v.Addresses, func(a Address) bool {
		return a.LinkIndex == l.Index && a.Prefix.Addr().Is4() && a.Prefix != address
	})
}

// fixEnslaved takes the VLAN interface out of a bridge. An address of the network, and the default route, that the
// bridge has move to it with the same commands; the bridge's other ports lose the network.
func fixEnslaved(v view) []Fix {
	l := v.vlan
	bridge := v.LinkIndexed(l.Master)
	commands := []string{"ip link set " + l.Name + " nomaster"}
	var moved []string
	for _, a := range v.Addresses {
		if a.LinkIndex == bridge.Index && v.ofNetwork(a) {
			moved = append(moved, a.Prefix.String())
		}
	}
	for _, address := range sorted(moved) {
		commands = append(commands, fmt.Sprintf("ip address add %s dev %s", address, l.Name),
			fmt.Sprintf("ip address delete %s dev %s", address, bridge.Name))
	}
	fixes := perTool(commands, fmt.Sprintf("remove %s from %s in the configuration, too", l.Name, bridge.Name))
	for i := range fixes {
		// systemd 252 takes the bridge's message about a lost port for the removal of the interface. It knows none of
		// its addresses then, and waits for its link-local one ("configuring") until it restarts. Below netplan there
		// may be NetworkManager instead.
		if fixes[i].Tool == Networkd {
			fixes[i].Commands = append(slices.Clone(commands), "systemctl restart systemd-networkd")
		}
		if fixes[i].Tool == Netplan {
			fixes[i].Commands = append(fixes[i].Commands, "systemctl try-restart systemd-networkd")
		}
	}
	if len(moved) > 0 {
		fixes = v.restoring(fixes, l.Name, v.defaultsOver(bridge.Index))
	}
	return warned(fixes, v.cutWith(*bridge, moved))
}

// ofNetwork reports whether an address is the node's own in the network.
func (v view) ofNetwork(a Address) bool {
	_, inBlock := v.block(a.Prefix.Addr())
	return a.Prefix.Addr().Is4() && !v.isVirtual(a) && (inBlock || slices.Contains(v.Network.IPs, a.Prefix.Addr()))
}

// cutWith says what loses the network when the VLAN interface leaves a bridge.
func (v view) cutWith(bridge Link, moved []string) string {
	var warnings []string
	if len(moved) > 0 {
		warnings = append(warnings, fmt.Sprintf("%s moves from %s to %s, and a connection over it stops meanwhile: do "+
			"this from the remote console", strings.Join(moved, " and "), bridge.Name, v.vlan.Name))
	} else if routes := v.defaultsOver(bridge.Index); len(routes) > 0 {
		warnings = append(warnings, fmt.Sprintf("the default route by %s leads over %s, which loses its way out",
			routes[0].Gateway, bridge.Name))
	}
	ports := sortedNames(v.Links, func(l Link) (string, bool) {
		return l.Name, l.Master == bridge.Index && l.Index != v.vlan.Index
	})
	if ports != "none" {
		warnings = append(warnings, fmt.Sprintf("what is behind the other ports of %s (%s) loses the network: give it "+
			"a bridge over %s first", bridge.Name, ports, v.trunk.Name))
	}
	return strings.Join(warnings, "; ")
}

// afterwards adds commands behind those of each fix that has any.
func afterwards(fixes []Fix, commands []string) []Fix {
	for i := range fixes {
		if len(fixes[i].Commands) > 0 {
			fixes[i].Commands = slices.Concat(fixes[i].Commands, commands)
		}
	}
	return fixes
}

// warned says before the commands of each fix what they take away.
func warned(fixes []Fix, warning string) []Fix {
	for i := range fixes {
		if len(fixes[i].Commands) > 0 {
			fixes[i].Warning = joinedNotes(fixes[i].Warning, warning)
		}
	}
	return fixes
}

// fixAddress puts the address on the VLAN interface. The files are those of fixVLAN, so that neither undoes the other.
func fixAddress(v view, ip netip.Addr) []Fix {
	p := planOf(v)
	fixes := p.fixes(nil)
	// First the right one: with its last address, the kernel deletes the routes of an interface.
	commands := []string{fmt.Sprintf("ip address add %s dev %s", v.prefixOf(ip), p.name)}
	var elsewhere []string
	var lost []Route
	for _, own := range v.own {
		if own.Addr() == ip {
			commands = append(commands, fmt.Sprintf("ip address delete %s dev %s", own, p.name))
			elsewhere = append(elsewhere, fmt.Sprintf("%s from %s", own, p.name))
		}
	}
	for _, a := range v.Addresses {
		holder := v.LinkIndexed(a.LinkIndex)
		if a.Prefix.Addr() != ip || holder == nil || holder.Name == p.name {
			continue
		}
		commands = append(commands, fmt.Sprintf("ip address delete %s dev %s", a.Prefix, holder.Name))
		elsewhere = append(elsewhere, fmt.Sprintf("%s from %s", ip, holder.Name))
		if v.onlyAddress(*holder, a.Prefix) {
			lost = append(lost, v.defaultsOver(holder.Index)...)
		}
	}
	slices.Sort(commands[1:])
	slices.Sort(elsewhere)
	for i := range fixes {
		switch {
		case fixes[i].Tool == IPRoute2:
			fixes[i].Commands = commands
			continue
		case fixes[i].Tool == Networkd && len(fixes[i].Commands) > 0:
			// Reload configures again only where a file changed; the address may have been deleted by hand.
			fixes[i].Commands = slices.Concat(p.networkdAddress(), fixes[i].Commands,
				[]string{"networkctl reconfigure " + p.name})
		}
		if len(elsewhere) > 0 && len(fixes[i].Commands) > 0 {
			// A tool takes away only what it has configured, and it may have done so.
			for _, c := range commands[1:] {
				fixes[i].Commands = append(fixes[i].Commands, c+orPass)
			}
			fixes[i].Note = joinedNotes(fixes[i].Note,
				"remove "+strings.Join(elsewhere, " and ")+" where it is configured, too")
		}
	}
	gone := v.beyond(lost)
	if len(gone) > 0 {
		fixes = warned(fixes, fmt.Sprintf("the default route by %s goes with the last address of the other interface: "+
			"give that one an address first", joined(gone)))
	}
	return v.restoring(fixes, p.name, slices.DeleteFunc(lost, func(r Route) bool {
		return slices.Contains(gone, r.Gateway)
	}))
}

// beyond are the gateways of routes that are in no block, so that the VLAN interface cannot take the routes over.
func (v view) beyond(routes []Route) []netip.Addr {
	var gateways []netip.Addr
	for _, r := range routes {
		if _, known := v.block(r.Gateway); !known {
			gateways = append(gateways, r.Gateway)
		}
	}
	slices.SortFunc(gateways, netip.Addr.Compare)
	return slices.Compact(gateways)
}

func fixLinkUp(name, note string, ifupdown ...string) []Fix {
	up := "ip link set " + name + " up"
	return []Fix{
		fix(Netplan, "", up, "netplan apply"), fix(NetworkManager, "", up, "nmcli device connect "+name),
		fix(Ifupdown, note, slices.Concat([]string{up}, ifupdown)...),
		fix(Networkd, "", up, "networkctl reconfigure "+name),
		fix(IPRoute2, "if it is up without a carrier, check the interfaces below it: ip -d link show "+name, up),
	}
}

// fixUplinkUp does not touch the members of a bond: the hook of ifenslave would set them down. ifup stops without
// --ignore-errors at the address, which is there still. The VLAN interface went down, too, and its routes are gone.
func fixUplinkUp(v view, name string) []Fix {
	ifupdown := []string{"ifup --force --ignore-errors --no-scripts " + name}
	note := "with ifupdown2, ifup " + name
	if v.vlan != nil {
		ifupdown = append(ifupdown, restartInterface(v.vlan.Name)...)
		note = joinedNotes(note, fmt.Sprintf("leave out the commands for %s where another tool configures it",
			v.vlan.Name))
	}
	return fixLinkUp(name, note, ifupdown...)
}

// fixMTU sets the MTU of the VLAN interface in a file of its own, which stands behind the one that sets another.
func fixMTU(v view) []Fix {
	p := planHere(v)
	set := fmt.Sprintf("ip link set %s mtu %d", p.name, internetMTU)
	return []Fix{
		p.netplanFile("91-phoenixnap-%s-mtu.yaml", fmt.Sprintf("      mtu: %d\n", internetMTU)),
		p.networkManager("", profileMTU),
		p.interfacesSection("mtu", inSections(p.name, "mtu", strconv.Itoa(internetMTU)), set),
		p.networkdDropIn("mtu", fmt.Sprintf("[Link]\nMTUBytes=%d\n", internetMTU)),
		fix(IPRoute2, volatile, set),
	}
}
