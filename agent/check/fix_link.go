package check

import (
	"fmt"
	"strings"
)

func fixHardwareAddress(name, mac string) []Fix {
	const note = "remove the hardware address that the configuration gives the VLAN interface; it takes its uplink's by itself"
	return []Fix{
		{Tool: Netplan, Note: note + " (macaddress)", Commands: []string{fmt.Sprintf("netplan set vlans.%s.macaddress=null", strings.ReplaceAll(name, ".", `\.`)), "netplan apply"}},
		{Tool: NetworkManager, Note: note, Commands: []string{fmt.Sprintf(`nmcli connection modify %s 802-3-ethernet.cloned-mac-address ""`, name), "nmcli connection up " + name}},
		{Tool: Ifupdown, Note: note + " (hwaddress)", Commands: []string{"ifup --force " + name}},
		{Tool: Networkd, Note: note + " (MACAddress)", Commands: []string{"networkctl reload", "networkctl reconfigure " + name}},
		{Tool: IPRoute2, Commands: []string{fmt.Sprintf("ip link set %s address %s", name, mac)}, Note: volatile},
	}
}

// fixBondMode changes the mode where it is configured. The kernel changes it only while the bond has no members, so whoever
// works over that bond needs another way in.
func fixBondMode(name string) []Fix {
	const note = "the bond restarts: do this from the remote console, not over a connection that uses it"
	return []Fix{
		{Tool: Netplan, Commands: []string{fmt.Sprintf("netplan set bonds.%s.parameters.mode=%s", name, modeLACP), "netplan apply"}, Note: note},
		{Tool: NetworkManager, Commands: []string{fmt.Sprintf("nmcli connection modify %s +bond.options mode=%s", name, modeLACP), "nmcli connection up " + name}, Note: note},
		{Tool: Ifupdown, File: "/etc/network/interfaces", Content: "  bond-mode " + modeLACP + "\n", Commands: []string{"ifdown " + name, "ifup " + name},
			Note: "a line of the bond's own section; " + note},
		{Tool: Networkd, File: "/etc/systemd/network/" + name + ".netdev", Content: "[Bond]\nMode=" + modeLACP + "\n", Commands: []string{"networkctl reload"},
			Note: "networkd sets the mode when it makes the bond: restart the machine"},
		{Tool: IPRoute2, Note: "the kernel changes the mode only while the bond has no members; change it where the machine's network is configured"},
	}
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

func fixIntruder(v view, i intruder) []Fix {
	return perTool([]string{fmt.Sprintf("ip address delete %s dev %s", i.address, i.link)},
		fmt.Sprintf("remove %s from the configuration of %s, too; the blocks belong on %s", i.address, i.link, v.vlan.Name))
}

// perTool is one fix whose commands help at once; what lasts is left to the tool that configures the network.
func perTool(commands []string, lasting string) []Fix {
	apply := map[Tool][]string{
		Netplan: {"netplan apply"}, NetworkManager: {"nmcli connection reload"}, Ifupdown: nil, Networkd: {"networkctl reload"},
	}
	fixes := make([]Fix, 0, len(apply)+1)
	for _, tool := range []Tool{Netplan, NetworkManager, Ifupdown, Networkd} {
		fixes = append(fixes, Fix{Tool: tool, Commands: append(append([]string{}, commands...), apply[tool]...), Note: lasting})
	}
	return append(fixes, Fix{Tool: IPRoute2, Commands: commands, Note: volatile})
}
