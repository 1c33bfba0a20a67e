package election

import (
	"net/netip"
	"slices"
	"time"
)

// rules are the numbers and switches on which safety rests. Tests break each to prove that it is needed.
type rules struct {
	// interval is the time between two heartbeats; jitter takes off up to a tenth of it.
	interval time.Duration
	// suspectTimeout is how long a node must not have been acknowledged to count as silent.
	suspectTimeout time.Duration
	// lease is how long an acknowledged heartbeat is valid, from when it was sent. It is shorter than suspectTimeout
	// by more than the clocks of two machines drift apart meanwhile.
	lease time.Duration
	// step is how much longer each further deputy waits after a member failed, relaxed when nothing is urgent.
	step, relaxed time.Duration
	// drop is how long an address must be unwanted before it is removed.
	drop time.Duration
	// holdDown, doubled up to holdDownMax, is how long a node that was not ready takes only what no other can.
	holdDown, holdDownMax time.Duration
	// cold is how long no node that knows the view may have been heard before a view is made from nothing.
	cold time.Duration
	// behind is how long a node may work with an old view before its addresses are given to others.
	behind time.Duration
	// rejoinDelay is how long a node that was removed waits before it asks to join again; it doubles up to holdDown.
	rejoinDelay time.Duration
	// joinerGrace is how long new addresses wait for nodes that are about to become members.
	joinerGrace time.Duration
	// maxMembers is the maximum number of members of a view.
	maxMembers int
	// maxStaleReads is how often a view older than one reported as seen is read before it gets a higher number.
	maxStaleReads int

	majority, blocking func(members int) int

	// newerVoids: an acknowledgement does not count when its sender or this node has seen a newer view.
	// sentTime: it counts from when the acknowledged heartbeat was sent, not from when it came back.
	// startUpDelay: an agent that starts does not count for as long as its earlier run may be supported.
	newerVoids, sentTime, startUpDelay bool
	// proof: a new owner waits until its predecessor cannot answer. stableProof: that a majority has seen the new
	// view proves it only after a lease. blockedProof: members that report not to hear it must have seen the new
	// view. boundedDraining: an address that is handed over is answered for no longer than the lease of the old view.
	proof, stableProof, blockedProof, boundedDraining bool
	// quorum: a member that finds a majority is not removed. stableRemoval: no member is removed before a majority
	// has seen the last change of the members for a lease. establishedJoin: no node joins before a majority has seen
	// that change and hears the node.
	quorum, stableRemoval, establishedJoin bool
	// mutual: a member that does not receive our heartbeats is not supported. askGateway: only nodes that the gateway
	// answers remove others. yieldToLater: an agent that hears a later one of its own name is silent.
	mutual, askGateway, yieldToLater bool
}

func standardRules() rules {
	return rules{
		interval:       StandardInterval,
		suspectTimeout: 300 * time.Millisecond,
		lease:          290 * time.Millisecond,
		step:           100 * time.Millisecond,
		relaxed:        500 * time.Millisecond,
		drop:           500 * time.Millisecond,
		holdDown:       10 * time.Second,
		holdDownMax:    5 * time.Minute,
		cold:           2 * time.Second,
		behind:         time.Second,
		rejoinDelay:    500 * time.Millisecond,
		joinerGrace:    5 * time.Second,
		maxMembers:     120,
		maxStaleReads:  5,
		majority:       majority,
		blocking:       blocking,

		newerVoids: true, proof: true, stableProof: true, blockedProof: true,
		quorum: true, stableRemoval: true, establishedJoin: true,
		startUpDelay: true, boundedDraining: true, mutual: true, askGateway: true, yieldToLater: true, sentTime: true,
	}
}

// withInterval returns the rules for another time between two heartbeats, in proportion.
func (r rules) withInterval(interval time.Duration) rules {
	if interval <= 0 {
		return r
	}
	standard := r.interval
	for _, d := range []*time.Duration{
		&r.interval, &r.suspectTimeout, &r.lease, &r.step, &r.relaxed, &r.drop,
		&r.cold, &r.behind, &r.rejoinDelay, &r.joinerGrace,
	} {
		*d = time.Duration(float64(*d) * float64(interval) / float64(standard))
	}
	r.holdDown, r.holdDownMax = max(r.holdDown, 10*r.suspectTimeout), max(r.holdDownMax, 100*r.suspectTimeout)
	return r
}

// renew computes until when a majority of the members supports this node.
func (c *Election) renew() {
	c.lease = c.supportedUntil()
	if c.lease > c.now {
		c.leaseLost = false
	} else if !c.leaseLost {
		c.leaseLost = true
		if len(c.owned) > 0 && len(c.answered) > 0 {
			c.record(LeaseLost, netip.Addr{}, "")
		}
	}
}

