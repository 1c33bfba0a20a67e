package check

import (
	"fmt"
	"strings"
)

// fixNoCarrier shows where a carrier gets lost. No command restores one: the link is up already.
func fixNoCarrier(v view) []Fix {
	u := v.uplink
	if u.Bond == nil {
		return []Fix{{Tool: AnyTool, Commands: []string{"ip -br link show " + u.Name, "ethtool " + u.Name},
			Note: fmt.Sprintf("check the cable and the switch port of %s; without a link there, contact phoenixNAP "+
				"support",
				u.Name)}}
	}
	commands := []string{"ip -br link show master " + u.Name}
	var down []string
	b := v.bondOf(*u)
	for _, l := range b.members {
		commands = append(commands, "ethtool "+l.Name)
		if !l.Up {
			down = append(down, "ip link set "+l.Name+" up")
		}
	}
	fixes := []Fix{{Tool: AnyTool, Commands: append(commands, "cat /proc/net/bonding/"+u.Name), Note: noCarrierNote(b)}}
	if len(down) > 0 {
		fixes = append(fixes, Fix{Tool: IPRoute2, Commands: down, Note: volatile})
	}
	return fixes
}

func noCarrierNote(b bondState) string {
	names := b.names(func(Link) bool { return true })
	if len(names) == 0 {
		return b.name + " has no members: add its ports in the configuration of the machine's network"
	}
	return fmt.Sprintf("check the cable and the switch port of each member of %s (%s); "+
		"for a member that is up and has no link, contact phoenixNAP support", b.name, strings.Join(names, ", "))
}

func fixHardwareAddress(name, mac string) []Fix {
	const note = "remove the hardware address that the configuration gives the VLAN interface; it takes its uplink's " +
		"by itself"
	return []Fix{
		{Tool: Netplan, Note: note + " (macaddress)",
			Commands: []string{fmt.Sprintf("netplan set vlans.%s.macaddress=null", strings.ReplaceAll(name, ".", `\.`)),
				"netplan apply"}},
		{Tool: NetworkManager, Note: note,
			Commands: []string{fmt.Sprintf(`nmcli connection modify %s 802-3-ethernet.cloned-mac-address ""`, name),
				"nmcli connection up " + name}},
		{Tool: Ifupdown, Note: note + " (hwaddress)", Commands: []string{"ifup --force " + name}},
		{Tool: Networkd, Note: note + " (MACAddress)",
			Commands: []string{"networkctl reload", "networkctl reconfigure " + name}},
		{Tool: IPRoute2, Commands: []string{fmt.Sprintf("ip link set %s address %s", name, mac)}, Note: volatile},
	}
}

// fixBondMode changes the mode where it is configured. The kernel changes it only while the bond has no members, so
// whoever works over that bond needs another way in.
func fixBondMode(name string) []Fix {
	const note = "the bond restarts: do this from the remote console, not over a connection that uses it"
	return []Fix{
		{Tool: Netplan, Commands: []string{fmt.Sprintf("netplan set bonds.%s.parameters.mode=%s", name, modeLACP),
			"netplan apply"}, Note: note},
		{Tool: NetworkManager, Commands: []string{fmt.Sprintf("nmcli connection modify %s +bond.options mode=%s", name,
			modeLACP), "nmcli connection up " + name}, Note: note},
		{Tool: Ifupdown, Commands: []string{
			fmt.Sprintf(`sed -i '/^iface %s /,/^iface /s/^\( *bond-mode\) .*/\1 %s/' /etc/network/interfaces %s*`, name,
				modeLACP, interfacesDirectory),
			"ifdown " + name, "ifup " + name},
			Note: "a section of " + name + " without the line bond-mode needs one; " + note},
		{Tool: Networkd, Commands: []string{eachDeviceFile(name,
			`printf '[Bond]\nMode=`+modeLACP+`\n' > "$f.d/90-phoenixnap-mode.conf"`)},
			Note: "networkd sets the mode when it creates the bond: restart the machine"},
		{Tool: IPRoute2,
			Note: "the kernel changes the mode only while the bond has no members; change it where the machine's " +
				"network is configured"},
	}
}

// eachDeviceFile does something with the drop-in directory "$f.d" of the .netdev file by which networkd makes a link.
func eachDeviceFile(link, do string) string {
	files := make([]string, 0, 3)
	for _, directory := range []string{"/etc", "/run", "/usr/lib"} {
		files = append(files, directory+"/systemd/network/*.netdev")
	}
	return fmt.Sprintf(`grep -lsx 'Name=%s' %s | sed 's|.*/|%s|' | %s`, link, strings.Join(files, " "),
		networkdDirectory, eachDropIn(do))
}

// fixSecondInterface removes the VLAN interfaces of the same ID that are not the one on the uplink.
func fixSecondInterface(v view) []Fix {
	var commands []string
	for _, l := range v.Links {
		if l.VLAN != nil && l.Index != v.vlan.Index && l.VLAN.ID == v.Network.VLAN {
			commands = append(commands, "ip link delete "+l.Name)
		}
	}
	return perTool(sorted(commands), "remove it from the configuration of the machine's network, too")
}

func fixForeignAddress(v view, i foreignAddress) []Fix {
	return perTool([]string{fmt.Sprintf("ip address delete %s dev %s", i.address, i.link)},
		fmt.Sprintf("remove %s from the configuration of %s, too; the blocks belong on %s", i.address, i.link,
			v.vlan.Name))
}

// perTool is one fix whose commands help at once; what lasts is left to the tool that configures the network.
func perTool(commands []string, lasting string) []Fix {
	apply := map[Tool][]string{
		Netplan: {"netplan apply"}, NetworkManager: {"nmcli connection reload"}, Ifupdown: nil,
		Networkd: {"networkctl reload"},
	}
	fixes := make([]Fix, 0, len(apply)+1)
	for _, tool := range []Tool{Netplan, NetworkManager, Ifupdown, Networkd} {
		fixes = append(fixes, Fix{Tool: tool, Commands: append(append([]string{}, commands...), apply[tool]...),
			Note: lasting})
	}
	return append(fixes, Fix{Tool: IPRoute2, Commands: commands, Note: volatile})
}
