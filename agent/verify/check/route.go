package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Checks about the route of replies.
const (
	ReturnPath     ID = "PN501"
	ServiceReplies ID = "PN502"
	RoutingTables  ID = "PN503"
	MarkBits       ID = "PN504"
	Verifiable     ID = "PN505"
)

var routeChecks = []Check{
	{
		ID: RoutingTables, Title: "routing rules lead to tables with routes", Severity: Warning,
		DependsOn: []ID{NodeAddress}, evaluate: checkTables,
		Meaning: "Every routing rule by an address of the blocks or by a mark leads to a table with routes, one by " +
			"address to a table with a default route. The kernel deletes the routes of an interface, in every table, " +
			"when it goes down or loses its last address, and reports nothing.",
		Causes: []string{"The interface was set down and up, and the routes were not added again.",
			"systemd-networkd was restarted and removed routes that it does not know.",
			"The rule was added without the routes."},
		Remedy: "Make the routes part of the configuration of the machine's network, or let the agent keep them with " +
			"`--manage=return-path`.",
		Reasons: []string{"TableEmpty", "TableWithoutDefault"},
	},
	{
		ID: MarkBits, Title: "no other program uses the mark bits of the return path", Severity: Warning,
		DependsOn: []ID{NetworkPublished}, evaluate: checkMark,
		Meaning: "Where the agent manages the return path, no foreign rule and no program with known mark bits uses " +
			"the agent's bits of the packet mark.",
		Causes:  []string{"The container network uses the same bits.", "Another program routes by mark."},
		Remedy:  "Choose another bit with `--mark`, on every node.",
		Reasons: []string{"MarkClash"},
	},
	{
		ID: ReturnPath, Title: "replies leave by the VLAN interface", Severity: Warning,
		DependsOn: []ID{NodeAddress}, evaluate: checkReturnPath,
		Meaning: "The kernel would send replies from the node's own address to clients outside by the VLAN " +
			"interface. The check uses a route look-up, without traffic, and does not cover replies that kube-proxy " +
			"translates.",
		Causes: []string{"The default route leaves by another network, and no rule sends what comes from the block " +
			"back through it."},
		Remedy: "Make the gateway of the public network the default gateway. A rule by source serves only programs " +
			"that listen on the node itself. `--manage=return-path` lets the agent keep the routes.",
		Reasons: []string{"ReturnPathElsewhere"},
	},
	{
		ID: Verifiable, Title: "no eBPF program leads replies past routes and marks", Severity: Warning,
		DependsOn: []ID{NodeAddress}, evaluate: checkVerifiable,
		Meaning: "The return path of Services can be verified here: the kernel routes the replies, or the default " +
			"route leads by the VLAN interface. Cilium's kube-proxy replacement and Calico's eBPF data plane " +
			"translate Services in eBPF programs, before netfilter sees a request and after the kernel has chosen " +
			"the route of a reply. The marks of `--manage=return-path` are then not set, and the check PN502, which " +
			"follows routes and marks, proves nothing and is skipped. The agent recognises the plugins' interfaces " +
			"(`cilium_host`, `bpfin.cali`) and tc and XDP programs on the VLAN interface and its uplink. It cannot " +
			"list programs attached by tcx, cannot read what a program does, and cannot see whether Cilium replaces " +
			"kube-proxy: where kube-proxy translates the Services beside Cilium (`kubeProxyReplacement=false`), " +
			"marks work as they do without Cilium, but this finding remains.",
		Causes: []string{"Cilium runs on the node, and the default route leaves by another network.",
			"Calico runs in eBPF mode, and the default route leaves by another network.",
			"Another program is attached to the VLAN interface or its uplink, such as a filter or a monitor."},
		Remedy: "Check by hand: on the node that has the address, `tcpdump` on the VLAN interface must show each " +
			"request and its reply, for a pod on this node and for one on another node. Replies leave by the VLAN " +
			"interface in any case if the gateway of the public network is the default gateway. Otherwise, with " +
			"Cilium 1.14 or newer: list the VLAN interface and the interface of the default route in `devices`, keep " +
			"`loadBalancer.mode=snat` (with DSR the reply leaves from the node of the pod), and keep a rule by " +
			"source, as `--manage=return-path` does: Cilium looks the route up again with the address of the " +
			"Service. A stand-in for Cilium's programs shows it: of six ways to translate a Service, none is answered " +
			"without the agent and four are with it; where programs translate, only those that look the route up " +
			"again. Cilium itself was not run; see [network plugins](../support.md#network-plugins).",
		Reasons: []string{"ReturnPathUnverified"},
	},
	{
		ID: ServiceReplies, Title: "replies of pods leave by the VLAN interface", Severity: Warning,
		DependsOn: []ID{NodeAddress, Forwarding}, evaluate: checkServiceReplies,
		Meaning: "The kernel would send the reply of a pod to a client of a Service by the VLAN interface, by the " +
			"default route or by a mark. When it chooses the route, the reply still carries the address of the pod, " +
			"so a rule by the address of the Service does not help. The check uses route look-ups; without " +
			"permission to read the packet filter, the agent cannot see whether connections are marked. It only " +
			"warns, because the network's filters decide whether such replies are dropped.",
		Causes: []string{"The default route leaves by another network, and nothing marks the connections of Services.",
			"Only a rule by source was set up.", "The table that the mark leads to was lost."},
		Remedy: "Make the gateway of the public network the default gateway, or run the agent with " +
			"`--manage=return-path`.",
		Reasons: []string{"ServiceRepliesElsewhere"},
	},
}

