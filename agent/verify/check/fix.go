package check

import (
	"fmt"
	"net/netip"
	"path"
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
		if fixes[i].Tool == Networkd { // else its state stays "configuring"
			fixes[i].Commands = append(fixes[i].Commands, "networkctl reconfigure "+l.Name)
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

// fixes writes the plan for every tool; remove are commands that run first, to remove what is wrong.
func (p plan) fixes(remove []string) []Fix {
	netplan := p.netplanFile(netplanMain, fmt.Sprintf("      mtu: %d\n", internetMTU), remove...)
	profile := p.networkManager("", p.profileVLAN())
	profile.Commands = slices.Concat(remove, profile.Commands)
	return slices.Concat([]Fix{netplan, profile, p.ifupdown(remove)}, p.networkd(remove),
		[]Fix{p.ipRoute2(remove)})
}

// ifupdown writes a section that stands beside one of a person, before or behind it: ifupdown runs all sections of an
// interface, and stops at the first command that fails, such as one that adds an existing address.
func (p plan) ifupdown(remove []string) Fix {
	address := ""
	note := ""
	if p.address.IsValid() {
		address = fmt.Sprintf("  post-up ifquery %[1]s | grep -Eqx 'address: %[2]s(/.*)?' || "+
			"ip address replace %[3]s dev %[1]s\n", p.name, p.address.Addr(), p.address)
		note = "the line post-up adds the address unless another section of " + p.name + " has it"
	}
	return Fix{Tool: Ifupdown, File: interfacesFile(p.name, ""),
		Content: fmt.Sprintf("auto %[1]s\niface %[1]s inet manual\n%[2]s  mtu %[3]d\n%[4]s", p.name, p.rawDevice(),
			internetMTU, address),
		Commands: slices.Concat(remove, restartInterface(p.name)), Note: note}
}

// restartInterface sets an interface up again by ifupdown. With --force, ifup would set up the link below, too, and the
// hook of ifenslave sets the members of a bond down then. ifdown needs the option where a person deleted the interface.
func restartInterface(name string) []string {
	return []string{"ifdown --force " + name, "ifup " + name}
}

func (p plan) networkd(remove []string) []Fix {
	var own []string
	apply := "networkctl reload"
	if len(remove) > 0 {
		// Of several .netdev files for one name networkd takes the first, by the order of their names, and it keeps
		// what it has read of them until it restarts.
		apply = "systemctl restart systemd-networkd"
		own = append(p.networkdAddress(), eachDeviceFile(p.name, "90-"+p.name+".netdev",
			fmt.Sprintf(`printf '[VLAN]\nId=%d\n' > "$f.d/90-phoenixnap-id.conf"`, p.id)))
	}
	device := fmt.Sprintf("[NetDev]\nName=%s\nKind=vlan\nMTUBytes=%d\n[VLAN]\nId=%d\n", p.name, internetMTU, p.id)
	network := fmt.Sprintf("[Match]\nName=%s\n", p.name)
	if p.address.IsValid() {
		network += fmt.Sprintf("[Network]\nAddress=%s\n", p.address)
	}
	uplink := eachNetworkFile(p.uplink, "",
		fmt.Sprintf(`printf '[Network]\nVLAN=%[1]s\n' > "$f.d/90-phoenixnap-%[1]s.conf"`, p.name))
	return []Fix{
		{Tool: Networkd, File: networkdDirectory + "90-" + p.name + ".netdev", Content: device},
		{Tool: Networkd, File: networkdFile(p.name), Content: network,
			// networkd makes a VLAN only where the link below asks for it (systemd.netdev(5), section [VLAN]). Reload
			// configures the uplink again by itself, for its file has changed.
			Commands: slices.Concat(own, remove, []string{uplink, apply}),
			Note: fmt.Sprintf("the .network file of %[1]s needs the line VLAN=%[2]s in its section [Network]: the "+
				"command adds it in a drop-in; networkd removes the addresses of %[1]s for a moment when it reads "+
				"that; if networkctl status %[1]s lists no such file, another tool configures %[1]s", p.uplink,
				p.name)},
	}
}

// networkdAddress puts the address beside the .network file of a person, by which networkd configures the interface in
// place of ours.
func (p plan) networkdAddress() []string {
	if !p.address.IsValid() {
		return nil
	}
	return []string{eachNetworkFile(p.name, path.Base(networkdFile(p.name)),
		fmt.Sprintf(`printf '[Network]\nAddress=%s\n' > "$f.d/90-phoenixnap-address.conf"`, p.address))}
}

func (p plan) ipRoute2(remove []string) Fix {
	commands := slices.Concat(remove, []string{
		fmt.Sprintf("ip link add link %s name %s type vlan id %d", p.uplink, p.name, p.id),
		fmt.Sprintf("ip link set %s mtu %d up", p.name, internetMTU)})
	if p.address.IsValid() {
		commands = append(commands, fmt.Sprintf("ip address add %s dev %s", p.address, p.name))
	}
	return fix(IPRoute2, volatile, commands...)
}

// fixLinkUp sets a link up, and lets its tool restore the addresses and routes that went with it. No tool sets up a
// link that it does not configure. ifupdown are its commands for that.
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

// Each file that a fix writes is whole and written by nothing else: a person follows several findings, in any order,
// and what one of them wrote has to stand after the next. Where a tool reads one file for an interface, further
// settings go into a drop-in or a section of their own.
const (
	netplanDirectory  = "/etc/netplan/"
	networkdDirectory = "/etc/systemd/network/"
	// interfacesDirectory is where ifupdown of Debian reads sections from.
	interfacesDirectory = "/etc/network/interfaces.d/"
	// netplanMain is the name of the file that makes the VLAN interface; others come behind it.
	netplanMain = "90-phoenixnap-%s.yaml"
)

// planHere is the plan of an interface that exists: with the address that it carries where the membership lists none.
func planHere(v view) plan {
	p := planOf(v)
	if source, found := v.source(); found && !p.address.IsValid() {
		p.address = v.prefixOf(source)
	}
	return p
}

// netplanFile is a file of netplan with settings of the VLAN interface. netplan merges files by their keys, in the
// order of their names, and refuses an interface that no file gives an ID and a link; then it generates nothing at all,
// the bond included. So each file repeats what makes the interface complete, the address too: an interface that a
// person made by hand would lose it. name is the file's, with %s for the interface.
func (p plan) netplanFile(name, settings string, remove ...string) Fix {
	var b strings.Builder
	fmt.Fprintf(&b, "network:\n  version: 2\n  vlans:\n    %s:\n      id: %d\n      link: %s\n", p.name, p.id, p.uplink)
	address := ""
	if p.address.IsValid() {
		address = fmt.Sprintf("      addresses: [%s]\n", p.address)
	}
	if name == netplanMain {
		b.WriteString(settings + address)
	} else {
		b.WriteString(address + settings)
	}
	file := netplanDirectory + fmt.Sprintf(name, p.name)
	commands := []string{"chmod 600 " + file, fmt.Sprintf("netplan generate || mv %[1]s %[1]s.rejected", file)}
	if len(remove) > 0 {
		// networkd keeps what it has read of an interface that it makes until it restarts, and netplan apply only
		// reloads it. It may not run: netplan configures NetworkManager, too.
		remove = append(slices.Clone(remove), "systemctl try-restart systemd-networkd")
	}
	return Fix{Tool: Netplan, File: file, Content: b.String(),
		Commands: slices.Concat(commands, remove, []string{"netplan apply"})}
}

// interfacesFile is a file of ifupdown. With source-directory, ifupdown reads only names without dots (interfaces(5)).
func interfacesFile(name, purpose string) string {
	return interfacesDirectory + strings.TrimSuffix("phoenixnap-"+strings.ReplaceAll(name, ".", "-")+"-"+purpose, "-")
}

func (p plan) rawDevice() string {
	return fmt.Sprintf("  vlan-raw-device %s\n  vlan-id %d\n", p.uplink, p.id)
}

// interfacesSection is a further section of the interface: ifupdown runs all that have its name, in the order in which
// it reads them. A script in if-up.d would not do, for ifupdown2 runs none by default. Its commands are run now, too,
// so that the interface need not restart; first runs before them. In the section one that fails does not stop the rest.
func (p plan) interfacesSection(purpose, first string, commands ...string) Fix {
	var content strings.Builder
	fmt.Fprintf(&content, "iface %s inet manual\n%s", p.name, p.rawDevice())
	for _, c := range commands {
		content.WriteString("  post-up " + strings.TrimSuffix(c, orPass) + orPass + "\n")
	}
	if first != "" {
		commands = slices.Insert(slices.Clone(commands), 0, first)
	}
	return Fix{Tool: Ifupdown, File: interfacesFile(p.name, purpose), Content: content.String(), Commands: commands}
}

// orPass lets a command fail, such as one that adds an existing rule.
const orPass = " || true"

// inSections changes an option of ifupdown in all sections of an interface that have it. There may be no file with
// further sections.
func inSections(name, option, value string) string {
	return fmt.Sprintf(`find /etc/network/interfaces %s -type f -exec `+
		`sed -i '/^iface %s /,/^iface /s/^\([[:space:]]*%s\)[[:space:]].*/\1 %s/' {} +`,
		interfacesDirectory, name, option, value)
}

// networkdFile is the .network file that makes the VLAN interface.
func networkdFile(name string) string { return networkdDirectory + "90-" + name + ".network" }

// networkdDropIn is a drop-in of the VLAN interface's .network file (systemd.network(5)). It stands beside the file of
// fixVLAN; where another file configures the interface, the command puts it beside that one, too.
func (p plan) networkdDropIn(purpose, content string) Fix {
	main := networkdFile(p.name)
	file := main + ".d/90-phoenixnap-" + purpose + ".conf"
	link := eachNetworkFile(p.name, path.Base(main), fmt.Sprintf(`ln -sf %s "$f.d/"`, file))
	return Fix{Tool: Networkd, File: file, Content: content,
		Commands: []string{link, "networkctl reload", "networkctl reconfigure " + p.name}}
}

// eachNetworkFile does something with the drop-in directory "$f.d" of the .network file by which networkd configures a
// link, wherever that file is: drop-ins below /etc belong to files below /run and /usr, too. It does nothing where
// there is no such file, or where it is the one to be left out.
func eachNetworkFile(link, but, do string) string {
	return fmt.Sprintf(`networkctl status %s | sed -n '%ss|^ *Network File: /.*/|%s|p' | %s`,
		link, leftOut(but), networkdDirectory, eachDropIn(do))
}

// leftOut is the command of sed that deletes the lines about a file.
func leftOut(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(`\|/%s$|d; `, name)
}

// eachDropIn does something with the directory "$f.d" of each file whose name it reads.
func eachDropIn(do string) string {
	return fmt.Sprintf(`while read -r f; do mkdir -p "$f.d" && %s; done`, do)
}

func fix(tool Tool, note string, commands ...string) Fix {
	return Fix{Tool: tool, Commands: commands, Note: note}
}

// anyTool is a fix that is the same whatever configures the network.
func anyTool(note string, commands ...string) []Fix { return []Fix{fix(AnyTool, note, commands...)} }

// perTool is one fix whose commands help at once; what lasts is left to the tool that configures the network.
func perTool(commands []string, note string) []Fix {
	with := func(tool Tool, apply ...string) Fix { return fix(tool, note, slices.Concat(commands, apply)...) }
	return []Fix{
		with(Netplan, "netplan apply"), with(NetworkManager, "nmcli connection reload"), with(Ifupdown),
		with(Networkd, "networkctl reload"), fix(IPRoute2, volatile, commands...),
	}
}
