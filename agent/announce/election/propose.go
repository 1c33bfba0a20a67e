package election

import (
	"net/netip"
	"slices"
	"time"
)

// changes lists what some node must change, the urgent first.
func (e *Election) changes() []change {
	if e.api.absent {
		return urgent(e.rebuilding())
	}
	if e.view == nil || e.seen != e.view.Number {
		return urgent(e.catchingUp())
	}
	if !e.view.has(e.Node) {
		return urgent(e.succession())
	}
	if all := urgent(e.removals()); len(all) > 0 {
		return all
	}
	return e.improvements()
}

func urgent(all []change) []change {
	for i := range all {
		all[i].urgent = true
	}
	return all
}

// removals lists the members to remove.
func (e *Election) removals() []change {
	var all []change
	for _, m := range e.view.Members {
		if m != e.Node && e.removable(m) {
			all = append(all, change{subject: "remove/" + m, step: e.rules.step,
				make: func() *proposal { return e.removal(m, e.failure(m)) }})
		}
	}
	return all
}

// improvements lists what to change while no member has to be removed.
func (e *Election) improvements() []change {
	var all []change
	add := func(subject string, after, step time.Duration, propose func() *proposal) {
		all = append(all, change{subject: subject, after: after, step: step, make: propose})
	}
	if e.needsPlacement() {
		add("tend", 0, e.rules.relaxed, e.placement)
	}
	isNew, isOld := e.unlisted()
	if !isNew {
		e.api.freshAt = e.now
	}
	if isNew && !e.awaitsJoiners() {
		add("add", 0, e.rules.step, func() *proposal { return e.revision("add") })
	}
	if isOld {
		add("drop", e.rules.drop, e.rules.relaxed, func() *proposal { return e.revision("drop") })
	}
	if m := e.leavingMember(); m != "" {
		add("part/"+m, 0, e.rules.relaxed, func() *proposal { return e.removal(m, MemberLeft) })
	}
	if m := e.joiningMember(); m != "" {
		add("join/"+m, e.rules.interval, e.rules.relaxed, func() *proposal { return e.addition(m) })
	}
	if len(all) == 0 && e.isCalm() {
		add("rebalance", 0, e.rules.relaxed, e.rebalance)
	}
	return all
}

// rebuilding is for no readable object. The node with the newest view restores it; without one a new view is made, by a
// node that can announce: the only member of a view has to hear the others to add them.
func (e *Election) rebuilding() []change {
	if e.view != nil && e.view.Number == e.seen {
		return []change{{subject: "restore", step: e.rules.relaxed, make: func() *proposal {
			return e.propose(e.view.next(), Event{Kind: ViewRebuilt})
		}}}
	}
	for _, p := range e.peers {
		if e.heard(p) && p.last.Number > 0 && p.last.Number >= e.seen {
			return nil
		}
	}
	if !e.facts.Link || !e.facts.Candidate {
		return nil
	}
	return []change{{subject: "rebuild", after: e.rules.cold, make: func() *proposal {
		number := max(e.First, e.seen+1)
		return e.propose(&View{Number: number, Members: []string{e.Node}, Changed: number, Joined: e.Node,
			Owners: map[netip.Addr]Owner{}}, Event{Kind: ViewRebuilt})
	}}}
}

// catchingUp is for a view, of an object deleted since, with a lower number than was seen: it gets a higher one.
func (e *Election) catchingUp() []change {
	if e.view == nil || e.api.staleReads < e.rules.maxStaleReads {
		return nil
	}
	return []change{{subject: "catch up", step: e.rules.relaxed, make: func() *proposal {
		next := e.view.next()
		next.Number = e.seen + 1
		return e.propose(next, Event{Kind: ViewRebuilt})
	}}}
}

// succession is for a node that is not a member: it takes over when someone states that all members are off.
func (e *Election) succession() []change {
	for _, m := range e.view.Members {
		if !e.declaredOff(IDOf(m)) {
			return nil
		}
	}
	return []change{{subject: "succeed", after: e.rules.suspectTimeout, make: func() *proposal {
		next := e.view.next()
		next.Members = []string{e.Node}
		next.Changed = next.Number
		next.Removed = ""
		next.Joined = e.Node
		for a, o := range next.Owners {
			next.Owners[a] = Owner{Epoch: next.Number, Since: o.Since}
		}
		return e.propose(next, Event{Kind: MemberJoined, Node: e.Node})
	}}}
}

// removable reports whether to remove a member: it is silent, and it cannot find a majority.
func (e *Election) removable(m string) bool {
	id := IDOf(m)
	if !e.silent(id) && !e.off(id) || !e.connected() ||
		e.rules.stableRemoval && e.stable() < e.view.Changed && !e.quorumLost(id) && !e.majorityOff() {
		return false
	}
	return !e.rules.quorum || e.quorum(id, e.members, 0, true) >= e.rules.blocking(len(e.members))
}

// quorumLost reports whether a member cannot find a majority by the view nor, although no majority is known to have
// seen the change of the members, by the one before: the member removed then, if alive, must report so, too. Otherwise
// a node that fails just after another one was removed would leave members that can never agree.
func (e *Election) quorumLost(id ID) bool {
	return e.view.Removed != "" && e.blocked(id, e.view.Changed)
}

// failure is why to remove a member that is removable.
func (e *Election) failure(m string) EventKind {
	if e.off(IDOf(m)) {
		return MemberOff
	}
	return MemberFailed
}

