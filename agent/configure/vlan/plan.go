package vlan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// plan returns what is to be done so that w stands on the node, in the order in which it is to be done, and what keeps it
// from standing there wholly. It touches what is ours, and adds to an interface that a person made what that one lacks.
func plan(w want, s Seen) (actions []action, problems []string) {
	target := w.target(s)
	for _, l := range s.Links {
		if l.Ours && (target == nil || l.Index != target.Index) {
			actions = append(actions, release(l, s)...)
		}
	}
	if w.ID == 0 {
		return actions, nil
	}
	if target == nil {
		if problems = w.blockedReasons(s); len(problems) > 0 {
			return actions, problems
		}
		made := w.unmade(s)
		target, actions = &made, append(actions, makeLink{name: w.Name, parent: w.Uplink, id: w.ID, mtu: made.MTU})
	}
	switch {
	case target.Unreadable != "":
		return actions, append(problems, target.Unreadable)
	case target.Settings == nil && !target.Record.Made:
		return actions, append(problems, fmt.Sprintf("%s has no IPv4 (MTU %d): mend it", target.Name, target.MTU))
	}
	more, hindrances := w.keep(*target, s)
	return append(actions, more...), append(problems, hindrances...)
}

// target is the interface that is to serve: the one with the VLAN ID on the uplink, of which the kernel allows one.
func (w want) target(s Seen) *Link {
	if w.ID == 0 {
		return nil
	}
	return s.find(func(l Link) bool {
		return l.VLAN != nil && l.VLAN.ID == w.ID && l.VLAN.Protocol == "802.1q" && l.Parent == w.Uplink && (!w.Fixed || l.Name == w.Name)
	})
}

// unmade is the interface as it will be once it is made.
func (w want) unmade(s Seen) Link {
	l := Link{Link: check.Link{Name: w.Name, MTU: w.mtu(s), Parent: w.Uplink}, Ours: true, Record: ownership.Record{Made: true}}
	if parent := s.indexed(w.Uplink); parent != nil {
		l.MAC = parent.MAC
	}
	return l
}

// mtu is what the interface is to have: no more than the uplink carries.
func (w want) mtu(s Seen) int {
	if parent := s.indexed(w.Uplink); parent != nil && parent.MTU > 0 {
		return min(publicMTU, parent.MTU)
	}
	return publicMTU
}

// blockedReasons say why the interface cannot be made beside what a person made.
func (w want) blockedReasons(s Seen) []string {
	var problems []string
	for _, l := range s.Links {
		if l.Ours && l.Record.Made {
			continue
		}
		switch {
		case l.Name == w.Name:
			problems = append(problems, fmt.Sprintf("%s is there and is no VLAN interface with ID %d on the uplink: delete or mend it", l.Name, w.ID))
		case l.VLAN != nil && l.VLAN.ID == w.ID && l.Parent == w.Uplink:
			problems = append(problems, fmt.Sprintf("%s has the VLAN ID %d on the uplink already, with another name or protocol: rename or delete it", l.Name, w.ID))
		case l.VLAN != nil && l.VLAN.ID == w.ID && s.enslaved(l.Parent, w.Uplink):
			problems = append(problems, fmt.Sprintf("%s takes the frames of VLAN %d from a member of the uplink: delete it", l.Name, w.ID))
		}
	}
	for _, p := range w.Addresses {
		if holder := w.elsewhere(p.Addr(), 0, s); holder != "" {
			problems = append(problems, occupied(p.Addr(), holder))
		}
	}
	return problems
}

func (s Seen) enslaved(index, master int) bool {
	l := s.indexed(index)
	return l != nil && l.Master == master
}

// elsewhere names an interface other than index that a person gave ip.
func (w want) elsewhere(ip netip.Addr, index int, s Seen) string {
	for _, a := range s.Addresses {
		l := s.indexed(a.LinkIndex)
		if a.Prefix.Addr() != ip || l == nil || l.Index == index || l.Ours && (l.Record.Made || l.Record.Owns(a.Prefix)) {
			continue
		}
		return l.Name
	}
	return ""
}

func occupied(ip netip.Addr, holder string) string {
	return fmt.Sprintf("%s is on %s: take it off there", ip, holder)
}

// keep makes an interface right: first the record tells what will be changed, then it is changed, then the record forgets
// what is no longer there.
func (w want) keep(l Link, s Seen) (actions []action, problems []string) {
	add, problems := w.missing(l, s)
	drop := w.surplus(l, s)
	if a := w.firstRecord(l, s, add); a != nil {
		actions = append(actions, *a)
	}
	actions = append(actions, w.repairLink(l, s)...)
	for _, p := range add {
		actions = append(actions, addAddress{on{l.Index, l.Name}, p})
	}
	for _, p := range drop {
		actions = append(actions, deleteAddress{on{l.Index, l.Name}, p})
	}
	if stale := w.stale(l); len(stale) > 0 {
		actions = append(actions, forget{on: on{l.Index, l.Name}, addresses: stale})
	}
	return actions, problems
}

