package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Priorities of rules that a person sets, the same as those of the managing agent.
const (
	markPriority   = 1055
	localPriority  = 1056
	sourcePriority = 1057
)

// replyBits are the bits of the mark that the fixes use: the default of the managing agent, which reports a clash.
const replyBits = 0xf0

// replyRoute is how replies of one block leave.
type replyRoute struct {
	name    string
	block   netip.Prefix
	gateway netip.Addr
	table   int
	// mark is the packet mark, 0 where only the programs of the node itself are served.
	mark uint32
}

// replyRoutes are those of all blocks, as many as the bits can distinguish.
func (v view) replyRoutes() []replyRoute {
	var ways []replyRoute
	for i, b := range v.blocks4() {
		mark := uint32(i+1) << 4 & replyBits
		if mark == 0 {
			break
		}
		ways = append(ways, replyRoute{name: v.vlan.Name, block: b.CIDR, gateway: b.Gateway,
			table: v.Table() + i*TableStep, mark: mark})
	}
	return ways
}

// fixReturnPath sends what comes from the block back through it. A rule by source serves programs that listen on the
// node itself; what kube-proxy translates needs the default route there, or marks on connections.
func fixReturnPath(v view, source netip.Addr) []Fix {
	ways := v.replyRoutes()
	i := slices.IndexFunc(ways, func(w replyRoute) bool { return w.block.Contains(source) })
	if i < 0 {
		return nil
	}
	const note = "serves programs that listen on the node itself; for Services behind kube-proxy make the gateway " +
		"the node's default gateway, or run the agent with --manage=return-path"
	for j := range ways {
		ways[j].mark = 0
	}
	p := planHere(v)
	return byTool(append(fixReplyRoutes(p, ways, note), networkManagerFix(p, ways, note),
		fix(IPRoute2, joinedNotes(note, volatile), ways[i].ipRoute2()...)))
}

// fixReplyRoutes writes the routes of all blocks, and the rules by source, for the tools that read files. Both findings
// about replies write the same, so that neither undoes the other.
func fixReplyRoutes(p plan, ways []replyRoute, note string) []Fix {
	var routes, rules, networkd strings.Builder
	var commands []string
	for _, w := range ways {
		w.mark = 0 // fixMarks has the rules by mark
		routes.WriteString(w.netplanRoute())
		rules.WriteString(w.netplanRules())
		networkd.WriteString(w.networkd())
		commands = append(commands, orThere(w.ipRoute2())...)
	}
	fixes := []Fix{
		p.netplanFile("91-phoenixnap-%s-routes.yaml",
			"      routes:\n"+routes.String()+"      routing-policy:\n"+rules.String()),
		p.interfacesSection("routes", "", commands...),
		p.networkdDropIn("routes", networkd.String()),
	}
	for i := range fixes {
		fixes[i].Note = note
	}
	return fixes
}

// fixMarks adds the rules by mark, which only replies of Services need, in files of their own. netplan knows no mask
// for marks, so there they go beside the file that it writes for systemd-networkd.
func fixMarks(p plan, ways []replyRoute) []Fix {
	var networkd strings.Builder
	var rules []string
	for _, w := range ways {
		networkd.WriteString(w.networkdMark())
		rules = append(rules, w.markRule())
	}
	return []Fix{
		{Tool: Netplan, File: networkdDirectory + "10-netplan-" + p.name + ".network.d/return-path.conf",
			Content:  networkd.String(),
			Commands: []string{"networkctl reload", "networkctl reconfigure " + p.name},
			Note: "netplan does not support masks for marks: the rules by mark go into a drop-in of " +
				"systemd-networkd"},
		p.interfacesSection("marks", "", orThere(rules)...),
		p.networkdDropIn("marks", networkd.String()),
	}
}

// orThere lets the commands that add rules pass where the rules exist.
func orThere(commands []string) []string {
	passing := slices.Clone(commands)
	for i, c := range passing {
		if strings.HasPrefix(c, "ip rule add ") {
			passing[i] += orPass
		}
	}
	return passing
}

// networkManagerFix appends to the profile; nmcli does not add a route or rule twice.
func networkManagerFix(p plan, ways []replyRoute, note string) Fix {
	var arguments []string
	for _, w := range ways {
		arguments = append(arguments, w.networkManager())
	}
	return p.networkManager(note, arguments...)
}

// byTool puts the fixes of each tool side by side.
func byTool(fixes []Fix) []Fix {
	order := []Tool{AnyTool, Netplan, NetworkManager, Ifupdown, Networkd, IPRoute2}
	slices.SortStableFunc(fixes, func(a, b Fix) int {
		return slices.Index(order, a.Tool) - slices.Index(order, b.Tool)
	})
	return fixes
}

func joinedNotes(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
}

func (w replyRoute) fwmark() string { return fmt.Sprintf("%#x/%#x", w.mark, replyBits) }

// ipRoute2 are the commands of the way. The rule that passes over default routes keeps what the node sends to pods and
// to its other networks where it was.
func (w replyRoute) ipRoute2() []string {
	commands := []string{w.defaultRoute()}
	if w.mark != 0 {
		commands = append(commands, w.markRule())
	}
	return append(commands,
		fmt.Sprintf("ip rule add pref %d from %s lookup main suppress_prefixlength 0", localPriority, w.block),
		fmt.Sprintf("ip rule add pref %d from %s lookup %d", sourcePriority, w.block, w.table))
}

