//go:build linux

// Package returnpath makes replies of the public network leave by its VLAN interface and the gateway of the block that
// the client asked: connection marks in an nftables table, routing rules, and one routing table per gateway.
package returnpath

import (
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// kernel is what the actions change.
type kernel interface {
	addRule(r rule) error
	deleteRule(r kernelRule) error
	// setRoute adds the route, replacing one of the agent at the same place.
	setRoute(r route) error
	deleteRoute(r kernelRoute) error
	// setRuleset replaces the agent's nftables table at once; an empty one removes it.
	setRuleset(r ruleset) error
	// loosen makes the reverse path filter of the link loose.
	loosen(l link) error
}

// action is one change.
type action struct {
	// text describes the change in the words of the standard tools.
	text string
	do   func(kernel) error
}

// plan computes the changes that lead from the observed to the wanted state, in an order in which replies that have a
// route keep it: new routes exist before anything points to them, and old ones go last.
func plan(o observed, w wanted) []action {
	var actions []action
	add := func(text string, do func(kernel) error) { actions = append(actions, action{text, do}) }
	if w.loose && o.link.strict {
		add("set rp_filter=2 on "+o.link.name, func(k kernel) error { return k.loosen(*o.link) })
	}
	for _, r := range w.routes {
		isIt := func(s kernelRoute) bool { return s.ours() && !s.hasExtras && s.route == r }
		if !slices.ContainsFunc(o.routes, isIt) {
			add("ip route replace "+r.String(), func(k kernel) error { return k.setRoute(r) })
		}
	}
	for _, r := range w.rules {
		if !slices.ContainsFunc(o.rules, func(s kernelRule) bool { return s.ours() && !s.hasExtras && s.rule == r }) {
			add("ip rule add "+r.String(), func(k kernel) error { return k.addRule(r) })
		}
	}
	if w.ruleset != nil && !slices.Equal(o.ruleset, w.ruleset.lines()) {
		verb := "replace"
		if w.ruleset.empty() {
			verb = "delete"
		}
		add(verb+" nftables table ip "+nftTable, func(k kernel) error { return k.setRuleset(*w.ruleset) })
	}
	for _, s := range o.rules {
		if s.ours() && (s.hasExtras || !slices.Contains(w.rules, s.rule)) {
			add("ip rule delete "+s.String(), func(k kernel) error { return k.deleteRule(s) })
		}
	}
	for _, s := range o.routes {
		// A new route at the same place has already replaced an old one.
		if s.ours() && !slices.ContainsFunc(w.routes, func(r route) bool { return r.place() == s.place() }) {
			add("ip route delete "+s.String(), func(k kernel) error { return k.deleteRoute(s) })
		}
	}
	return actions
}

// target is where replies must go.
type target struct {
	// base is the number of the first gateway's table: the table base and the VLAN ID.
	base   int
	bits   Bits
	blocks []contract.NetworkBlock
}

// targetOf reads what the controller published. Nothing may change while known is false: it is missing or unreadable.
func targetOf(e check.Expected, bits Bits) (t target, known bool) {
	if !e.Published || e.Unreadable != "" || e.Unreached {
		return target{}, false
	}
	t = target{base: e.Table(), bits: bits}
	for _, b := range e.Network.Blocks {
		if b.CIDR.Addr().Is4() && b.Gateway.Is4() {
			t.blocks = append(t.blocks, b)
		}
	}
	slices.SortFunc(t.blocks, func(a, b contract.NetworkBlock) int {
		return a.CIDR.Masked().Addr().Compare(b.CIDR.Masked().Addr())
	})
	return t, true
}

// gateway is a block with its gateway.
type gateway struct {
	block   netip.Prefix
	address netip.Addr
	// index chooses mark and table.
	index int
}

func (t target) table(index int) int { return t.base + index*tableStep }

// gateways gives each block an index. A block keeps the index that its rule shows, so that the indexes of existing
// connections never change; tables in which another program has a route that ours would replace are skipped.
func (t target) gateways(o observed) []gateway {
	used := map[int]bool{}
	gateways := make([]gateway, len(t.blocks))
	for n, b := range t.blocks {
		gateways[n] = gateway{block: b.CIDR.Masked(), address: b.Gateway, index: -1}
		if i, kept := t.kept(o, gateways[n].block); kept && !used[i] && !t.taken(o, t.table(i)) {
			gateways[n].index = i
			used[i] = true
		}
	}
	for n := range gateways {
		for next := 0; gateways[n].index < 0; next++ {
			if !used[next] && !t.taken(o, t.table(next)) {
				gateways[n].index = next
				used[next] = true
			}
		}
	}
	slices.SortFunc(gateways, func(a, b gateway) int { return a.index - b.index })
	return gateways
}

// mark is the packet mark of a gateway. With too few values several share one and use the first: each is a router.
func (t target) mark(g gateway) uint32 { return t.bits.Value(g.index % t.bits.Count()) }

// kept is the index that a block has by the agent's own rule.
func (t target) kept(o observed, block netip.Prefix) (int, bool) {
	for _, r := range o.rules {
		if !r.ours() || r.hasExtras || r.priority != sourcePriority || r.source != block {
			continue
		}
		if offset := r.table - t.base; offset >= 0 && offset%tableStep == 0 {
			return offset / tableStep, true
		}
	}
	return 0, false
}

// taken reports whether another program has a route in the table at a place that the agent needs.
func (t target) taken(o observed, table int) bool {
	return slices.ContainsFunc(o.routes, func(r kernelRoute) bool {
		if r.ours() || r.table != table || r.metric != 0 {
			return false
		}
		return r.destination.Bits() == 0 || slices.ContainsFunc(t.blocks, func(b contract.NetworkBlock) bool {
			return b.CIDR.Masked() == r.destination
		})
	})
}

// wanted is the state that the kernel must have.
type wanted struct {
	rules  []rule
	routes []route
	// ruleset is the agent's nftables table; nil keeps it, because the name of the VLAN interface is unknown.
	ruleset *ruleset
	// loose: the reverse path filter of the VLAN interface must accept sources that the default route does not reach.
	loose bool
}

// want computes the state that the kernel must have.
func (t target) want(o observed) wanted {
	gateways := t.gateways(o)
	if len(gateways) == 0 {
		return wanted{ruleset: &ruleset{}}
	}
	w := wanted{rules: t.rules(gateways)}
	if o.link == nil {
		return w
	}
	w.loose = true
	w.ruleset = t.marking(o.link.name, gateways)
	if o.link.up {
		w.routes = t.routes(gateways, o.link.index)
	}
	return w
}

func (t target) rules(gateways []gateway) []rule {
	var rules []rule
	marked := map[uint32]bool{}
	for _, g := range gateways {
		if mark := t.mark(g); !marked[mark] {
			marked[mark] = true
			rules = append(rules, rule{priority: markPriority, mark: mark, mask: uint32(t.bits),
				table: t.table(g.index)})
		}
		rules = append(rules,
			rule{priority: localPriority, source: g.block, table: check.TableMain, noDefault: true},
			rule{priority: sourcePriority, source: g.block, table: t.table(g.index)})
	}
	return rules
}

// routes gives every table its default route and the routes to all blocks, which are on the link.
func (t target) routes(gateways []gateway, link int) []route {
	var routes []route
	for _, g := range gateways {
		table := t.table(g.index)
		for _, other := range gateways {
			routes = append(routes, route{table: table, destination: other.block, link: link})
		}
		routes = append(routes, route{
			table: table, destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway: g.address, link: link,
		})
	}
	return routes
}
