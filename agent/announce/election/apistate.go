package election

import (
	"maps"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

// apiState knows what was asked of the API server.
type apiState struct {
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

// holdDown keeps a node from taking addresses soon after it failed.
type holdDown struct {
	ready    bool
	until    time.Duration
	strikes  int
	strikeAt time.Duration
	// member, joinAt, removedAt and removals are for the pause before a node asks to be taken in again.
	member            bool
	joinAt, removedAt time.Duration
	removals          int
}

func (h *holdDown) observe(ready bool, now time.Duration, r rules) {
	switch {
	case h.ready && !ready:
		if h.strikeAt != never && now-h.strikeAt > 4*r.holdDownMax {
			h.strikes = 0
		}
		h.strikes, h.strikeAt = h.strikes+1, now
	case !h.ready && ready && h.strikes > 0:
		h.until = max(h.until, now+loop.Backoff(r.holdDown, r.holdDownMax, h.strikes-1))
	}
	h.ready = ready
}

// noteMembership follows whether this node is a member.
func (c *Election) noteMembership() {
	h, member := &c.holdDown, c.view.has(c.Node)
	if h.member && !member && !c.facts.Leaving && !c.facts.Witness {
		if h.removedAt != never && c.now-h.removedAt > 4*c.rules.holdDownMax {
			h.removals = 0
		}
		h.removals, h.removedAt = h.removals+1, c.now
		h.joinAt = c.now + loop.Backoff(c.rules.rejoinDelay, c.rules.holdDown, h.removals-1)
		h.until = max(h.until, c.now+loop.Backoff(c.rules.holdDown, c.rules.holdDownMax, h.removals-1))
	}
	h.member = member
}

// takeRead takes what was read of the view.
func (c *Election) takeRead(r Read) {
	if r.Asked {
		c.api.busy = false
	}
	switch {
	case r.Err != nil:
		c.fail()
		return
	case r.Asked:
		c.api.failures, c.api.want = 0, false
	}
	c.changed = true
	switch {
	case r.View != nil && (c.view == nil || r.View.Number > c.view.Number):
		c.api.absent, c.api.older = false, 0
		c.noteWritten(r.View)
		c.adopt(r.View, r.Version)
	case r.View != nil && same(r.View, c.view):
		c.api.absent, c.api.older = false, 0
		c.version = r.Version
	case r.View == nil || c.api.older >= 1 && r.Asked:
		c.api.absent, c.api.version = true, r.Version
		if !r.Asked {
			c.api.absent, c.api.want = false, true // a watch may be late
		}
	case r.Asked:
		c.api.older++
		c.api.want = true
	default:
		c.api.want = true
	}
	switch {
	case c.seen <= c.number():
		c.api.chased = 0
	case r.Asked:
		c.api.chased++
		c.api.after = c.now + c.rules.interval/2
	}
	c.api.again = c.now + c.rules.relaxed
}

// number is that of the view that is known, zero when none is.
func (c *Election) number() uint64 {
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
func (c *Election) takeWrote(w Wrote) {
	c.api.busy, c.changed = false, true
	if w.Err != nil || w.View == nil {
		c.api.want = true
		return
	}
	c.api.failures, c.api.absent = 0, false
	c.noteWritten(w.View)
	if c.view == nil || w.View.Number > c.view.Number {
		c.adopt(w.View, w.Version)
	}
}

// noteWritten tells of the change that was asked for, once it shows in a view that it was made, or another one in its place.
func (c *Election) noteWritten(v *View) {
	p := c.api.written
	if p == nil || v.Number < p.view.Number {
		return
	}
	c.api.written = nil
	if same(v, p.view) {
		c.events = append(c.events, p.events...)
	}
}

func (c *Election) fail() {
	c.api.failures++
	c.api.after = c.now + loop.Backoff(c.rules.interval, 20*c.rules.interval, c.api.failures-1)
	c.api.want, c.urgent = true, c.urgent || c.api.failures == 1
}

// ask asks for what is due of the API server: a read where something newer is known to exist, else the change that was
// decided on.
func (c *Election) ask(out *Output) {
	if c.api.busy || !c.facts.Link {
		return
	}
	if p := c.api.proposal; p != nil {
		c.api.proposal, c.api.busy, c.api.written = nil, true, p
		out.Write = &Write{View: p.view, Version: p.version}
		return
	}
	missing := c.view == nil || c.seen > c.view.Number
	if c.api.absent {
		missing = c.now >= c.api.again
	}
	if !c.api.want && !missing {
		return
	}
	if c.now >= c.api.after {
		out.Read, c.api.busy = true, true
		return
	}
	c.wake(c.api.after)
}

// wake makes a tick due.
func (c *Election) wake(at time.Duration) {
	if c.api.due <= c.now || at < c.api.due {
		c.api.due = at
	}
}

// proposal is a change of the view.
type proposal struct {
	view    *View
	version string
	events  []Event
}

// decide decides what is to be changed, when it is this node's turn.
func (c *Election) decide(out *Output) {
	c.api.due, c.api.proposal = 0, nil
	c.askGateway(out)
	if c.api.busy || c.api.want || !c.facts.Link || !c.startedUp() || c.deposed() || c.facts.Leaving {
		return
	}
	current := map[string]bool{}
	defer func() {
		maps.DeleteFunc(c.pending, func(subject string, _ time.Duration) bool { return !current[subject] })
	}()
	for _, change := range c.changes() {
		current[change.subject] = true
		if c.due(change) && c.api.proposal == nil {
			if p := change.make(); p != nil {
				c.api.proposal = p
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
func (c *Election) due(ch change) bool {
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
func (c *Election) rank(subject string) int {
	own, rank := score(c.Node, subject), 0
	if c.view == nil {
		return 0
	}
	for _, id := range c.members {
		p := c.peers[id]
		if !c.acknowledges(p) || p.last.Flags&(NoAPI|Leaving) != 0 || p.last.Number < c.view.Number {
			continue
		}
		if score(p.name, subject) > own || c.api.failures > 0 {
			rank++
		}
	}
	return rank
}

// askGateway asks for a sign of the gateway while a member is about to become silent.
func (c *Election) askGateway(out *Output) {
	if c.view == nil || !c.facts.HasGateway || c.now-max(c.gatewayAt, c.api.askedAt) < c.rules.interval/2 {
		return
	}
	for _, id := range c.members {
		if id == c.id {
			continue
		}
		if p := c.peers[id]; p == nil || c.now-p.supportedAt >= c.rules.interval*3/2 {
			out.AskGateway, c.api.askedAt = true, c.now
			return
		}
	}
}

// connected tells whether this node is in touch with the network: the gateway answers it, or there is none.
func (c *Election) connected() bool {
	return !c.rules.askGateway || !c.facts.HasGateway || c.now-c.gatewayAt < c.rules.suspectTimeout
}