func (w replyRoute) defaultRoute() string {
	return fmt.Sprintf("ip route replace default via %s dev %s onlink table %d", w.gateway, w.name, w.table)
}

func (w replyRoute) markRule() string {
	return fmt.Sprintf("ip rule add pref %d fwmark %s lookup %d", markPriority, w.fwmark(), w.table)
}

func (w replyRoute) networkd() string {
	return fmt.Sprintf("[Route]\nGateway=%s\nGatewayOnLink=yes\nTable=%d\n", w.gateway, w.table) +
		fmt.Sprintf("[RoutingPolicyRule]\nFrom=%s\nTable=main\nSuppressPrefixLength=0\nPriority=%d\n", w.block,
			localPriority) +
		fmt.Sprintf("[RoutingPolicyRule]\nFrom=%s\nTable=%d\nPriority=%d\n", w.block, w.table, sourcePriority)
}

func (w replyRoute) networkdMark() string {
	return fmt.Sprintf("[RoutingPolicyRule]\nFirewallMark=%d/%d\nTable=%d\nPriority=%d\n", w.mark, replyBits, w.table,
		markPriority)
}

func (w replyRoute) networkManager() string {
	mark := ""
	if w.mark != 0 {
		mark = fmt.Sprintf(`+ipv4.routing-rules "priority %d from 0.0.0.0/0 fwmark %s table %d" `, markPriority,
			w.fwmark(), w.table)
	}
	return fmt.Sprintf(`+ipv4.routes "0.0.0.0/0 %s table=%d onlink=true" %s`, w.gateway, w.table, mark) +
		fmt.Sprintf(`+ipv4.routing-rules "priority %d from %s table 254 suppress_prefixlength 0" `, localPriority,
			w.block) +
		fmt.Sprintf(`+ipv4.routing-rules "priority %d from %s table %d"`, sourcePriority, w.block, w.table)
}

func (w replyRoute) netplanRoute() string {
	return fmt.Sprintf("        - {to: default, via: %s, on-link: true, table: %d}\n", w.gateway, w.table)
}

// netplanRules name the networks of pods and private addresses: netplan cannot pass over default routes.
func (w replyRoute) netplanRules() string {
	var b strings.Builder
	for _, inner := range contract.PrivateNetworks() {
		fmt.Fprintf(&b, "        - {from: %s, to: %s, table: 254, priority: %d}\n", w.block, inner, localPriority)
	}
	fmt.Fprintf(&b, "        - {from: %s, table: %d, priority: %d}\n", w.block, w.table, sourcePriority)
	return b.String()
}

// fixTable puts the default route back into a table that lost it. The tables of the blocks get the routes that
// fixReturnPath writes.
func fixTable(v view, table int) []Fix {
	ways := v.replyRoutes()
	if len(ways) == 0 {
		return anyTool(fmt.Sprintf("no block is assigned: delete the rule that leads to table %d", table))
	}
	for i := range ways {
		ways[i].mark = 0
	}
	const note = "the routes of all tables of the network, and the rules by source"
	if i := slices.IndexFunc(ways, func(w replyRoute) bool { return w.table == table }); i >= 0 {
		p := planHere(v)
		return byTool(append(fixReplyRoutes(p, ways, note), networkManagerFix(p, ways, note),
			fix(IPRoute2, volatile, ways[i].defaultRoute())))
	}
	source, _ := v.source()
	i := max(0, slices.IndexFunc(ways, func(w replyRoute) bool { return w.block.Contains(source) }))
	ways[i].table = table
	return anyTool(joinedNotes(volatile, fmt.Sprintf("add the default route by %s in table %d to the configuration "+
		"that adds the rule, too", v.vlan.Name, table)), ways[i].defaultRoute())
}

// lastMetric keeps a default route behind all that the machine may get by other interfaces.
const lastMetric = 4096

// fixNoRoute gives the node a way back to its clients, in a file of its own.
func fixNoRoute(v view) []Fix {
	source, _ := v.source()
	b, known := v.block(source)
	if !known {
		return anyTool("the node needs a default route", "ip route show", "ip rule show")
	}
	p := planHere(v)
	route := fmt.Sprintf("ip route replace default via %s dev %s onlink metric %d", b.Gateway, p.name, lastMetric)
	return []Fix{
		p.netplanFile("91-phoenixnap-%s-default.yaml",
			fmt.Sprintf("      routes:\n        - {to: default, via: %s, metric: %d}\n", b.Gateway, lastMetric)),
		p.networkManager("", fmt.Sprintf(`+ipv4.routes "0.0.0.0/0 %s %d"`, b.Gateway, lastMetric)),
		p.interfacesSection("default", "", route),
		p.networkdDropIn("default", fmt.Sprintf("[Route]\nGateway=%s\nMetric=%d\n", b.Gateway, lastMetric)),
		fix(IPRoute2, volatile, route),
	}
}