// clients stand for all clients on the Internet: routes may be split (0.0.0.0/1 and 128.0.0.0/1), so there is one
// address of each quarter of the address space, and first one of TEST-NET-2 (RFC 5737), which is never assigned.
// Nothing is ever sent to them.
var clients = []netip.Addr{
	netip.AddrFrom4([4]byte{198, 51, 100, 1}), netip.AddrFrom4([4]byte{1, 1, 1, 1}),
	netip.AddrFrom4([4]byte{77, 1, 1, 1}), netip.AddrFrom4([4]byte{151, 101, 1, 1}),
}

// Outside is the address of no client in particular, for route look-ups.
func Outside() netip.Addr { return clients[0] }

// clientsOf asks the same of every client.
func clientsOf(q RouteQuestion) []RouteQuestion {
	var questions []RouteQuestion
	for _, client := range clients {
		q.Destination = client
		questions = append(questions, q)
	}
	return questions
}

// inbound asks whether packets of clients are let in. A packet for a Service has the address of a pod when the kernel
// routes it, and a rule by source for the node's own address does not serve that; so a known pod's address is used.
func (v view) inbound() []RouteQuestion {
	// Without an address on the interface the kernel refuses whatever the filter is set to.
	target, known := v.source()
	if !known || !v.vlan.Up || !v.vlan.LowerUp {
		return nil
	}
	if pods := v.pods(); len(pods) > 0 {
		target = pods[0]
	}
	var questions []RouteQuestion
	for _, client := range clients {
		questions = append(questions, RouteQuestion{Destination: target, Source: client, Iif: v.vlan.Name})
	}
	return questions
}

func (v view) routeQuestions() []RouteQuestion {
	questions := clientsOf(RouteQuestion{})
	for _, p := range v.own {
		if _, inBlock := v.block(p.Addr()); inBlock {
			questions = append(questions, clientsOf(RouteQuestion{Source: p.Addr()})...)
		}
	}
	for _, b := range v.blocks4() {
		questions = append(questions, RouteQuestion{Destination: b.Gateway})
	}
	questions = append(questions, v.inbound()...)
	for _, pod := range v.pods() {
		for _, mark := range append([]uint32{0}, v.marks()...) {
			questions = append(questions, clientsOf(RouteQuestion{Source: pod, Forwarded: true, Mark: mark})...)
		}
	}
	return questions
}

// leave sums up by which interfaces the packets of some questions leave; asked is false when one was not put.
func (v view) leave(questions []RouteQuestion) (way string, byVLAN, asked bool) {
	byVLAN = true
	var ways []string
	for _, q := range questions {
		r, has := v.route(q)
		if !has {
			return "", false, false
		}
		if r.Interface == v.vlan.Name {
			continue
		}
		byVLAN = false
		if r.Interface == "" {
			ways = append(ways, "have no route ("+r.Error+")")
		} else {
			ways = append(ways, "leave by "+r.Interface)
		}
	}
	if byVLAN {
		return "leave by " + v.vlan.Name, true, true
	}
	return strings.Join(sorted(ways), " or "), false, true
}

// checkReturnPath: a reply from the node's own address to a client outside must leave by the VLAN interface, or
// phoenixNAP's filters may drop it. It does not cover replies that kube-proxy translates.
func checkReturnPath(v view) Finding {
	checked := 0
	for _, p := range v.own {
		way, byVLAN, asked := v.leave(clientsOf(RouteQuestion{Source: p.Addr()}))
		if !asked {
			continue
		}
		checked++
		if !byVLAN {
			return Finding{Status: Warn, Reason: "ReturnPathElsewhere",
				Expected: fmt.Sprintf("replies from %s leave by %s", p.Addr(), v.vlan.Name), Observed: "they " + way,
				Cause: fmt.Sprintf("replies from %s to clients outside %s instead of leaving by %s", p.Addr(), way,
					v.vlan.Name),
				Fixes: v.orManaged(func() []Fix { return fixReturnPath(v, p.Addr()) })}
		}
	}
	if checked == 0 {
		return notApplicable("the node has no address in an assigned block")
	}
	return ok(fmt.Sprintf("replies from %s to clients outside leave by %s", joined(v.own), v.vlan.Name))
}

// defaultIsVLAN reports whether traffic to the Internet leaves by the VLAN interface anyway.
func (v view) defaultIsVLAN() bool {
	_, byVLAN, asked := v.leave(clientsOf(RouteQuestion{}))
	return asked && byVLAN
}

