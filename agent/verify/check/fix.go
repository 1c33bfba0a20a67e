package check

import (
	"fmt"
	"net/netip"
	"slices"
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
		return []Fix{{Tool: AnyTool, Note: fmt.Sprintf("set --interface to the interface with VLAN ID %d, or omit the "+
			"option: the interface is found by its ID", v.Network.VLAN)}}
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
		case len(elsewhere) > 0 && len(fixes[i].Commands) > 0:
			fixes[i].Note = joinedNotes(fixes[i].Note,
				"remove "+strings.Join(elsewhere, " and ")+" where it is configured, too")
		default:
		}
	}
	return fixes
}

// fixes writes the plan for every tool; remove are commands that must run first where nothing else removes what is
// wrong.
func (p plan) fixes(remove []string) []Fix {
	return slices.Concat([]Fix{p.netplan(remove), p.networkManager(remove), p.ifupdown(remove)}, p.networkd(remove),
		[]Fix{p.ipRoute2(remove)})
}

func (p plan) netplan(remove []string) Fix {
	return p.netplanFile(netplanMain, fmt.Sprintf("      mtu: %d\n", internetMTU), remove...)
}

// networkManager changes the connection where there is one of that name and adds it elsewhere: a second one of the same
// name would be neither an error nor of any use.
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
	return Fix{Tool: NetworkManager, Commands: append(append([]string{}, remove...), command,
		"nmcli connection up "+p.name)}
}

func (p plan) ifupdown(remove []string) Fix {
	method := "inet manual\n"
	if p.address.IsValid() {
		method = fmt.Sprintf("inet static\n  address %s\n", p.address)
	}
	return Fix{Tool: Ifupdown, File: interfacesFile(p.name, ""),
		Content: fmt.Sprintf("auto %[1]s\niface %[1]s %[2]s%[3]s  mtu %[4]d\n", p.name, method, p.rawDevice(),
			internetMTU),
		Commands: append(append([]string{}, remove...), "ifup --force "+p.name)}
}

func (p plan) networkd(remove []string) []Fix {
	device := fmt.Sprintf("[NetDev]\nName=%s\nKind=vlan\nMTUBytes=%d\n[VLAN]\nId=%d\n", p.name, internetMTU, p.id)
	network := fmt.Sprintf("[Match]\nName=%s\n", p.name)
	if p.address.IsValid() {
		network += fmt.Sprintf("[Network]\nAddress=%s\n", p.address)
	}
	return []Fix{
		{Tool: Networkd, File: networkdDirectory + "90-" + p.name + ".netdev", Content: device},
		{Tool: Networkd, File: networkdFile(p.name), Content: network,
			// Reload configures the uplink again by itself, for its file has changed.
			Commands: append(append([]string{}, remove...), p.networkdUplink(), "networkctl reload"),
			Note: fmt.Sprintf("the .network file of %[1]s needs the line VLAN=%[2]s in its section [Network]: the "+
				"command adds it in a drop-in; networkd removes the addresses of %[1]s for a moment when it reads "+
				"that; if networkctl status %[1]s lists no such file, another tool configures %[1]s", p.uplink,
				p.name)},
	}
}

// networkdUplink adds the VLAN to the uplink: networkd makes one only where the link below asks for it
// (systemd.netdev(5), section [VLAN]).
func (p plan) networkdUplink() string {
	return eachNetworkFile(p.uplink, "",
		fmt.Sprintf(`printf '[Network]\nVLAN=%[1]s\n' > "$f.d/90-phoenixnap-%[1]s.conf"`, p.name))
}

func (p plan) ipRoute2(remove []string) Fix {
	commands := append(append([]string{}, remove...),
		fmt.Sprintf("ip link add link %s name %s type vlan id %d", p.uplink, p.name, p.id),
		fmt.Sprintf("ip link set %s mtu %d up", p.name, internetMTU))
	if p.address.IsValid() {
		commands = append(commands, fmt.Sprintf("ip address add %s dev %s", p.address, p.name))
	}
	return Fix{Tool: IPRoute2, Commands: commands, Note: volatile}
}

func fixLinkUp(name string) []Fix {
	return []Fix{
		{Tool: Netplan, Commands: []string{"netplan apply"}},
		{Tool: NetworkManager, Commands: []string{"nmcli device connect " + name}},
		{Tool: Ifupdown, Commands: []string{"ifup --force " + name}},
		{Tool: Networkd, Commands: []string{"networkctl up " + name, "networkctl reconfigure " + name}},
		{Tool: IPRoute2, Commands: []string{"ip link set " + name + " up"},
			Note: "if it is up without a carrier, check the interfaces below it: ip -d link show " + name},
	}
}

// fixMTU sets the MTU of the VLAN interface in a file of its own, which stands behind the one that sets another.
func fixMTU(v view) []Fix {
	p := planHere(v)
	return []Fix{
		p.netplanFile("91-phoenixnap-%s-mtu.yaml", fmt.Sprintf("      mtu: %d\n", internetMTU)),
		{Tool: NetworkManager, Commands: []string{
			fmt.Sprintf("nmcli connection modify %s 802-3-ethernet.mtu %d", p.name, internetMTU),
			"nmcli connection up " + p.name},
			Note: connectionNote(p.name)},
		p.interfacesSection("mtu", fmt.Sprintf("  post-up ip link set %s mtu %d\n", p.name, internetMTU)),
		p.networkdDropIn("mtu", fmt.Sprintf("[Link]\nMTUBytes=%d\n", internetMTU)),
		{Tool: IPRoute2, Commands: []string{fmt.Sprintf("ip link set %s mtu %d", p.name, internetMTU)}, Note: volatile},
	}
}