func (c *Election) supportedUntil() time.Duration {
	if c.view == nil || !c.view.has(c.Node) || !c.startedUp() || c.superseded() || !c.facts.Link {
		return never
	}
	others := c.rules.majority(len(c.view.Members)) - 1
	switch {
	case others > 0:
	case c.rules.newerVoids && c.seen != c.view.Number:
		return c.lease // its own acknowledgement counts no more than that of others would
	default:
		return c.now + c.rules.lease
	}
	times := c.times[:0]
	for _, id := range c.members {
		if p := c.peers[id]; p != nil && p.ackedAt != never {
			times = append(times, p.ackedAt)
		}
	}
	c.times = times
	if len(times) < others {
		return never
	}
	slices.SortFunc(times, func(a, b time.Duration) int { return int(b - a) })
	return times[others-1] + c.rules.lease
}

// mark is since when a majority is known to have seen a number.
type mark struct {
	number uint64
	at     time.Duration
}

// acknowledge updates the highest number that a majority of the members is known to have seen.
func (c *Election) acknowledge() {
	if c.view == nil {
		return
	}
	numbers := c.numbers[:0]
	for _, id := range c.members {
		switch p := c.peers[id]; {
		case id == c.id:
			numbers = append(numbers, c.seen)
		case p != nil:
			numbers = append(numbers, p.seen)
		}
	}
	c.numbers = numbers
	n := c.rules.majority(len(c.members))
	if len(numbers) < n {
		return
	}
	slices.SortFunc(numbers, func(a, b uint64) int {
		return int(int64(b) - int64(a)) //nolint:gosec // they are close together
	})
	if agreed := numbers[n-1]; agreed > c.acknowledged() {
		c.marks = append(c.marks, mark{agreed, c.now})
	}
	for len(c.marks) > 1 && c.marks[1].at <= c.now-c.rules.suspectTimeout {
		c.marks = c.marks[1:]
	}
}

// acknowledged is the highest number that a majority of the members is known to have seen.
func (c *Election) acknowledged() uint64 {
	if len(c.marks) == 0 {
		return 0
	}
	return c.marks[len(c.marks)-1].number
}

// stable is the highest number seen by a majority for more than a lease: no node is supported by an older view.
func (c *Election) stable() uint64 {
	if len(c.marks) == 0 || c.marks[0].at > c.now-c.rules.suspectTimeout {
		return 0
	}
	return c.marks[0].number
}

// quorum counts the members that do not support a node, and those that are certainly off.
func (c *Election) quorum(against ID, among []ID, seen uint64, fresh bool) int {
	n := 0
	for _, id := range among {
		p := c.peers[id]
		switch {
		case c.off(id):
			n++
		case id == against:
		case id == c.id:
			if c.silent(against) && c.seen >= seen {
				n++
			}
		case p != nil && p.last.Seen >= seen && p.last.suspects(against) && (!fresh || c.acknowledges(p)):
			n++
		}
	}
	return n
}

// proven reports whether no predecessor can answer for an address that the view gives to this node.
func (c *Election) proven(h *ownership) bool {
	if !c.rules.proof || c.stable() >= h.epoch || !c.rules.stableProof && c.acknowledged() >= h.epoch {
		return true
	}
	for _, name := range h.predecessors {
		if name != c.Node && !c.stopped(name, h) {
			return false
		}
	}
	return len(h.predecessors) > 0
}

// stopped reports whether a predecessor is known not to answer by a view older than the one that named this node.
func (c *Election) stopped(name string, h *ownership) bool {
	id := IDOf(name)
	if c.off(id) {
		return true
	}
	if p := c.peers[id]; p != nil && p.last.Seen >= h.epoch {
		if p.last.Number >= h.epoch && !p.last.Flags.Has(Handing) || slices.Contains(p.last.Released, h.address) {
			return true
		}
	}
	return c.blocked(id, h.epoch)
}

// blocked reports whether so many members have seen a view and do not support a node that the node cannot find a
// majority by an older view. The members of that older view must be known.
func (c *Election) blocked(id ID, epoch uint64) bool {
	among := c.members
	if !c.rules.blockedProof {
		epoch = 0
	}
	switch {
	case c.view.Changed < epoch && c.stable() >= c.view.Changed, epoch == 0:
	case c.view.Changed == epoch && c.view.Removed != "":
		among = append(slices.Clip(among), IDOf(c.view.Removed))
	default:
		return false
	}
	return c.quorum(id, among, epoch, false) >= c.rules.blocking(len(among))
}

// off reports whether a node is certainly off.
func (c *Election) off(id ID) bool { return c.offIDs[id] }
