package check

import (
	"fmt"
	"net/netip"
)

// fixSysctl sets net.ipv4.conf.<interface>.<key>, with slashes because the name of a VLAN interface has a dot
// (sysctl.d(5)). With all, the value of "all" stands in the way and is set too.
func fixSysctl(name, key string, value int, all bool) []Fix {
	content := fmt.Sprintf("net/ipv4/conf/%s/%s = %d\n", name, key, value)
	if all {
		content += fmt.Sprintf("net/ipv4/conf/all/%s = %d\n", key, value)
	}
	return []Fix{{Tool: AnyTool, File: sysctlFile, Content: content, Commands: []string{"sysctl -p " + sysctlFile}}}
}

// fixReturnPath sends what comes from the block back through it. A rule by source serves programs that listen on the
// node itself; what kube-proxy translates needs the default route there, or marks on connections.
func fixReturnPath(v view, source netip.Addr) []Fix {
	block, known := v.block(source)
	if !known {
		return nil
	}
	name, table := v.vlan.Name, v.Table()
	const note = "serves programs that listen on the node itself; for Services behind kube-proxy make the gateway the node's default gateway"
	routes := fmt.Sprintf("routes:\n        - {to: default, via: %s, table: %d}\n      routing-policy:\n        - {from: %s, table: %d, priority: %d}\n",
		block.Gateway, table, block.CIDR, table, table)
	return []Fix{
		{Tool: Netplan, File: "/etc/netplan/90-phoenixnap-" + name + ".yaml", Note: note,
			Content:  fmt.Sprintf("network:\n  version: 2\n  vlans:\n    %s:\n      %s", name, routes),
			Commands: []string{"netplan apply"}},
		{Tool: NetworkManager, Note: note, Commands: []string{
			fmt.Sprintf(`nmcli connection modify %s +ipv4.routes "0.0.0.0/0 %s table=%d" +ipv4.routing-rules "priority %d from %s table %d"`,
				name, block.Gateway, table, table, block.CIDR, table),
			"nmcli connection up " + name}},
		{Tool: Ifupdown, File: "/etc/network/interfaces.d/" + name, Commands: []string{"ifup --force " + name}, Note: note + "; lines of the interface's own section",
			Content: fmt.Sprintf("  post-up ip route replace default via %s dev %s table %d\n  post-up ip rule add from %s lookup %d pref %d\n",
				block.Gateway, name, table, block.CIDR, table, table)},
		{Tool: Networkd, File: "/etc/systemd/network/90-" + name + ".network", Note: note,
			Content: fmt.Sprintf("[Route]\nGateway=%s\nTable=%d\n[RoutingPolicyRule]\nFrom=%s\nTable=%d\nPriority=%d\n",
				block.Gateway, table, block.CIDR, table, table),
			Commands: []string{"networkctl reload", "networkctl reconfigure " + name}},
		{Tool: IPRoute2, Note: note + "; " + volatile, Commands: []string{
			fmt.Sprintf("ip route replace default via %s dev %s table %d", block.Gateway, name, table),
			fmt.Sprintf("ip rule add from %s lookup %d pref %d", block.CIDR, table, table)}},
	}
}
