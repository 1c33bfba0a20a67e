package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

const (
	sysctlFile = "/etc/sysctl.d/90-phoenixnap.conf"
	// interfacesDirectory is where ifupdown of Debian reads sections from.
	interfacesDirectory = "/etc/network/interfaces.d/"
	volatile   = "lasts until the next reboot"
)

// plan is the configuration that the VLAN interface ought to have, with real values.
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
		return []Fix{{Tool: AnyTool, Note: fmt.Sprintf("name the interface with VLAN ID %d with --interface, or leave the option out: it is found by its ID", v.Network.VLAN)}}
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

// fixAddress puts the address on the VLAN interface.
func fixAddress(v view, ip netip.Addr) []Fix {
	p := planOf(v)
	p.address = v.prefixOf(ip)
	fixes := p.fixes(nil)
	for i := range fixes {
		if fixes[i].Tool == IPRoute2 {
			fixes[i].Commands = nil
			for _, own := range v.own {
				if own.Addr() == ip {
					fixes[i].Commands = append(fixes[i].Commands, fmt.Sprintf("ip address delete %s dev %s", own, p.name))
				}
			}
			for _, holder := range v.Holds(ip) {
				if holder != p.name {
					fixes[i].Commands = append(fixes[i].Commands, fmt.Sprintf("ip address flush dev %s to %s/32", holder, ip))
				}
			}
			fixes[i].Commands = append(fixes[i].Commands, fmt.Sprintf("ip address add %s dev %s", p.address, p.name))
		}
	}
	return fixes
}

// fixes writes the plan for every tool; remove are commands that must run first where nothing else removes what is wrong.
func (p plan) fixes(remove []string) []Fix {
	return slices.Concat([]Fix{p.netplan(remove), p.networkManager(remove), p.ifupdown(remove)}, p.networkd(remove), []Fix{p.ipRoute2(remove)})
}

func (p plan) netplan(remove []string) Fix {
	var b strings.Builder
	fmt.Fprintf(&b, "network:\n  version: 2\n  vlans:\n    %s:\n      id: %d\n      link: %s\n      mtu: %d\n", p.name, p.id, p.uplink, internetMTU)
	if p.address.IsValid() {
		fmt.Fprintf(&b, "      addresses: [%s]\n", p.address)
	}
	file := "/etc/netplan/90-phoenixnap-" + p.name + ".yaml"
	return Fix{Tool: Netplan, File: file, Content: b.String(),
		Commands: append(append([]string{"chmod 600 " + file}, remove...), "netplan apply")}
}

func (p plan) networkManager(remove []string) Fix {
	method := "ipv4.method disabled"
	if p.address.IsValid() {
		method = fmt.Sprintf("ipv4.method manual ipv4.addresses %s", p.address)
	}
	add := fmt.Sprintf("nmcli connection add type vlan con-name %[1]s ifname %[1]s dev %[2]s id %[3]d %[4]s 802-3-ethernet.mtu %[5]d",
		p.name, p.uplink, p.id, method, internetMTU)
	return Fix{Tool: NetworkManager, Commands: append(append([]string{}, remove...), add, "nmcli connection up "+p.name)}
}

func (p plan) ifupdown(remove []string) Fix {
	var b strings.Builder
	fmt.Fprintf(&b, "auto %s\n", p.name)
	if p.address.IsValid() {
		fmt.Fprintf(&b, "iface %s inet static\n  address %s\n", p.name, p.address)
	} else {
		fmt.Fprintf(&b, "iface %s inet manual\n", p.name)
	}
	fmt.Fprintf(&b, "  vlan-raw-device %s\n  vlan-id %d\n  mtu %d\n", p.uplink, p.id, internetMTU)
	return Fix{Tool: Ifupdown, File: "/etc/network/interfaces.d/" + p.name, Content: b.String(),
		Commands: append(append([]string{}, remove...), "ifup --force "+p.name)}
}

func (p plan) networkd(remove []string) []Fix {
	device := fmt.Sprintf("[NetDev]\nName=%s\nKind=vlan\nMTUBytes=%d\n[VLAN]\nId=%d\n", p.name, internetMTU, p.id)
	network := fmt.Sprintf("[Match]\nName=%s\n", p.name)
	if p.address.IsValid() {
		network += fmt.Sprintf("[Network]\nAddress=%s\n", p.address)
	}
	return []Fix{
		{Tool: Networkd, File: "/etc/systemd/network/90-" + p.name + ".netdev", Content: device},
		{Tool: Networkd, File: "/etc/systemd/network/90-" + p.name + ".network", Content: network,
			Commands: append(append([]string{}, remove...), "networkctl reload", "networkctl reconfigure "+p.uplink),
			Note:     fmt.Sprintf("the .network file of %s needs the line VLAN=%s in its section [Network]", p.uplink, p.name)},
	}
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
			Note: "when it is up and has no carrier, look at the interfaces below it: ip -d link show " + name},
	}
}

func fixMTU(name string) []Fix {
	return []Fix{
		{Tool: Netplan, Commands: []string{fmt.Sprintf("netplan set vlans.%s.mtu=%d", strings.ReplaceAll(name, ".", `\.`), internetMTU), "netplan apply"}},
		{Tool: NetworkManager, Commands: []string{fmt.Sprintf("nmcli connection modify %s 802-3-ethernet.mtu %d", name, internetMTU), "nmcli connection up " + name}},
		{Tool: Ifupdown, File: "/etc/network/interfaces.d/" + name, Content: fmt.Sprintf("  mtu %d\n", internetMTU), Commands: []string{"ifup --force " + name},
			Note: "a line of the interface's own section"},
		{Tool: Networkd, File: "/etc/systemd/network/90-" + name + ".network", Content: fmt.Sprintf("[Link]\nMTUBytes=%d\n", internetMTU),
			Commands: []string{"networkctl reload", "networkctl reconfigure " + name}},
		{Tool: IPRoute2, Commands: []string{fmt.Sprintf("ip link set %s mtu %d", name, internetMTU)}, Note: volatile},
	}
}
