package election

import (
	"slices"
	"time"
)

// renew computes until when a majority of the members supports this node.
func (c *Election) renew() {
	c.lease = c.supportedUntil()
	if c.lease > c.now {
		c.leaseLost = false
	} else if !c.leaseLost {
		c.leaseLost = true
		if len(c.owned) > 0 && c.answers() {
			c.record(LeaseLost, "")
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

// stable is the highest number that a majority has been known to have seen for longer than a lease: no node is
// supported by an older view any more.
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

// stopped reports whether a predecessor is known not to answer for an address by any view older than the one that
// gave the address to this node.
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
