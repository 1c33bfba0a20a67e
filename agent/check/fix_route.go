package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Priorities of rules that a person sets, the same as those of the managing agent.
const (
	markPriority   = 1055
	localPriority  = 1056
	sourcePriority = 1057
)

// tableStep is the distance between the tables of two blocks: beyond all VLAN IDs.
const tableStep = 4096

// replyBits are the bits of the mark that the fixes use, those of the managing agent: its default and theirs never stand side
// by side, for it tells of a clash then.
const replyBits = 0xf0

// wayOut is how replies of one block leave.
type wayOut struct {
	name    string
	block   netip.Prefix
	gateway netip.Addr
	table   int
	// mark is the packet mark, 0 where only the programs of the node itself are served.
	mark uint32
}

// waysOut are those of all blocks, as many as the bits can tell apart.
func (v view) waysOut() []wayOut {
	var ways []wayOut
	for i, b := range v.blocks4() {
		mark := uint32(i+1) << 4 & replyBits
		if mark == 0 {
			break
		}
		ways = append(ways, wayOut{name: v.vlan.Name, block: b.CIDR, gateway: b.Gateway, table: v.Table() + i*tableStep, mark: mark})
	}
	return ways
}

// fixReturnPath sends what comes from the block back through it. A rule by source serves programs that listen on the
// node itself; what kube-proxy translates needs the default route there, or marks on connections.
func fixReturnPath(v view, source netip.Addr) []Fix {
	for _, w := range v.waysOut() {
		if w.block.Contains(source) {
			w.mark = 0
			return fixWays([]wayOut{w},
				"serves programs that listen on the node itself; for Services behind kube-proxy make the gateway the node's default gateway, or run the agent with --manage=return-path")
		}
	}
	return nil
}

// fixWays writes routes and rules for every tool.
func fixWays(ways []wayOut, note string) []Fix {
	name := ways[0].name
	var netplan, policies, networkd, postUp strings.Builder
	var arguments, commands []string
	for _, w := range ways {
		netplan.WriteString(w.netplanRoute())
		policies.WriteString(w.netplanRules())
		networkd.WriteString(w.networkd())
		arguments = append(arguments, w.networkManager())
		commands = append(commands, w.ipRoute2()...)
	}
	for _, c := range commands {
		fmt.Fprintf(&postUp, "  post-up %s || true\n", c)
	}
	return []Fix{
		{Tool: Netplan, File: "/etc/netplan/90-phoenixnap-" + name + ".yaml", Note: joinedNotes(note, netplanNote(ways)),
			Content: fmt.Sprintf("network:\n  version: 2\n  vlans:\n    %s:\n      routes:\n%s      routing-policy:\n%s",
				name, netplan.String(), policies.String()),
			Commands: []string{"netplan apply"}},
		{Tool: NetworkManager, Note: note, Commands: []string{
			"nmcli connection modify " + name + " " + strings.Join(arguments, " "), "nmcli connection up " + name}},
		{Tool: Ifupdown, File: "/etc/network/interfaces.d/" + name, Commands: []string{"ifup --force " + name},
			Note: joinedNotes(note, "lines of the interface's own section"), Content: postUp.String()},
		{Tool: Networkd, File: "/etc/systemd/network/90-" + name + ".network", Note: note, Content: networkd.String(),
			Commands: []string{"networkctl reload", "networkctl reconfigure " + name}},
		{Tool: IPRoute2, Note: joinedNotes(note, volatile), Commands: commands},
	}
}

func joinedNotes(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
}

func (w wayOut) fwmark() string { return fmt.Sprintf("%#x/%#x", w.mark, replyBits) }

// ipRoute2 are the commands of the way. The rule that passes over default routes keeps what the node sends to pods and to its
// other networks where it was.
func (w wayOut) ipRoute2() []string {
	commands := []string{fmt.Sprintf("ip route replace default via %s dev %s onlink table %d", w.gateway, w.name, w.table)}
	if w.mark != 0 {
		commands = append(commands, fmt.Sprintf("ip rule add pref %d fwmark %s lookup %d", markPriority, w.fwmark(), w.table))
	}
	return append(commands,
		fmt.Sprintf("ip rule add pref %d from %s lookup main suppress_prefixlength 0", localPriority, w.block),
		fmt.Sprintf("ip rule add pref %d from %s lookup %d", sourcePriority, w.block, w.table))
}

func (w wayOut) networkd() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[Route]\nGateway=%s\nGatewayOnLink=yes\nTable=%d\n", w.gateway, w.table)
	if w.mark != 0 {
		b.WriteString(w.networkdMark())
	}
	fmt.Fprintf(&b, "[RoutingPolicyRule]\nFrom=%s\nTable=main\nSuppressPrefixLength=0\nPriority=%d\n", w.block, localPriority)
	fmt.Fprintf(&b, "[RoutingPolicyRule]\nFrom=%s\nTable=%d\nPriority=%d\n", w.block, w.table, sourcePriority)
	return b.String()
}

func (w wayOut) networkdMark() string {
	return fmt.Sprintf("[RoutingPolicyRule]\nFirewallMark=%d/%d\nTable=%d\nPriority=%d\n", w.mark, replyBits, w.table, markPriority)
}

func (w wayOut) networkManager() string {
	mark := ""
	if w.mark != 0 {
		mark = fmt.Sprintf(`+ipv4.routing-rules "priority %d from 0.0.0.0/0 fwmark %s table %d" `, markPriority, w.fwmark(), w.table)
	}
	return fmt.Sprintf(`+ipv4.routes "0.0.0.0/0 %s table=%d onlink=true" %s+ipv4.routing-rules "priority %d from %s table 254 suppress_prefixlength 0" +ipv4.routing-rules "priority %d from %s table %d"`,
		w.gateway, w.table, mark, localPriority, w.block, sourcePriority, w.block, w.table)
}

func (w wayOut) netplanRoute() string {
	return fmt.Sprintf("        - {to: default, via: %s, on-link: true, table: %d}\n", w.gateway, w.table)
}

// netplanRules name the networks of pods and private addresses: netplan cannot pass over default routes.
func (w wayOut) netplanRules() string {
	var b strings.Builder
	for _, inner := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"} {
		fmt.Fprintf(&b, "        - {from: %s, to: %s, table: 254, priority: %d}\n", w.block, inner, localPriority)
	}
	fmt.Fprintf(&b, "        - {from: %s, table: %d, priority: %d}\n", w.block, w.table, sourcePriority)
	return b.String()
}

// netplanNote tells what netplan's own files cannot say: a mask for a mark.
func netplanNote(ways []wayOut) string {
	if ways[0].mark == 0 {
		return ""
	}
	return "netplan knows no mask for marks: the rules by mark go into a drop-in of systemd-networkd, as below"
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
