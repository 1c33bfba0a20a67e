package election

import (
	"maps"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

// desk knows what was asked of the API server.
type desk struct {
	// busy tells that an answer is outstanding; want that the view is to be read, and not before after.
	busy, want bool
	after      time.Duration
	// failures counts those since the last answer.
	failures int
	// absent tells that there was no view that can be read, in an object of the version, or in none.
	absent  bool
	version string
	again   time.Duration // when to look for it again
	// older counts how often in a row an older view was read than the one that is known.
	older int
	// proposal is the change that is to be made next; due is when a look at changes is due again.
	proposal *proposal
	due      time.Duration
	// chased counts how often the view was read and was older than what is said to have been seen.
	chased int
	// askedAt is when the gateway was asked.
	askedAt time.Duration
	// freshAt is when there was last no address that is new.
	freshAt time.Duration
	// written is the change that was asked for last, until it is known whether it was made.
	written *proposal
}

// hold keeps a node from taking addresses soon after it failed.
type hold struct {
	ready    bool
	until    time.Duration
	strikes  int
	strikeAt time.Duration
	// member, joinAt, removedAt and removals are for the pause before a node asks to be taken in again.
	member            bool
	joinAt, removedAt time.Duration
	removals          int
}

func (h *hold) follow(ready bool, now time.Duration, r rules) {
	switch {
	case h.ready && !ready:
		if h.strikeAt != never && now-h.strikeAt > 4*r.holdMost {
			h.strikes = 0
		}
		h.strikes, h.strikeAt = h.strikes+1, now
	case !h.ready && ready && h.strikes > 0:
		h.until = max(h.until, now+loop.Backoff(r.hold, r.holdMost, h.strikes-1))
	}
	h.ready = ready
}

// noteMembership follows whether this node is a member.
func (c *Core) noteMembership() {
	h, member := &c.hold, c.view.has(c.Node)
	if h.member && !member && !c.facts.Leaving && !c.facts.Witness {
		if h.removedAt != never && c.now-h.removedAt > 4*c.rules.holdMost {
			h.removals = 0
		}
		h.removals, h.removedAt = h.removals+1, c.now
		h.joinAt = c.now + loop.Backoff(c.rules.rejoin, c.rules.hold, h.removals-1)
		h.until = max(h.until, c.now+loop.Backoff(c.rules.hold, c.rules.holdMost, h.removals-1))
	}
	h.member = member
}

// takeRead takes what was read of the view.
func (c *Core) takeRead(r Read) {
	if r.Asked {
		c.desk.busy = false
	}
	switch {
	case r.Err != nil:
		c.fail()
		return
	case r.Asked:
		c.desk.failures, c.desk.want = 0, false
	}
	c.changed = true
	switch {
	case r.View != nil && (c.view == nil || r.View.Number > c.view.Number):
		c.desk.absent, c.desk.older = false, 0
		c.noteWritten(r.View)
		c.adopt(r.View, r.Version)
	case r.View != nil && same(r.View, c.view):
		c.desk.absent, c.desk.older = false, 0
		c.version = r.Version
	case r.View == nil || c.desk.older >= 1 && r.Asked:
		c.desk.absent, c.desk.version = true, r.Version
		if !r.Asked {
			c.desk.absent, c.desk.want = false, true // a watch may be late
		}
	case r.Asked:
		c.desk.older++
		c.desk.want = true
	default:
		c.desk.want = true
	}
	switch {
	case c.seen <= c.number():
		c.desk.chased = 0
	case r.Asked:
		c.desk.chased++
		c.desk.after = c.now + c.rules.interval/2
	}
	c.desk.again = c.now + c.rules.easy
}

// number is that of the view that is known, zero when none is.
func (c *Core) number() uint64 {
	if c.view == nil {
		return 0
	}
	return c.view.Number
}

// same tells whether two views say the same.
func same(a, b *View) bool {
	return a.Number == b.Number && slices.Equal(a.Members, b.Members) &&
		maps.EqualFunc(a.Owners, b.Owners, func(x, y Owner) bool { return x.Node == y.Node && x.Epoch == y.Epoch })
}

// takeWrote takes the answer to a change. A change of which it is not known whether it was made is looked for.
func (c *Core) takeWrote(w Wrote) {
	c.desk.busy, c.changed = false, true
	if w.Err != nil || w.View == nil {
		c.desk.want = true
		return
	}
	c.desk.failures, c.desk.absent = 0, false
	c.noteWritten(w.View)
	if c.view == nil || w.View.Number > c.view.Number {
		c.adopt(w.View, w.Version)
	}
}

// noteWritten tells of the change that was asked for, once it shows in a view that it was made, or another one in its place.
func (c *Core) noteWritten(v *View) {
	p := c.desk.written
	if p == nil || v.Number < p.view.Number {
		return
	}
	c.desk.written = nil
	if same(v, p.view) {
		c.events = append(c.events, p.events...)
	}
}

func (c *Core) fail() {
	c.desk.failures++
	c.desk.after = c.now + loop.Backoff(c.rules.interval, 20*c.rules.interval, c.desk.failures-1)
	c.desk.want, c.urgent = true, c.urgent || c.desk.failures == 1
}

// ask asks for what is due of the API server: a read where something newer is known to exist, else the change that was
// decided on.
func (c *Core) ask(out *Output) {
	if c.desk.busy || !c.facts.Link {
		return
	}
	if p := c.desk.proposal; p != nil {
		c.desk.proposal, c.desk.busy, c.desk.written = nil, true, p
		out.Write = &Write{View: p.view, Version: p.version}
		return
	}
	missing := c.view == nil || c.seen > c.view.Number
	if c.desk.absent {
		missing = c.now >= c.desk.again
	}
	if !c.desk.want && !missing {
		return
	}
	if c.now >= c.desk.after {
		out.Read, c.desk.busy = true, true
		return
	}
	c.wake(c.desk.after)
}

// wake makes a tick due.
func (c *Core) wake(at time.Duration) {
	if c.desk.due <= c.now || at < c.desk.due {
		c.desk.due = at
	}
}

// proposal is a change of the view.
type proposal struct {
	view    *View
	version string
	events  []Event
}

// decide decides what is to be changed, when it is this node's turn.
func (c *Core) decide(out *Output) {
	c.desk.due, c.desk.proposal = 0, nil
	c.askGateway(out)
	if c.desk.busy || c.desk.want || !c.facts.Link || !c.rested() || c.deposed() || c.facts.Leaving {
		return
	}
	current := map[string]bool{}
	defer func() {
		maps.DeleteFunc(c.pending, func(subject string, _ time.Duration) bool { return !current[subject] })
	}()
	for _, change := range c.changes() {
		current[change.subject] = true
		if c.due(change) && c.desk.proposal == nil {
			if p := change.make(); p != nil {
				c.desk.proposal = p
			}
		}
	}
}

// change is something that is to be done by one node or another.
type change struct {
	subject string
	// after is how long it has to be the case, step what each further deputy waits longer.
	after, step time.Duration
	make        func() *proposal
}

// due tells whether it is this node's turn to make a change.
func (c *Core) due(ch change) bool {
	since, known := c.pending[ch.subject]
	if !known {
		since = c.now
		c.pending[ch.subject] = since
	}
	due := since + ch.after + time.Duration(c.rank(ch.subject))*ch.step
	if due <= c.now {
		return true
	}
	c.wake(due)
	return false
}

// rank is how many other members are to make a change rather than this node.
func (c *Core) rank(subject string) int {
	own, rank := score(c.Node, subject), 0
	if c.view == nil {
		return 0
	}
	for _, id := range c.members {
		p := c.peers[id]
		if !c.acknowledges(p) || p.last.Flags&(NoAPI|Leaving) != 0 || p.last.Number < c.view.Number {
			continue
		}
		if score(p.name, subject) > own || c.desk.failures > 0 {
			rank++
		}
	}
	return rank
}

// askGateway asks for a sign of the gateway while a member is about to become silent.
func (c *Core) askGateway(out *Output) {
	if c.view == nil || !c.facts.HasGateway || c.now-max(c.gatewayAt, c.desk.askedAt) < c.rules.interval/2 {
		return
	}
	for _, id := range c.members {
		if id == c.id {
			continue
		}
		if p := c.peers[id]; p == nil || c.now-p.supportedAt >= c.rules.interval*3/2 {
			out.AskGateway, c.desk.askedAt = true, c.now
			return
		}
	}
}

// connected tells whether this node is in touch with the network: the gateway answers it, or there is none.
func (c *Core) connected() bool {
	return !c.rules.askGateway || !c.facts.HasGateway || c.now-c.gatewayAt < c.rules.silence
}