// majorityOff reports whether so many members are off that the rest is no majority. Then no node answers by the view;
// by the one before none does, either, if too few of its members are left that do not know the change.
func (e *Election) majorityOff() bool {
	before := e.members
	if e.view.Removed != "" {
		before = append(slices.Clip(before), IDOf(e.view.Removed))
	} else if e.view.Joined != "" {
		joined := IDOf(e.view.Joined)
		before = slices.DeleteFunc(slices.Clone(before), func(id ID) bool { return id == joined })
	}
	knows := func(id ID) bool {
		p := e.peers[id]
		return id == e.id && e.seen >= e.view.Changed || p != nil && p.seen >= e.view.Changed
	}
	return e.prevent(e.members, e.off) &&
		e.prevent(before, func(id ID) bool { return e.off(id) || knows(id) })
}

// prevent reports whether those members of which something is true are so many that the rest is no majority.
func (e *Election) prevent(members []ID, is func(ID) bool) bool {
	n := 0
	for _, id := range members {
		if is(id) {
			n++
		}
	}
	return n >= e.rules.blocking(len(members))
}

// removal removes a member for a reason and gives its addresses to others.
func (e *Election) removal(m string, why EventKind) *proposal {
	next := e.view.next()
	next.remove(m)
	taken := e.placer(next)
	for _, a := range e.addresses {
		if owner := next.Owners[a]; owner.Node == m {
			next.Owners[a] = e.moved(owner, taken.choose(a), next.Number)
		}
	}
	return e.propose(next, Event{Kind: why, Node: m})
}

// leavingMember returns a member that owns nothing and leaves, or is an unneeded witness; empty when there is none.
func (e *Election) leavingMember() string {
	if len(e.members) < 2 || e.stable() < e.view.Changed {
		return ""
	}
	owns := map[string]bool{}
	for _, owner := range e.view.Owners {
		owns[owner.Node] = true
	}
	witnesses := e.witnesses()
	for _, m := range e.view.Members {
		p := e.peers[IDOf(m)]
		if m == e.Node || owns[m] || !e.acknowledges(p) || p.last.Number != e.view.Number || p.last.Flags.Has(Handing) {
			continue
		}
		if p.last.Flags.Has(Leaving) || p.last.Flags.Has(Witness) && e.surplusWitness(witnesses) {
			return m
		}
	}
	return ""
}

// witnesses counts the members that never take addresses.
func (e *Election) witnesses() int {
	n := 0
	for _, id := range e.members {
		if id == e.id && e.facts.Witness {
			n++
		} else if p := e.peers[id]; p != nil && p.last.Flags.Has(Witness) {
			n++
		}
	}
	return n
}

// surplusWitness reports whether there is a witness too many: one helps beside an even number, more never do.
func (e *Election) surplusWitness(witnesses int) bool {
	return witnesses > 1 || witnesses == 1 && (len(e.members)-1)%2 == 1
}

// joiningMember returns a node to add: it hears a majority of the members, and they hear it; empty for none.
func (e *Election) joiningMember() string {
	if len(e.members) >= e.rules.maxMembers || e.rules.establishedJoin && e.acknowledged() < e.view.Changed {
		return ""
	}
	best := ""
	for id, p := range e.peers {
		if e.view.has(p.name) || !e.acknowledges(p) || p.last.Flags.Has(Leaving) || p.last.Number == 0 ||
			id == e.id {
			continue
		}
		if p.last.Flags.Has(Witness) && (e.witnesses() > 0 || len(e.members)%2 == 1 || len(e.view.Members) < 2) {
			continue
		}
		if p.last.Flags.Has(Asking) && (best == "" || p.name < best) && e.mutual(p) {
			best = p.name
		}
	}
	return best
}

// mutual reports whether a node and a majority of the members hear each other.
func (e *Election) mutual(p *peer) bool {
	n := 0
	for _, id := range e.members {
		if !p.last.acknowledges(id) {
			continue
		}
		if id == e.id {
			n++
		} else if other := e.peers[id]; e.acknowledges(other) && other.last.acknowledges(p.id) {
			n++
		}
	}
	return n >= majority(len(e.members)) || !e.rules.establishedJoin
}

// awaitsJoiners reports whether new addresses wait for nodes that are about to become members, so that the nodes that
// start first do not get all of them. The wait is bounded: a node may ask forever.
func (e *Election) awaitsJoiners() bool {
	if e.now-e.api.freshAt >= e.rules.joinerGrace {
		return false
	}
	for _, p := range e.peers {
		if e.acknowledges(p) && p.last.Flags.Has(Candidate|Asking) && !e.view.has(p.name) {
			return true
		}
	}
	return false
}

func (e *Election) addition(m string) *proposal {
	next := e.view.next()
	next.join(m)
	return e.propose(next, Event{Kind: MemberJoined, Node: m})
}

// propose returns a proposal of a view; nil for a view whose number would be too high to be read.
func (e *Election) propose(next *View, events ...Event) *proposal {
	if next.Number > MaxNumber {
		return nil
	}
	version := e.version
	if e.api.absent {
		version = e.api.version
	}
	return &proposal{view: next, version: version, events: events}
}

// moved returns the next owner of an address.
func (e *Election) moved(before Owner, to string, number uint64) Owner {
	next := Owner{Node: to, Epoch: number}
	switch {
	case e.stable() >= before.Epoch && before.Node != "":
		next.Before = []string{before.Node}
	case len(before.Before) > 0:
		next.Before = before.Before
		if before.Node != "" && !slices.Contains(next.Before, before.Node) {
			next.Before = append(slices.Clone(next.Before), before.Node)
		}
	}
	return next
}
