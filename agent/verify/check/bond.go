package check

import (
	"fmt"
	"slices"
	"strings"
)

const (
	modeLACP         = "802.3ad"
	modeActiveBackup = "active-backup"
)

// bondState is what counts about a bond.
type bondState struct {
	name    string
	bond    Bond
	members []Link
}

// bondOf gathers the members of a bond, sorted by name.
func (v view) bondOf(u Link) bondState {
	b := bondState{name: u.Name, bond: *u.Bond}
	for _, l := range v.Links {
		if l.Master == u.Index {
			b.members = append(b.members, l)
		}
	}
	slices.SortFunc(b.members, func(x, y Link) int { return strings.Compare(x.Name, y.Name) })
	return b
}

// names are those of the members that match.
func (b bondState) names(match func(Link) bool) []string {
	var names []string
	for _, l := range b.members {
		if match(l) {
			names = append(names, l.Name)
		}
	}
	return names
}

func (b bondState) down() []string {
	return b.names(func(l Link) bool { return !l.Up || !l.LowerUp || l.Slave != nil && !l.Slave.Up })
}

// withoutPartner are the members without an LACP partner.
func (b bondState) withoutPartner() []string {
	return b.names(func(l Link) bool { return l.Slave != nil && l.Slave.NoPartner })
}

// outsideAggregator are the members outside the active aggregator.
func (b bondState) outsideAggregator() []string {
	return b.names(func(l Link) bool {
		return l.Slave != nil && b.bond.Aggregator != 0 && l.Slave.Aggregator != b.bond.Aggregator
	})
}

func (b bondState) String() string {
	text := fmt.Sprintf("%s: mode %s, %d of %d members up", b.name, b.bond.Mode, len(b.members)-len(b.down()),
		len(b.members))
	if b.bond.PartnerMAC != "" {
		text += ", LACP partner " + b.bond.PartnerMAC
	}
	if b.bond.MinLinks > 0 {
		text += fmt.Sprintf(", min_links %d", b.bond.MinLinks)
	}
	return text
}

// checkBond: a bond that has lost members carries traffic, so nothing here is worse than a warning; one without a
// carrier is the matter of checkUplink.
func checkBond(v view) outcome {
	if v.uplink.Bond == nil {
		return notApplicable(v.uplink.Name + " is not a bond")
	}
	b := v.bondOf(*v.uplink)
	const support = "for a member without a carrier or a partner, contact phoenixNAP support"
	warn := func(reason, expected, cause, note string) outcome {
		return outcome{status: Warn, reason: reason, expected: expected, observed: b.String(), cause: cause,
			fixes: []Fix{{Tool: AnyTool, Commands: []string{"cat /proc/net/bonding/" + b.name}, Note: note}}}
	}
	down, silent, apart := b.down(), b.withoutPartner(), b.outsideAggregator()
	switch {
	case b.bond.Mode != modeLACP && b.bond.Mode != modeActiveBackup:
		o := warn("UnexpectedBondMode", "mode "+modeLACP,
			fmt.Sprintf("%s has mode %s, the switches of phoenixNAP expect %s", b.name, b.bond.Mode, modeLACP), "")
		o.fixes = fixBondMode(b.name)
		return o
	case len(down) > 0 || len(b.members) == 0:
		return warn("BondDegraded", "all members up", fmt.Sprintf("%s has lost members: %s", b.name, orNone(down)),
			support)
	case b.bond.Mode == modeLACP && b.bond.PartnerMAC == "":
		return warn("NoLACPPartner", "an LACP partner", b.name+" has no LACP partner", support)
	case len(silent) > 0:
		return warn("MemberWithoutPartner", "an LACP partner on every member", "no LACP partner on "+orNone(silent),
			support)
	case len(apart) > 0:
		return warn("AggregatorsDiffer", "all members in one aggregator",
			fmt.Sprintf("%s of %s is in an aggregator of its own, so it carries nothing", orNone(apart), b.name),
			"the member is connected to another switch than the other members;  "+support)
	default:
		return ok(b.String())
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none is left"
	}
	return strings.Join(names, ", ")
}
