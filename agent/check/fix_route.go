package check

import (
	"fmt"
	"net/netip"
)

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

// fixServiceReplies offers the three ways that replies of pods can take.
func fixServiceReplies(v view) []Fix {
	blocks := v.blocks4()
	if len(blocks) == 0 {
		return []Fix{{Tool: AnyTool, Note: "make the gateway of the public network the node's default gateway once a block is assigned"}}
	}
	name, table, gateway := v.vlan.Name, v.Table(), blocks[0].Gateway
	const mark = "0x2000/0x2000"
	return []Fix{
		{Tool: AnyTool, Note: fmt.Sprintf("either make %s the node's default gateway, or run the agent with --manage=return-path, or mark the connections of Services as below; a rule by source alone does not help", gateway)},
		{Tool: IPRoute2, Note: volatile, Commands: []string{
			"nft add table ip phoenixnap",
			"nft add chain ip phoenixnap prerouting '{ type filter hook prerouting priority mangle - 10; }'",
			fmt.Sprintf("nft add rule ip phoenixnap prerouting iifname %s ct state new ct mark set ct mark or 0x2000", name),
			fmt.Sprintf("nft add rule ip phoenixnap prerouting iifname != %s ct direction reply ct mark and 0x2000 == 0x2000 meta mark set meta mark or 0x2000", name),
			fmt.Sprintf("ip route replace default via %s dev %s table %d", gateway, name, table),
			fmt.Sprintf("ip rule add pref 1055 fwmark %s lookup %d", mark, table),
		}},
	}
}

// fixTable puts the default route back into a table that lost it.
func fixTable(v view, table int) []Fix {
	blocks := v.blocks4()
	if len(blocks) == 0 {
		return []Fix{{Tool: AnyTool, Note: fmt.Sprintf("no block is assigned: delete the rule that leads to table %d", table)}}
	}
	name, gateway := v.vlan.Name, blocks[0].Gateway
	if source, found := v.source(); found {
		if b, known := v.block(source); known {
			gateway = b.Gateway
		}
	}
	route := fmt.Sprintf("ip route replace default via %s dev %s table %d", gateway, name, table)
	return []Fix{
		{Tool: Netplan, Commands: []string{"netplan apply"}, Note: fmt.Sprintf("the route with table: %d belongs to %s in the configuration", table, name)},
		{Tool: NetworkManager, Commands: []string{"nmcli connection up " + name}, Note: fmt.Sprintf("the connection %s needs the route with table=%d in ipv4.routes", name, table)},
		{Tool: Ifupdown, Commands: []string{"ifup --force " + name}, Note: "the interface's own section needs the line post-up " + route},
		{Tool: Networkd, Commands: []string{"networkctl reconfigure " + name},
			Note: "routes that others made are deleted when it restarts, unless networkd.conf says ManageForeignRoutes=no and ManageForeignRoutingPolicyRules=no"},
		{Tool: IPRoute2, Commands: []string{route}, Note: volatile},
	}
}

// fixNoRoute gives the node a way back to its clients.
func fixNoRoute(v view) []Fix {
	source, _ := v.source()
	b, known := v.block(source)
	if !known {
		return []Fix{{Tool: AnyTool, Commands: []string{"ip route show", "ip rule show"}, Note: "the node needs a default route"}}
	}
	return perTool([]string{fmt.Sprintf("ip route add default via %s dev %s", b.Gateway, v.vlan.Name)}, "add a default route to the configuration of the machine's network")
}
