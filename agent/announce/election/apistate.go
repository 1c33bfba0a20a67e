package election

import (
	"maps"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

// apiState is the state of the requests to the API server.
type apiState struct {
	// inFlight is set while an answer is outstanding, readWanted when the view must be read, not before after.
	inFlight, readWanted bool
	after                time.Duration
	// failures counts failures since the last answer.
	failures int
	// absent is set when there was no readable view, in an object of the version, or in none.
	absent  bool
	version string
	retryAt time.Duration // when to read it again
	// older counts how often in a row an older view was read than the known one.
	older int
	// proposal is the next change to make; due is when to check for changes again.
	proposal *proposal
	due      time.Duration
	// staleReads counts how often the view was read and was older than a number reported as seen.
	staleReads int
	// askedAt is when the gateway was last probed.
	askedAt time.Duration
	// freshAt is when there was last no new address.
	freshAt time.Duration
	// written is the last change that was requested, until it is known whether it was made.
	written *proposal
}

// failures counts failures; earlier ones are forgotten after a long time without any.
type failures struct {
	count int
	at    time.Duration
}

func (f *failures) add(now time.Duration, r rules) {
	if now-f.at > 4*r.holdDownMax {
		f.count = 0
	}
	f.count++
	f.at = now
}

// holdDown keeps a node from taking addresses soon after it failed.
type holdDown struct {
	ready   bool
	until   time.Duration
	strikes failures
	// member, joinAt and removals are for the pause before a node asks to join again.
	member   bool
	joinAt   time.Duration
	removals failures
}

func (h *holdDown) observe(ready bool, now time.Duration, r rules) {
	switch {
	case h.ready && !ready:
		h.strikes.add(now, r)
	case !h.ready && ready && h.strikes.count > 0:
		h.until = max(h.until, now+loop.Backoff(r.holdDown, r.holdDownMax, h.strikes.count-1))
	}
	h.ready = ready
}

// updateMembership tracks whether this node is a member.
func (c *Election) updateMembership() {
	h := &c.holdDown
	member := c.view.has(c.Node)
	if h.member && !member && !c.facts.Leaving && !c.facts.Witness {
		h.removals.add(c.now, c.rules)
		h.joinAt = c.now + loop.Backoff(c.rules.rejoinDelay, c.rules.holdDown, h.removals.count-1)
		h.until = max(h.until, c.now+loop.Backoff(c.rules.holdDown, c.rules.holdDownMax, h.removals.count-1))
	}
	h.member = member
}

// handleRead handles the result of a read of the view.
func (c *Election) handleRead(r Read) {
	if r.Asked {
		c.api.inFlight = false
	}
	switch {
	case r.Err != nil:
		c.fail()
		return
	case r.Asked:
		c.api.failures = 0
		c.api.readWanted = false
	}
	c.changed = true
	switch {
	case r.View != nil && (c.view == nil || r.View.Number > c.view.Number):
		c.api.absent = false
		c.api.older = 0
		c.confirmWrite(r.View)
		c.adopt(r.View, r.Version)
	case r.View != nil && same(r.View, c.view):
		c.api.absent = false
		c.api.older = 0
		c.version = r.Version
	case r.View == nil || c.api.older >= 1 && r.Asked:
		c.api.absent = r.Asked
		c.api.version = r.Version
		c.api.readWanted = !r.Asked // a watch may be late
	default:
		if r.Asked {
			c.api.older++
		}
		c.api.readWanted = true
	}
	switch {
	case c.seen <= c.number():
		c.api.staleReads = 0
	case r.Asked:
		c.api.staleReads++
		c.api.after = c.now + c.rules.interval/2
	}
	c.api.retryAt = c.now + c.rules.relaxed
}

// number is that of the known view, zero when there is none.
func (c *Election) number() uint64 {
	if c.view == nil {
		return 0
	}
	return c.view.Number
}

// same reports whether two views are equal.
func same(a, b *View) bool {
	return a.Number == b.Number && slices.Equal(a.Members, b.Members) &&
		maps.EqualFunc(a.Owners, b.Owners, func(x, y Owner) bool { return x.Node == y.Node && x.Epoch == y.Epoch })
}

// handleWrote handles the result of a write. When it is unknown whether the change was made, the view is read.
func (c *Election) handleWrote(w Wrote) {
	c.api.inFlight = false
	c.changed = true
	if w.Err != nil || w.View == nil {
		c.api.readWanted = true
		return
	}
	c.api.failures = 0
	c.api.absent = false
	c.confirmWrite(w.View)
	if c.view == nil || w.View.Number > c.view.Number {
		c.adopt(w.View, w.Version)
	}
}

// confirmWrite records the events of the requested change when a view shows that it, and no other, was made.
func (c *Election) confirmWrite(v *View) {
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
	c.api.readWanted = true
	c.urgent = c.urgent || c.api.failures == 1
}

// request requests a read when something newer is known to exist, otherwise the decided change.
func (c *Election) request(out *Output) {
	if c.api.inFlight || !c.facts.Link {
		return
	}
	if p := c.api.proposal; p != nil {
		c.api.proposal = nil
		c.api.inFlight = true
		c.api.written = p
		out.Write = &Write{View: p.view, Version: p.version}
		return
	}
	missing := c.view == nil || c.seen > c.view.Number
	if c.api.absent {
		missing = c.now >= c.api.retryAt
	}
	if !c.api.readWanted && !missing {
		return
	}
	if c.now >= c.api.after {
		out.Read = true
		c.api.inFlight = true
		return
	}
	c.wake(c.api.after)
}

// wake schedules a tick.
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

// decide decides what to change when it is this node's turn.
func (c *Election) decide(out *Output) {
	c.api.due = 0
	c.api.proposal = nil
	c.askGateway(out)
	if c.api.inFlight || c.api.readWanted || !c.facts.Link || !c.startedUp() || c.superseded() || c.facts.Leaving {
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

// change is something that some node must do.
type change struct {
	subject string
	// after is how long the reason must have existed, step how much longer each further deputy waits.
	after, step time.Duration
	make        func() *proposal
}

// due reports whether it is this node's turn to make a change.
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

// rank is how many other members come before this node in making a change.
func (c *Election) rank(subject string) int {
	own := score(c.Node, subject)
	rank := 0
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

// askGateway requests a probe of the gateway while a member is about to become silent.
func (c *Election) askGateway(out *Output) {
	if c.view == nil || !c.facts.HasGateway || c.now-max(c.gatewayAt, c.api.askedAt) < c.rules.interval/2 {
		return
	}
	for _, id := range c.members {
		if id == c.id {
			continue
		}
		if p := c.peers[id]; p == nil || c.now-p.supportedAt >= c.rules.interval*3/2 {
			out.AskGateway = true
			c.api.askedAt = c.now
			return
		}
	}
}

// connected reports whether this node reaches the network: the gateway answers it, or there is none.
func (c *Election) connected() bool {
	return !c.rules.askGateway || !c.facts.HasGateway || c.now-c.gatewayAt < c.rules.suspectTimeout
}
