package election

import (
	"net/netip"
	"slices"
)

// changes lists what some node must change, the urgent first.
func (c *Election) changes() []change {
	if c.api.absent {
		return c.rebuilding()
	}
	if c.view == nil || c.seen != c.view.Number {
		return c.catchingUp()
	}
	if !c.view.has(c.Node) {
		return c.succession()
	}
	var all []change
	for _, m := range c.view.Members {
		if m != c.Node && c.removable(m) {
			all = append(all, change{"remove/" + m, 0, c.rules.step,
				func() *proposal { return c.removal(m, MemberFailed) }})
		}
	}
	if len(all) > 0 {
		return all
	}
	if misplaced, fresh := c.needsPlacement(); misplaced || fresh && !c.awaitsJoiners() {
		all = append(all, change{"tend", 0, c.rules.relaxed, c.placement})
	}
	if c.facts.Known && slices.ContainsFunc(c.addresses, c.unwanted) {
		all = append(all, change{"drop", c.rules.drop, c.rules.relaxed, c.placement})
	}
	if m := c.leavingMember(); m != "" {
		all = append(all, change{"part/" + m, 0, c.rules.relaxed, func() *proposal { return c.removal(m, MemberLeft) }})
	}
	if m := c.joiningMember(); m != "" {
		all = append(all, change{"join/" + m, c.rules.interval, c.rules.relaxed,
			func() *proposal { return c.addition(m) }})
	}
	return all
}

// rebuilding is for an object that is missing or unreadable. A node that knows the newest view restores it; a new
// view is made when no node that knows it was heard for some time.
func (c *Election) rebuilding() []change {
	if c.view != nil && c.view.Number == c.seen {
		return []change{{"restore", 0, c.rules.relaxed, func() *proposal {
			return c.propose(c.view.next(), Event{Kind: ViewRebuilt})
		}}}
	}
	for _, p := range c.peers {
		if c.heard(p) && p.last.Number > 0 && p.last.Number >= c.seen {
			return nil
		}
	}
	return []change{{"rebuild", c.rules.cold, 0, func() *proposal {
		number := max(c.First, c.seen+1)
		return c.propose(&View{Number: number, Members: []string{c.Node}, Changed: number, Joined: c.Node,
			Owners: map[netip.Addr]Owner{}}, Event{Kind: ViewRebuilt})
	}}}
}

// catchingUp is for a view, of an object deleted since, with a lower number than was seen: it gets a higher one.
func (c *Election) catchingUp() []change {
	if c.view == nil || c.api.staleReads < c.rules.maxStaleReads {
		return nil
	}
	return []change{{"catch up", 0, c.rules.relaxed, func() *proposal {
		next := c.view.next()
		next.Number = c.seen + 1
		return c.propose(next, Event{Kind: ViewRebuilt})
	}}}
}

// succession is for a node that is not a member: it takes over when all members are certainly off.
func (c *Election) succession() []change {
	for _, m := range c.view.Members {
		if !c.facts.Gone[m] {
			return nil
		}
	}
	return []change{{"succeed", c.rules.suspectTimeout, 0, func() *proposal {
		next := c.view.next()
		next.Members = []string{c.Node}
		next.Changed = next.Number
		next.Removed = ""
		next.Joined = c.Node
		for a, o := range next.Owners {
			next.Owners[a] = Owner{Epoch: next.Number, Since: o.Since}
		}
		return c.propose(next, Event{Kind: MemberJoined, Node: c.Node})
	}}}
}

// removable reports whether to remove a member: it is silent, and it cannot find a majority.
func (c *Election) removable(m string) bool {
	id := IDOf(m)
	if !c.silent(id) && !c.off(id) || !c.connected() ||
		c.rules.stableRemoval && c.stable() < c.view.Changed && !c.quorumLost(id) {
		return false
	}
	return !c.rules.quorum || c.quorum(id, c.members, 0, true) >= c.rules.blocking(len(c.members))
}

// quorumLost reports whether a member cannot find a majority by the view nor, although no majority is known to have
// seen the change of the members, by the one before: the member removed then, if alive, must report so, too. Otherwise
// a node that fails just after another one was removed would leave members that can never agree.
func (c *Election) quorumLost(id ID) bool {
	return c.view.Removed != "" && c.blocked(id, c.view.Changed)
}

