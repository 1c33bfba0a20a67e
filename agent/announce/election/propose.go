package election

import (
	"net/netip"
	"slices"
)

// changes lists what is to be done by one node or another, the urgent first.
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
			all = append(all, change{"remove/" + m, 0, c.rules.step, func() *proposal { return c.removal(m, MemberFailed) }})
		}
	}
	if len(all) > 0 {
		return all
	}
	if misplaced, fresh := c.untended(); misplaced || fresh && !c.gathering() {
		all = append(all, change{"tend", 0, c.rules.relaxed, c.tending})
	}
	if c.unwanted() {
		all = append(all, change{"drop", c.rules.drop, c.rules.relaxed, c.tending})
	}
	if m := c.parting(); m != "" {
		all = append(all, change{"part/" + m, 0, c.rules.relaxed, func() *proposal { return c.removal(m, MemberLeft) }})
	}
	if m := c.joining(); m != "" {
		all = append(all, change{"join/" + m, c.rules.interval, c.rules.relaxed, func() *proposal { return c.joined(m) }})
	}
	return all
}

// rebuilding is for an object that is missing or cannot be read. Whoever knows the newest view restores it; a new one is
// made where for some time nobody is heard who knows it.
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

// catchingUp is for a view whose number is lower than what somebody has seen, of an object that was deleted since: it gets
// a higher one.
func (c *Election) catchingUp() []change {
	if c.view == nil || c.api.chased < c.rules.chase {
		return nil
	}
	return []change{{"catch up", 0, c.rules.relaxed, func() *proposal {
		next := c.view.next()
		next.Number = c.seen + 1
		return c.propose(next, Event{Kind: ViewRebuilt})
	}}}
}

// succession is for a node that is no member: it takes over when all members are certainly off.
func (c *Election) succession() []change {
	for _, m := range c.view.Members {
		if !c.facts.Gone[m] {
			return nil
		}
	}
	return []change{{"succeed", c.rules.suspectTimeout, 0, func() *proposal {
		next := c.view.next()
		next.Members, next.Changed, next.Removed, next.Joined = []string{c.Node}, next.Number, "", c.Node
		for a, o := range next.Owners {
			next.Owners[a] = Owner{Epoch: next.Number, Since: o.Since}
		}
		return c.propose(next, Event{Kind: MemberJoined, Node: c.Node})
	}}}
}

// removable tells whether a member is to be removed: it is silent, and it can find no majority.
func (c *Election) removable(m string) bool {
	id := IDOf(m)
	if !c.silent(id) && !c.gone(id) || !c.connected() || c.rules.stableRemoval && c.stable() < c.view.Changed && !c.lost(id) {
		return false
	}
	return !c.rules.quorum || c.quorum(id, c.members, 0, true) >= c.rules.blocking(len(c.members))
}

// lost tells whether a member can find a majority neither by the view nor by that before the members changed, although it has
// not been seen that a majority knows of the change: who was removed then, and is alive, has to say so, too. Otherwise a node
// that dies just after another one was removed would leave a view whose members can never agree.
func (c *Election) lost(id ID) bool { return c.view.Removed != "" && c.blocked(id, c.view.Changed) }

// removal removes a member, for a reason, and gives its addresses to others.
func (c *Election) removal(m string, why EventKind) *proposal {
	next := c.view.next()
	next.remove(m)
	taken := c.placing(next)
	for _, a := range c.addresses {
		if owner := next.Owners[a]; owner.Node == m {
			next.Owners[a] = c.moved(owner, taken.choose(a), next.Number)
		}
	}
	return c.propose(next, Event{Kind: why, Node: m})
}

// parting is a member that leaves, or a witness that is not needed, and owns nothing; empty when there is none.
func (c *Election) parting() string {
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
		if p.last.Flags.Has(Leaving) || p.last.Flags.Has(Witness) && c.surplus(witnesses) {
			return m
		}
	}
	return ""
}

// witnesses counts the members that can never take addresses.
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

// surplus tells whether there is a witness too many: one is of use where the others are even in number, and more never.
func (c *Election) surplus(witnesses int) bool {
	return witnesses > 1 || witnesses == 1 && (len(c.members)-1)%2 == 1
}

// joining is a node that is to become a member: it hears a majority of the members, and they hear it. It is empty when there
// is none.
func (c *Election) joining() string {
	if len(c.members) >= c.rules.members || c.rules.establishedJoin && c.agreed() < c.view.Changed {
		return ""
	}
	best := ""
	for id, p := range c.peers {
		if c.view.has(p.name) || !c.acknowledges(p) || p.last.Flags.Has(Leaving) || p.last.Number == 0 || c.collides(id) {
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

// mutual tells whether a majority of the members and a node hear each other.
func (c *Election) mutual(p *peer) bool {
	n := 0
	for _, id := range c.members {
		if !p.last.hears(id) {
			continue
		}
		if id == c.id {
			n++
		} else if other := c.peers[id]; c.acknowledges(other) && other.last.hears(p.id) {
			n++
		}
	}
	return n >= majority(len(c.members)) || !c.rules.establishedJoin
}

// gathering tells whether addresses that are new wait for nodes that are about to become members, so that those who start
// first do not get all of them. It does not last: a node may ask for ever.
func (c *Election) gathering() bool {
	if c.now-c.api.freshAt >= c.rules.gather {
		return false
	}
	for _, p := range c.peers {
		if c.acknowledges(p) && p.last.Flags.Has(Candidate|Asking) && !c.view.has(p.name) {
			return true
		}
	}
	return false
}

// collides tells whether the ID of a node is that of a member.
func (c *Election) collides(id ID) bool { return id == c.id || slices.Contains(c.members, id) }

func (c *Election) joined(m string) *proposal {
	next := c.view.next()
	next.join(m)
	return c.propose(next, Event{Kind: MemberJoined, Node: m})
}

// propose makes a proposal of a view.
func (c *Election) propose(next *View, events ...Event) *proposal {
	version := c.version
	if c.api.absent {
		version = c.api.version
	}
	return &proposal{view: next, version: version, events: events}
}

// moved is the owner of an address after another one.
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
