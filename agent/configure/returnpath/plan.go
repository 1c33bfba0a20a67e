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
	for _, l := range w.loose {
		if l.strict {
			add("set rp_filter=2 on "+l.name, func(k kernel) error { return k.loosen(l) })
		}
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

// target is where replies of one network must go.
type target struct {
	// vlan is the VLAN ID, base the number of the first gateway's table: the table base and the VLAN ID.
	vlan, base int
	blocks     []contract.NetworkBlock
}

// targetsOf reads what the controller published. Nothing may change while known is false: it is missing or unreadable.
func targetsOf(networks []check.Expected) (targets []target, known bool) {
	for _, e := range networks {
		if !e.Published || e.Unreadable != "" || e.Unreached {
			return nil, false
		}
		t := target{vlan: e.Network.VLAN, base: e.Table()}
		for _, b := range e.Network.Blocks {
			if b.CIDR.Addr().Is4() && b.Gateway.Is4() {
				t.blocks = append(t.blocks, b)
			}
		}
		slices.SortFunc(t.blocks, func(a, b contract.NetworkBlock) int {
			return a.CIDR.Masked().Addr().Compare(b.CIDR.Masked().Addr())
		})
		targets = append(targets, t)
	}
	return targets, len(targets) > 0
}

// gateway is a block with its gateway.
type gateway struct {
	block   netip.Prefix
	address netip.Addr
	// index chooses the table among those of the network.
	index, table int
	// mark is the packet mark of replies by the gateway; 0 where there are too few for all networks.
	mark uint32
}

func (t target) table(index int) int { return t.base + index*check.TableStep }

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
	for n := range gateways {
		gateways[n].table = t.table(gateways[n].index)
	}
	return gateways
}

// kept is the index that a block has by the agent's own rule.
func (t target) kept(o observed, block netip.Prefix) (int, bool) {
	for _, r := range o.rules {
		if !r.ours() || r.hasExtras || r.priority != sourcePriority || r.source != block {
			continue
		}
		if offset := r.table - t.base; offset >= 0 && offset%check.TableStep == 0 {
			return offset / check.TableStep, true
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
	// ruleset is the agent's nftables table; nil keeps it, because the name of no VLAN interface is known.
	ruleset *ruleset
	// loose are VLAN interfaces whose reverse path filter must accept sources that the default route does not reach.
	loose []link
	// unmarked are the VLAN IDs of networks for which there are no marks.
	unmarked []int
}

// want computes the state that the kernel must have for the networks of the Node.
//
// The default route of a node in several leads by the VLAN interface of one at most, and the kernel deletes it with
// that interface. Without any, the reverse path filter, strict or loose, drops what clients send to the others: it asks
// for the way to them like an unmarked packet. So these have rules that come last, by which it finds one.
func want(targets []target, bits Bits, o observed) wanted {
	networks := make([][]gateway, len(targets))
	for n, t := range targets {
		networks[n] = t.gateways(o)
	}
	allot(networks, bits, o)
	if len(slices.Concat(networks...)) == 0 {
		return wanted{ruleset: &ruleset{}}
	}
	var w wanted
	for n, t := range targets {
		gateways := networks[n]
		if len(gateways) == 0 {
			continue
		}
		if gateways[0].mark == 0 {
			w.unmarked = append(w.unmarked, t.vlan)
		}
		w.rules = append(w.rules, rulesOf(gateways, bits)...)
		if len(targets) > 1 && o.needsWayBack() {
			w.rules = append(w.rules, rule{priority: lastPriority, table: gateways[0].table})
		}
		l := o.vlans[t.vlan]
		if l == nil {
			continue
		}
		w.loose = append(w.loose, *l)
		if l.up {
			w.routes = append(w.routes, routesOf(gateways, l.index)...)
		}
	}
	if len(w.loose) > 0 {
		w.ruleset = marking(w.loose, slices.Concat(networks...), bits)
	}
	return w
}

func rulesOf(gateways []gateway, bits Bits) []rule {
	var rules []rule
	marked := map[uint32]bool{0: true}
	for _, g := range gateways {
		if !marked[g.mark] {
			marked[g.mark] = true
			rules = append(rules, rule{priority: markPriority, mark: g.mark, mask: uint32(bits), table: g.table})
		}
		rules = append(rules,
			rule{priority: localPriority, source: g.block, table: check.TableMain, noDefault: true},
			rule{priority: sourcePriority, source: g.block, table: g.table})
	}
	return rules
}

// routesOf gives every table its default route and the routes to all blocks of the network, which are on the link.
func routesOf(gateways []gateway, link int) []route {
	var routes []route
	for _, g := range gateways {
		for _, other := range gateways {
			routes = append(routes, route{table: g.table, destination: other.block, link: link})
		}
		routes = append(routes, route{
			table: g.table, destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway: g.address, link: link,
		})
	}
	return routes
}
