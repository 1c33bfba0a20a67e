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
	p := plan{name: fmt.Sprintf("%s.%d", v.uplink.Name, v.Network.VLAN), uplink: v.uplink.Name, id: v.Network.VLAN}
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
	p := planOf(v)
	var remove []string
	wrong := v.vlan
	if wrong == nil {
		wrong = v.misnumbered()
	}
	if wrong != nil {
		remove = []string{"ip link delete " + wrong.Name}
		// Names such as eno1.100 speak of the link below; on another link they would mislead.
		p.name = fmt.Sprintf("%s.%d", v.uplink.Name, v.Network.VLAN)
		if v.Interface != "" || wrong.Parent == v.uplink.Index {
			p.name = wrong.Name
		}
	}
	return p.fixes(remove)
}

// fixAddress puts the address on the VLAN interface. The files are those of fixVLAN, so that neither undoes the other.
func fixAddress(v view, ip netip.Addr) []Fix {
	p := planOf(v)
	fixes := p.fixes(nil)
	var commands, elsewhere []string
	for _, own := range v.own {
		if own.Addr() == ip {
			commands = append(commands, fmt.Sprintf("ip address delete %s dev %s", own, p.name))
			elsewhere = append(elsewhere, fmt.Sprintf("%s from %s", own, p.name))
		}
	}
	for _, holder := range v.Holds(ip) {
		if holder != p.name {
			commands = append(commands, fmt.Sprintf("ip address flush dev %s to %s/32", holder, ip))
			elsewhere = append(elsewhere, fmt.Sprintf("%s from %s", ip, holder))
		}
	}
	commands = append(commands, fmt.Sprintf("ip address add %s dev %s", v.prefixOf(ip), p.name))
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
			fixes[i].Note = joinedNotes(fixes[i].Note,
				"remove "+strings.Join(elsewhere, " and ")+" where it is configured, too")
		}
	}
	return fixes
}

// fixes writes the plan for every tool; remove are commands that run first, to remove what is wrong.
func (p plan) fixes(remove []string) []Fix {
	netplan := p.netplanFile(netplanMain, fmt.Sprintf("      mtu: %d\n", internetMTU), remove...)
	return slices.Concat([]Fix{netplan, p.networkManager(remove), p.ifupdown(remove)}, p.networkd(remove),
		[]Fix{p.ipRoute2(remove)})
}

// networkManager changes the connection of that name if there is one, for a second one would be of no use.
func (p plan) networkManager(remove []string) Fix {
	modify := ""
	method := "ipv4.method disabled"
	if p.address.IsValid() {
		method = fmt.Sprintf("ipv4.method manual ipv4.addresses %s", p.address)
		modify = method + " "
	}
	mtu := fmt.Sprintf("802-3-ethernet.mtu %d", internetMTU)
	command := fmt.Sprintf("nmcli connection modify %[1]s vlan.parent %[2]s vlan.id %[3]d %[4]s%[5]s 2>/dev/null || "+
		"nmcli connection add type vlan con-name %[1]s ifname %[1]s dev %[2]s id %[3]d %[6]s %[5]s",
		p.name, p.uplink, p.id, modify, mtu, method)
	return fix(NetworkManager, "", slices.Concat(remove, []string{command, "nmcli connection up " + p.name})...)
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
// --ignore-errors at the address, which is there still.
func fixUplinkUp(name string) []Fix {
	return fixLinkUp(name, "with ifupdown2, ifup "+name, "ifup --force --ignore-errors --no-scripts "+name)
}

// fixMTU sets the MTU of the VLAN interface in a file of its own, which stands behind the one that sets another.
func fixMTU(v view) []Fix {
	p := planHere(v)
	set := fmt.Sprintf("ip link set %s mtu %d", p.name, internetMTU)
	return []Fix{
		p.netplanFile("91-phoenixnap-%s-mtu.yaml", fmt.Sprintf("      mtu: %d\n", internetMTU)),
		fix(NetworkManager, connectionNote(p.name),
			fmt.Sprintf("nmcli connection modify %s 802-3-ethernet.mtu %d", p.name, internetMTU),
			"nmcli connection up "+p.name),
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

// inSections changes an option of ifupdown in all sections of an interface that have it.
func inSections(name, option, value string) string {
	return fmt.Sprintf(`sed -i '/^iface %s /,/^iface /s/^\([[:space:]]*%s\)[[:space:]].*/\1 %s/' `+
		`/etc/network/interfaces %s*`, name, option, value, interfacesDirectory)
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

// connectionNote: a connection has a name of its own, which a person may have chosen.
func connectionNote(name string) string {
	return fmt.Sprintf("if the connection of %[1]s has another name, use that name in place of %[1]s (nmcli -f "+
		"NAME,DEVICE connection show)", name)
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