// removal removes a member for a reason and gives its addresses to others.
func (c *Election) removal(m string, why EventKind) *proposal {
	next := c.view.next()
	next.remove(m)
	taken := c.placer(next)
	for _, a := range c.addresses {
		if owner := next.Owners[a]; owner.Node == m {
			next.Owners[a] = c.moved(owner, taken.choose(a), next.Number)
		}
	}
	return c.propose(next, Event{Kind: why, Node: m})
}

// leavingMember returns a member that owns nothing and leaves, or is an unneeded witness; empty when there is none.
func (c *Election) leavingMember() string {
	if len(c.members) < 2 || c.stable() < c.view.Changed {
		return ""
	}
	owns := map[string]bool{}
	for _, owner := range c.view.Owners {
		owns[owner.Node] = true
	}
	witnesses := c.witnesses()
	for _, m := range c.view.Members {
		p := c.peers[IDOf(m)]
		if m == c.Node || owns[m] || !c.acknowledges(p) || p.last.Number != c.view.Number || p.last.Flags.Has(Handing) {
			continue
		}
		if p.last.Flags.Has(Leaving) || p.last.Flags.Has(Witness) && c.surplusWitness(witnesses) {
			return m
		}
	}
	return ""
}

// witnesses counts the members that never take addresses.
func (c *Election) witnesses() int {
	n := 0
	for _, id := range c.members {
		if id == c.id && c.facts.Witness {
			n++
		} else if p := c.peers[id]; p != nil && p.last.Flags.Has(Witness) {
			n++
		}
	}
	return n
}

// surplusWitness reports whether there is a witness too many: one helps beside an even number, more never do.
func (c *Election) surplusWitness(witnesses int) bool {
	return witnesses > 1 || witnesses == 1 && (len(c.members)-1)%2 == 1
}

// joiningMember returns a node to add: it hears a majority of the members, and they hear it; empty for none.
func (c *Election) joiningMember() string {
	if len(c.members) >= c.rules.maxMembers || c.rules.establishedJoin && c.acknowledged() < c.view.Changed {
		return ""
	}
	best := ""
	for id, p := range c.peers {
		if c.view.has(p.name) || !c.acknowledges(p) || p.last.Flags.Has(Leaving) || p.last.Number == 0 ||
			id == c.id || slices.Contains(c.members, id) { // or another name with the ID of a member
			continue
		}
		if p.last.Flags.Has(Witness) && (c.witnesses() > 0 || len(c.members)%2 == 1 || len(c.view.Members) < 2) {
			continue
		}
		if p.last.Flags.Has(Asking) && (best == "" || p.name < best) && c.mutual(p) {
			best = p.name
		}
	}
	return best
}

// mutual reports whether a node and a majority of the members hear each other.
func (c *Election) mutual(p *peer) bool {
	n := 0
	for _, id := range c.members {
		if !p.last.acknowledges(id) {
			continue
		}
		if id == c.id {
			n++
		} else if other := c.peers[id]; c.acknowledges(other) && other.last.acknowledges(p.id) {
			n++
		}
	}
	return n >= majority(len(c.members)) || !c.rules.establishedJoin
}

// awaitsJoiners reports whether new addresses wait for nodes that are about to become members, so that the nodes that
// start first do not get all of them. The wait is bounded: a node may ask forever.
func (c *Election) awaitsJoiners() bool {
	if c.now-c.api.freshAt >= c.rules.joinerGrace {
		return false
	}
	for _, p := range c.peers {
		if c.acknowledges(p) && p.last.Flags.Has(Candidate|Asking) && !c.view.has(p.name) {
			return true
		}
	}
	return false
}

func (c *Election) addition(m string) *proposal {
	next := c.view.next()
	next.join(m)
	return c.propose(next, Event{Kind: MemberJoined, Node: m})
}

// propose returns a proposal of a view.
func (c *Election) propose(next *View, events ...Event) *proposal {
	version := c.version
	if c.api.absent {
		version = c.api.version
	}
	return &proposal{view: next, version: version, events: events}
}

// moved returns the next owner of an address.
func (c *Election) moved(before Owner, to string, number uint64) Owner {
	next := Owner{Node: to, Epoch: number}
	switch {
	case c.stable() >= before.Epoch && before.Node != "":
		next.Before = []string{before.Node}
	case len(before.Before) > 0:
		next.Before = before.Before
		if before.Node != "" && !slices.Contains(next.Before, before.Node) {
			next.Before = append(slices.Clone(next.Before), before.Node)
		}
	}
	return next
}