// filtered reports whether the kernel would drop a packet for its source address, or for having no way back: EINVAL,
// and EXDEV before Linux 6.16.
func (r RouteAnswer) filtered() bool {
	return strings.HasPrefix(r.Error, "EINVAL") || strings.HasPrefix(r.Error, "EXDEV")
}

// accepted reports whether clients' packets pass the reverse path filter; known is false without an answer.
func (v view) accepted() (refused RouteAnswer, passes, known bool) {
	questions := v.inbound()
	for _, q := range questions {
		r, asked := v.route(q)
		switch {
		case asked && r.filtered():
			return r, false, true
		case !asked || r.Error != "":
			return RouteAnswer{}, false, false
		}
	}
	// To the node itself the way back may be another than to pods, so this proves nothing of them.
	onlySelf := len(v.pods()) == 0
	return RouteAnswer{}, true, len(questions) > 0 && !onlySelf
}

// ManagedProtocol marks the rules and routes that the managing agent makes (rtnetlink(7), fields rtm_protocol and
// FRA_PROTOCOL): a number that no known routing daemon uses.
const ManagedProtocol = 173

// checkTables finds rules that lead to a table without a route. The kernel deletes the routes of an interface when it
// goes down or loses its last address, in every table and without a notification.
func checkTables(v view) Finding {
	var broken []Rule
	checked := 0
	for _, r := range v.Rules {
		if !v.isReplyRule(r) {
			continue
		}
		checked++
		if routes := v.Tables[r.Table]; !hasDefaultRoute(routes) && (len(routes) == 0 || r.Source.IsValid()) {
			broken = append(broken, r)
		}
	}
	switch {
	case len(broken) > 0:
		return brokenTable(v, slices.MinFunc(broken, compareRules))
	case checked == 0:
		return notApplicable("no rule leads to a table of the public network")
	default:
		return ok(fmt.Sprintf("each of %d rules leads to a table with a default route", checked))
	}
}

func brokenTable(v view, r Rule) Finding {
	reason := "TableWithoutDefault"
	what := "has no default route"
	if len(v.Tables[r.Table]) == 0 {
		reason = "TableEmpty"
		what = "is empty"
	}
	return Finding{Status: Warn, Reason: reason,
		Expected: fmt.Sprintf("a default route by %s in table %d", v.vlan.Name, r.Table),
		Observed: fmt.Sprintf("rule %s; the table %s", r, what),
		Cause:    fmt.Sprintf("the rule %s leads to routing table %d, which %s", r, r.Table, what),
		Fixes:    fixTable(v, r.Table)}
}

// isManagedForOther reports whether the managing agent made a rule for another network of the Node.
func (v view) isManagedForOther(r Rule) bool {
	return r.Protocol == ManagedProtocol && v.isOfOther(r.Table)
}

// orManaged returns fixes; where the node is in several public networks and the return path is not managed, only the
// agent can lead replies of all of them, because the default route leads by one at most.
func (v view) orManaged(fixes func() []Fix) []Fix {
	if len(v.Others) == 0 || v.Mask != 0 {
		return fixes()
	}
	return anyTool("run the agent with --manage=return-path: the default route leads by one network at most, and " +
		"this node is in several public networks")
}

// isReplyRule reports whether a rule sends traffic of the blocks to a separate table.
func (v view) isReplyRule(r Rule) bool {
	if slices.Contains([]int{0, TableLocal, TableMain, TableDefault}, r.Table) || r.Invert || r.Destination.IsValid() ||
		v.isManagedForOther(r) {
		return false
	}
	if !r.Source.IsValid() {
		return r.Mask != 0
	}
	return slices.ContainsFunc(v.blocks4(), func(b contract.NetworkBlock) bool { return b.CIDR.Overlaps(r.Source) })
}

// hasDefaultRoute reports whether a table has a default route, or the two halves of one.
func hasDefaultRoute(routes []Route) bool {
	halves := map[netip.Addr]bool{}
	for _, r := range routes {
		if r.Type != "unicast" || !r.Destination.IsValid() {
			continue
		}
		switch r.Destination.Bits() {
		case 0:
			return true
		case 1:
			halves[r.Destination.Masked().Addr()] = true
		}
	}
	return len(halves) == 2
}

// String writes the rule as ip-rule(8) does.
func (r Rule) String() string {
	text := fmt.Sprintf("%d:", r.Priority)
	if r.Invert {
		text += " not"
	}
	if r.Source.IsValid() {
		text += " from " + r.Source.String()
	} else {
		text += " from all"
	}
	if r.Destination.IsValid() {
		text += " to " + r.Destination.String()
	}
	if r.Mask != 0 {
		text += fmt.Sprintf(" fwmark %#x/%#x", r.Mark, r.Mask)
	}
	if r.Iif != "" {
		text += " iif " + r.Iif
	}
	if r.Oif != "" {
		text += " oif " + r.Oif
	}
	return fmt.Sprintf("%s lookup %d", text, r.Table)
}

func compareRules(a, b Rule) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), strings.Compare(a.String(), b.String()))
}
