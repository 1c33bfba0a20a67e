package election

import (
	"maps"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// apiState is the state of the requests to the API server.
type apiState struct {
	// inFlight is set while an answer is outstanding, readWanted when the view must be read, not before after.
	inFlight, readWanted bool
	after                time.Duration
	// requestedAt is when a read or a write was last requested, knownAt when the last one was that showed what the
	// newest view is.
	requestedAt, knownAt time.Duration
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
	// askedAt is when the gateway was last probed, asks how often since a member became silent.
	askedAt time.Duration
	asks    int
	// freshAt is when there was last no new address.
	freshAt time.Duration
	// written is the last change that was requested, until it is known whether it was made.
	written *proposal
}

// failures counts failures, or other events; earlier ones are forgotten after some time without any.
type failures struct {
	count int
	at    time.Duration
}

func (f *failures) add(now, forgetAfter time.Duration) {
	if now-f.at > forgetAfter {
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
		h.strikes.add(now, 4*r.holdDownMax)
	case !h.ready && ready && h.strikes.count > 0:
		h.until = max(h.until, now+loop.Backoff(r.holdDown, r.holdDownMax, h.strikes.count-1))
	}
	h.ready = ready
}

// updateMembership tracks whether this node is a member.
func (e *Election) updateMembership() {
	h := &e.holdDown
	member := e.view.has(e.Node)
	if h.member && !member && !e.facts.Leaving && !e.facts.Witness {
		h.removals.add(e.now, 4*e.rules.holdDownMax)
		h.joinAt = e.now + loop.Backoff(e.rules.rejoinDelay, e.rules.holdDown, h.removals.count-1)
		h.until = max(h.until, e.now+loop.Backoff(e.rules.holdDown, e.rules.holdDownMax, h.removals.count-1))
	}
	h.member = member
}

// handleRead handles the result of a read of the view.
func (e *Election) handleRead(r Read) {
	if r.Asked {
		e.api.inFlight = false
	}
	switch {
	case r.Err != nil:
		e.fail()
		return
	case r.Asked:
		e.api.failures = 0
		e.api.knownAt = e.api.requestedAt
		e.api.readWanted = false
	}
	e.changed = true
	switch {
	case r.View != nil && (e.view == nil || r.View.Number > e.view.Number):
		e.api.absent = false
		e.api.older = 0
		if !e.confirmWrite(r.View) {
			e.budget.spend(e.now)
		}
		e.adopt(r.View, r.Version)
	case r.View != nil && same(r.View, e.view):
		e.api.absent = false
		e.api.older = 0
		e.version = r.Version
	case r.View == nil || e.api.older >= 1 && r.Asked:
		e.api.absent = r.Asked
		e.api.version = r.Version
		e.api.readWanted = !r.Asked // a watch may be late
	default:
		if r.Asked {
			e.api.older++
		}
		e.api.readWanted = true
	}
	switch {
	case e.seen <= e.number():
		e.api.staleReads = 0
	case r.Asked:
		e.api.staleReads++
		e.api.after = e.now + e.rules.interval/2
	}
	e.api.retryAt = e.now + e.rules.relaxed
	e.api.readWanted = e.api.readWanted || !e.caughtUp()
}

// caughtUp reports whether this agent has read the view since it began. The view holds the promises of an earlier agent
// of this node, so before that this one supports no node.
func (e *Election) caughtUp() bool { return !e.rules.readFirst || e.api.knownAt >= e.begun }

// number is that of the known view, zero when there is none.
func (e *Election) number() uint64 {
	if e.view == nil {
		return 0
	}
	return e.view.Number
}

// same reports whether two views are equal.
func same(a, b *View) bool {
	return a.Number == b.Number && slices.Equal(a.Members, b.Members) &&
		maps.EqualFunc(a.Owners, b.Owners, func(x, y Owner) bool { return x.Node == y.Node && x.Epoch == y.Epoch })
}

// handleWrote handles the result of a write. When it is unknown whether the change was made, the view is read.
func (e *Election) handleWrote(w Wrote) {
	e.api.inFlight = false
	e.changed = true
	if w.Err != nil || w.View == nil {
		e.api.readWanted = true
		return
	}
	e.api.failures = 0
	e.api.knownAt = e.api.requestedAt
	e.api.absent = false
	e.confirmWrite(w.View)
	if e.view == nil || w.View.Number > e.view.Number {
		e.adopt(w.View, w.Version)
	}
}

// confirmWrite records the events of the requested change when a view shows that it, and no other, was made.
func (e *Election) confirmWrite(v *View) (made bool) {
	p := e.api.written
	if p == nil || v.Number < p.view.Number {
		return false
	}
	e.api.written = nil
	if made = same(v, p.view); made {
		e.events = append(e.events, p.events...)
	}
	return made
}

func (e *Election) fail() {
	e.api.failures++
	e.api.after = e.now + loop.Backoff(e.rules.interval, 20*e.rules.interval, e.api.failures-1)
	e.api.readWanted = true
	e.urgent = e.urgent || e.api.failures == 1
}

// request requests a read when something newer is known to exist, otherwise the decided change.
func (e *Election) request(out *Output) {
	if e.api.inFlight || !e.facts.Link || e.facts.Replaced {
		return
	}
	if p := e.api.proposal; p != nil {
		e.api.proposal = nil
		e.api.inFlight = true
		e.api.written = p
		e.api.requestedAt = e.now
		e.budget.spend(e.now)
		out.Write = &Write{View: p.view, Version: p.version}
		return
	}
	missing := e.view == nil || e.seen > e.view.Number
	if e.api.absent {
		missing = e.now >= e.api.retryAt
	}
	if !e.api.readWanted && !missing {
		e.list(out)
		return
	}
	if e.now >= e.api.after {
		out.Read = true
		e.api.requestedAt = e.now
		e.api.inFlight = true
		return
	}
	e.wake(e.api.after)
}

// wake schedules a tick.
func (e *Election) wake(at time.Duration) {
	if e.api.due <= e.now || at < e.api.due {
		e.api.due = at
	}
}

// proposal is a change of the view.
type proposal struct {
	view    *View
	version string
	events  []Event
}

// decide decides what to change when it is this node's turn.
func (e *Election) decide(out *Output) {
	e.api.due = 0
	e.api.proposal = nil
	if e.quiet() || e.facts.Replaced {
		return
	}
	e.askGateway(out)
	e.examine(out)
	if e.api.inFlight || e.api.readWanted || !e.facts.Link || !e.startedUp() || e.facts.Leaving {
		return
	}
	e.listing.wanted = false
	current := map[string]bool{}
	defer func() {
		maps.DeleteFunc(e.pending, func(subject string, _ time.Duration) bool { return !current[subject] })
	}()
	for _, change := range e.changes() {
		current[change.subject] = true
		if e.due(change) && e.api.proposal == nil && e.affords(change) {
			if p := change.make(); p != nil {
				e.api.proposal = p
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
	// urgent is set when addresses may be silent until it is made.
	urgent bool
}

// due reports whether it is this node's turn to make a change.
func (e *Election) due(ch change) bool {
	since, known := e.pending[ch.subject]
	if !known {
		since = e.now
		e.pending[ch.subject] = since
	}
	due := since + ch.after + time.Duration(e.rank(ch.subject))*ch.step
	if due <= e.now {
		return true
	}
	e.wake(due)
	return false
}

// rank is how many other members come before this node in making a change. Nodes that were not ready a short time ago
// come last: they do not know whether they may take addresses themselves.
func (e *Election) rank(subject string) int {
	own := score(e.Node, subject)
	inHoldDown := e.inHoldDown()
	rank := 0
	if e.view == nil {
		return 0
	}
	for _, id := range e.members {
		p := e.peers[id]
		if !e.acknowledges(p) || p.last.Flags&(NoAPI|Leaving) != 0 || p.last.Number < e.view.Number {
			continue
		}
		before := score(p.name, subject) > own
		if other := p.last.Flags.Has(HoldDown); other != inHoldDown {
			before = inHoldDown
		}
		if before || e.api.failures > 0 {
			rank++
		}
	}
	return rank
}

// askGateway requests a probe of the gateway while a member is about to become silent, and it is this node's turn to
// remove it soon. A member that stays silent and cannot be removed must not cause a flood: the pauses grow, the more so
// the more members there are.
func (e *Election) askGateway(out *Output) {
	if e.view == nil || !e.facts.HasGateway {
		return
	}
	if !slices.ContainsFunc(e.members, e.mayRemoveSoon) {
		e.api.asks = 0
		return
	}
	pause := e.rules.interval / 2
	if e.api.asks >= e.rules.asks {
		longest := max(pause, time.Duration(len(e.members))*e.rules.askShare)
		if slices.ContainsFunc(e.members, e.off) {
			longest = min(longest, 2*e.rules.suspectTimeout) // it waits for nothing else
		}
		pause = loop.Backoff(pause, longest, e.api.asks-e.rules.asks)
	}
	if due := max(e.gatewayAt, e.api.askedAt) + pause; e.now < due {
		e.wake(due)
		return
	}
	out.AskGateway = true
	e.api.askedAt = e.now
	e.api.asks++
}

// mayRemoveSoon reports whether a member has not been heard for more than a heartbeat, and the turn of this node to
// remove it is near.
func (e *Election) mayRemoveSoon(id ID) bool {
	if id == e.id {
		return false
	}
	p := e.peers[id]
	if p == nil {
		return true
	}
	silent := e.now - p.supportedAt - e.rules.interval*3/2
	return silent >= 0 && silent >= time.Duration(e.rank("remove/"+p.name)-2)*e.rules.step
}

// connected reports whether this node reaches the network: the gateway answers it, or there is none.
func (e *Election) connected() bool {
	return !e.rules.askGateway || !e.facts.HasGateway || e.now-e.gatewayAt < e.rules.suspectTimeout
}
