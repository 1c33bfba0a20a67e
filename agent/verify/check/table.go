package check

import (
	"fmt"
	"net/netip"
	"slices"
)

// ManagedProtocol marks the rules and routes that the managing agent makes (rtnetlink(7), fields rtm_protocol and
// FRA_PROTOCOL): a number that no known routing daemon uses.
const ManagedProtocol = 173

// brokenRule is a rule that leads nowhere.
type brokenRule struct {
	rule  Rule
	empty bool
}

// checkTables finds rules that lead to a table without a route. The kernel deletes the routes of an interface when it
// goes down or loses its last address, in every table and without a notification.
func checkTables(v view) outcome {
	var found []brokenRule
	checked := 0
	for _, r := range v.Rules {
		if !v.isReplyRule(r) {
			continue
		}
		checked++
		if routes := v.Tables[r.Table]; !hasDefaultRoute(routes) && (len(routes) == 0 || r.Source.IsValid()) {
			found = append(found, brokenRule{rule: r, empty: len(routes) == 0})
		}
	}
	switch {
	case len(found) > 0:
		return brokenTable(v, slices.MinFunc(found, func(a, b brokenRule) int { return compareRules(a.rule, b.rule) }))
	case checked == 0:
		return notApplicable("no rule leads to a table of the public network")
	default:
		return ok(fmt.Sprintf("each of %d rules leads to a table with a default route", checked))
	}
}

func brokenTable(v view, l brokenRule) outcome {
	reason := "TableWithoutDefault"
	what := "has no default route"
	if l.empty {
		reason = "TableEmpty"
		what = "is empty"
	}
	return outcome{status: Warn, reason: reason,
		expected: fmt.Sprintf("a default route by %s in table %d", v.vlan.Name, l.rule.Table),
		observed: fmt.Sprintf("rule %s; the table %s", l.rule, what),
		cause:    fmt.Sprintf("the rule %s leads to routing table %d, which %s", l.rule, l.rule.Table, what),
		fixes:    fixTable(v, l.rule.Table)}
}

// isReplyRule reports whether a rule sends traffic of the blocks to a separate table.
func (v view) isReplyRule(r Rule) bool {
	switch r.Table {
	case 0, TableLocal, TableMain, TableDefault:
		return false
	default:
	}
	if r.Invert || r.Destination.IsValid() {
		return false
	}
	if !r.Source.IsValid() {
		return r.Mask != 0
	}
	for _, b := range v.blocks4() {
		if b.CIDR.Overlaps(r.Source) {
			return true
		}
	}
	return false
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
		default:
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
	if a.Priority != b.Priority {
		return a.Priority - b.Priority
	}
	switch x, y := a.String(), b.String(); {
	case x < y:
		return -1
	case x > y:
		return 1
	default:
		return 0
	}
}
