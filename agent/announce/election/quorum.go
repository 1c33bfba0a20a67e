package election

import (
	"slices"
	"time"
)

// renew says until when this node is supported by a majority of the members.
func (c *Core) renew() {
	c.lease = c.supportedUntil()
	if c.lease > c.now {
		c.lapsed = false
	} else if !c.lapsed {
		c.lapsed = true
		if len(c.holdings) > 0 && c.answers() {
			c.tell(Lapsed, "")
		}
	}
}

func (c *Core) supportedUntil() time.Duration {
	if c.view == nil || !c.view.has(c.Node) || !c.rested() || c.deposed() || !c.facts.Link {
		return never
	}
	others := c.rules.majority(len(c.view.Members)) - 1
	switch {
	case others > 0:
	case c.rules.newerVoids && c.seen != c.view.Number:
		return c.lease // its own voice counts no more than that of others would
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

// mark says since when a majority is known to have seen a number.
type mark struct {
	number uint64
	at     time.Duration
}

// agree notes the highest number that a majority of the members is known to have seen.
func (c *Core) agree() {
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
	slices.SortFunc(numbers, func(a, b uint64) int { return int(int64(b) - int64(a)) }) //nolint:gosec // they are close together
	if agreed := numbers[n-1]; agreed > c.agreed() {
		c.marks = append(c.marks, mark{agreed, c.now})
	}
	for len(c.marks) > 1 && c.marks[1].at <= c.now-c.rules.silence {
		c.marks = c.marks[1:]
	}
}

// agreed is the highest number that a majority of the members is known to have seen.
func (c *Core) agreed() uint64 {
	if len(c.marks) == 0 {
		return 0
	}
	return c.marks[len(c.marks)-1].number
}

// settled is the highest number that a majority has been known to have seen for longer than a lease: nobody is supported
// any more by a view older than it.
func (c *Core) settled() uint64 {
	if len(c.marks) == 0 || c.marks[0].at > c.now-c.rules.silence {
		return 0
	}
	return c.marks[0].number
}

// votes counts the members that do not support a node, and those that are certainly off.
func (c *Core) votes(against ID, among []ID, seen uint64, fresh bool) int {
	n := 0
	for _, id := range among {
		p := c.peers[id]
		switch {
		case c.gone(id):
			n++
		case id == against:
		case id == c.id:
			if c.silent(against) && c.seen >= seen {
				n++
			}
		case p != nil && p.last.Seen >= seen && p.last.silences(against) && (!fresh || c.acknowledges(p)):
			n++
		}
	}
	return n
}

// proven tells whether no predecessor can answer for an address that the view gives to this node.
func (c *Core) proven(h *holding) bool {
	if !c.rules.proof || c.settled() >= h.epoch || !c.rules.settledProof && c.agreed() >= h.epoch {
		return true
	}
	for _, name := range h.before {
		if name != c.Node && !c.stopped(name, h) {
			return false
		}
	}
	return len(h.before) > 0
}

// stopped tells whether a predecessor is known not to answer for an address by any view older than the one that gave the
// address to this node.
func (c *Core) stopped(name string, h *holding) bool {
	id := IDOf(name)
	if c.gone(id) {
		return true
	}
	if p := c.peers[id]; p != nil && p.last.Seen >= h.epoch {
		if p.last.Number >= h.epoch && !p.last.Flags.Has(Handing) || slices.Contains(p.last.Released, h.address) {
			return true
		}
	}
	return c.blocked(id, h.epoch)
}

// blocked tells whether so many members have seen a view and do not support a node that it finds no majority by an older
// one. It needs to know who the members of that older view were.
func (c *Core) blocked(id ID, epoch uint64) bool {
	among := c.members
	if !c.rules.blockedProof {
		epoch = 0
	}
	switch {
	case c.view.Changed < epoch && c.settled() >= c.view.Changed, epoch == 0:
	case c.view.Changed == epoch && c.view.Removed != "":
		among = append(slices.Clip(among), IDOf(c.view.Removed))
	default:
		return false
	}
	return c.votes(id, among, epoch, false) >= c.rules.blocking(len(among))
}

// gone tells whether a node is certainly off.
func (c *Core) gone(id ID) bool { return c.goneIDs[id] }