// missing are the addresses to add.
func (w want) missing(l Link, s Seen) (add []netip.Prefix, problems []string) {
	for _, ip := range w.Homeless {
		problems = append(problems, fmt.Sprintf("%s lies in no block that is assigned to the network", ip))
	}
	for _, p := range w.Addresses {
		switch holder := w.elsewhere(p.Addr(), l.Index, s); {
		case s.has(l.Index, p):
		case holder != "":
			problems = append(problems, occupied(p.Addr(), holder))
		case w.otherLength(p, l, s):
			problems = append(problems, fmt.Sprintf("%s is on %s with another prefix length than %d: mend it", p.Addr(), l.Name, p.Bits()))
		default:
			add = append(add, p)
		}
	}
	if w.Fallback.IsValid() && !s.has(l.Index, w.Fallback) && !w.addressed(l, s) {
		add = append(add, w.Fallback)
	}
	return add, problems
}

// otherLength tells whether a person gave the interface the same address with another prefix length.
func (w want) otherLength(p netip.Prefix, l Link, s Seen) bool {
	return slices.ContainsFunc(s.on(l.Index), func(a check.Address) bool {
		return a.Prefix.Addr() == p.Addr() && a.Prefix != p && !l.Record.Made && !l.Record.Owns(a.Prefix)
	})
}

// addressed tells whether the interface has an address that stays. Those of Services come and go.
func (w want) addressed(l Link, s Seen) bool {
	stale := w.stale(l)
	return slices.ContainsFunc(s.on(l.Index), func(a check.Address) bool {
		virtual := slices.Contains(w.Virtual, a.Prefix.Addr()) || a.Deprecated && a.Prefix.IsSingleIP()
		return !virtual && !slices.Contains(stale, a.Prefix)
	})
}

// surplus are addresses of ours that are no longer wanted.
func (w want) surplus(l Link, s Seen) []netip.Prefix {
	var drop []netip.Prefix
	for _, p := range w.stale(l) {
		if s.has(l.Index, p) {
			drop = append(drop, p)
		}
	}
	return drop
}

// stale are recorded addresses that are no longer wanted. While blocks are not known, what is there stays.
func (w want) stale(l Link) []netip.Prefix {
	var stale []netip.Prefix
	for _, p := range l.Record.Addresses {
		if p != w.Fallback && !slices.Contains(w.Addresses, p) && !slices.Contains(w.Homeless, p.Addr()) && !slices.Contains(stale, p) {
			stale = append(stale, p)
		}
	}
	return stale
}

// firstRecord notes what is about to be changed, nil when that is noted already.
func (w want) firstRecord(l Link, s Seen, add []netip.Prefix) *note {
	n := note{on: on{l.Index, l.Name}, made: l.Record.Made}
	for _, p := range add {
		if !l.Record.Owns(p) {
			n.addresses = append(n.addresses, p)
		}
	}
	if !l.Record.Made {
		n.before = l.before()
		n.down = w.raise(l, s) && !l.Record.Down
	}
	born := l.Record.Made && l.Alias == ""
	if len(n.addresses) == 0 && len(n.before) == 0 && !n.down && !born {
		return nil
	}
	return &n
}

// before are the present values of settings that will be changed and are not noted yet.
func (l Link) before() ownership.Settings {
	before := ownership.Settings{}
	for key := range l.Settings.Missing(settingsFor(l.Settings)) {
		if _, noted := l.Record.Before[key]; !noted {
			before[key] = l.Settings[key]
		}
	}
	return before
}

// raise tells whether the interface has to be brought up, and can be: the kernel refuses while the uplink is down.
func (w want) raise(l Link, s Seen) bool {
	parent := s.indexed(w.Uplink)
	return !l.Up && parent != nil && parent.Up
}

// repairLink makes the interface itself right. The MTU and the hardware address of an interface that a person made are
// theirs; the findings speak of them.
func (w want) repairLink(l Link, s Seen) []action {
	var actions []action
	if mtu := w.mtu(s); l.Record.Made && l.MTU != mtu {
		actions = append(actions, setMTU{on{l.Index, l.Name}, mtu})
	}
	if parent := s.indexed(w.Uplink); l.Record.Made && parent != nil && parent.MAC != "" && !strings.EqualFold(l.MAC, parent.MAC) {
		actions = append(actions, setMAC{on{l.Index, l.Name}, parent.MAC})
	}
	if missing := l.Settings.Missing(settingsFor(l.Settings)); len(missing) > 0 {
		actions = append(actions, setSettings{on{l.Index, l.Name}, missing})
	}
	if w.raise(l, s) {
		actions = append(actions, setUp{on{l.Index, l.Name}, true})
	}
	return actions
}

// release undoes what was done to a link.
func release(l Link, s Seen) []action {
	if l.Unreadable != "" {
		return nil
	}
	if l.Record.Made {
		return []action{deleteLink{on{l.Index, l.Name}}}
	}
	var actions []action
	for _, p := range l.Record.Addresses {
		if s.has(l.Index, p) {
			actions = append(actions, deleteAddress{on{l.Index, l.Name}, p})
		}
	}
	if back := l.Settings.Missing(l.Record.Before); len(back) > 0 {
		actions = append(actions, setSettings{on{l.Index, l.Name}, back})
	}
	if l.Record.Down && l.Up {
		actions = append(actions, setUp{on{l.Index, l.Name}, false})
	}
	return append(actions, forget{on: on{l.Index, l.Name}, all: true})
}
