//go:build linux

package returnpath

import (
	"slices"
)

// kernel is what the actions change.
type kernel interface {
	AddRule(r rule) error
	DeleteRule(r kernelRule) error
	// SetRoute adds the route, replacing one of the agent at the same place.
	SetRoute(r route) error
	DeleteRoute(r kernelRoute) error
	// SetRuleset replaces the agent's nftables table at once; an empty one removes it.
	SetRuleset(r ruleset) error
	// Loosen makes the reverse path filter of the link loose.
	Loosen(l link) error
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
	actions := slices.Concat(planLoose(o, w), planNewRoutes(o, w), planNewRules(o, w))
	return slices.Concat(actions, planRuleset(o, w), planOldRules(o, w), planOldRoutes(o, w))
}

func planLoose(o observed, w wanted) []action {
	if !w.loose || !o.link.strict {
		return nil
	}
	l := *o.link
	return []action{{"set rp_filter=2 on " + l.name, func(k kernel) error { return k.Loosen(l) }}}
}

func planNewRoutes(o observed, w wanted) []action {
	var actions []action
	for _, r := range w.routes {
		if slices.ContainsFunc(o.routes, func(s kernelRoute) bool { return s.ours() && !s.other && s.route == r }) {
			continue
		}
		actions = append(actions, action{"ip route replace " + r.String(),
			func(k kernel) error { return k.SetRoute(r) }})
	}
	return actions
}

func planNewRules(o observed, w wanted) []action {
	var actions []action
	for _, r := range w.rules {
		if slices.ContainsFunc(o.rules, func(s kernelRule) bool { return s.ours() && !s.other && s.rule == r }) {
			continue
		}
		actions = append(actions, action{"ip rule add " + r.String(), func(k kernel) error { return k.AddRule(r) }})
	}
	return actions
}

func planRuleset(o observed, w wanted) []action {
	if w.ruleset == nil || slices.Equal(o.ruleset, w.ruleset.lines()) {
		return nil
	}
	text := "replace nftables table ip " + nftTable
	if w.ruleset.empty() {
		text = "delete nftables table ip " + nftTable
	}
	return []action{{text, func(k kernel) error { return k.SetRuleset(*w.ruleset) }}}
}

func planOldRules(o observed, w wanted) []action {
	var actions []action
	for _, s := range o.rules {
		if !s.ours() || !s.other && slices.Contains(w.rules, s.rule) {
			continue
		}
		actions = append(actions, action{"ip rule delete " + s.String(),
			func(k kernel) error { return k.DeleteRule(s) }})
	}
	return actions
}

// planOldRoutes deletes the agent's routes that are not wanted, unless a new route has already replaced them.
func planOldRoutes(o observed, w wanted) []action {
	var actions []action
	for _, s := range o.routes {
		if !s.ours() || slices.ContainsFunc(w.routes, func(r route) bool { return r.place() == s.place() }) {
			continue
		}
		actions = append(actions, action{"ip route delete " + s.String(),
			func(k kernel) error { return k.DeleteRoute(s) }})
	}
	return actions
}
