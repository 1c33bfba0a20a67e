package election

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// urgentGap is the minimum time between two heartbeats.
const urgentGap = 5 * time.Millisecond

// heartbeat returns the heartbeat that is due, or nil.
func (c *Election) heartbeat() *Heartbeat {
	due := c.now >= c.nextBeat || c.urgent && c.now-c.beatAt >= urgentGap
	if !due {
		return nil
	}
	c.beatAt = c.now
	c.urgent = false
	c.nextBeat = c.now + c.pause()
	if !c.facts.Link || c.superseded() {
		return nil
	}
	c.sequence++
	if uint32(c.sequence) <= Refused { //nolint:gosec // only the lower bits matter
		c.sequence += 2
	}
	low := uint32(c.sequence) //nolint:gosec // only the lower bits matter
	c.sent[low%uint32(len(c.sent))] = sending{low, c.now}
	h := &Heartbeat{Node: c.Node, Boot: c.Boot, Sequence: c.sequence, Seen: c.seen, Flags: c.flags()}
	if c.view == nil {
		return h
	}
	h.Number = c.view.Number
	h.Acks = c.acks()
	h.Unfit = c.unfit()
	h.Wants, h.Released = c.wantedAndReleased()
	return h
}

// pause is the time until the next regular heartbeat. A node that is not needed sends seldom.
func (c *Election) pause() time.Duration {
	pause := c.rules.interval - time.Duration(c.random.Int64N(int64(c.rules.interval)/10))
	if c.view != nil && len(c.members) >= c.rules.maxMembers && !c.view.has(c.Node) {
		return 50 * pause
	}
	return pause
}

func (c *Election) flags() (f Flags) {
	set := func(flag Flags, on bool) {
		if on {
			f |= flag
		}
	}
	set(Candidate, c.facts.Candidate && !c.facts.Leaving)
	set(Witness, c.facts.Witness)
	set(Leaving, c.facts.Leaving)
	set(Held, c.now < c.holdDown.until)
	set(Handing, len(c.draining) > 0)
	set(NoAPI, c.api.failures > 0)
	set(Asking, c.facts.Link && !c.facts.Leaving && c.now >= c.holdDown.joinAt)
	return f
}

// acks lists the nodes that this node supports, does not hear or refuses. It is empty before this node has read the
// view, which holds the promises of its earlier run.
func (c *Election) acks() []Ack {
	all := make([]Ack, 0, len(c.peers)+1)
	for id, p := range c.peers {
		switch {
		case c.acknowledges(p):
			all = append(all, Ack{id, p.supported})
		case !c.startedUp() || !c.silent(id) || c.now-p.at > 10*c.rules.suspectTimeout && !c.view.has(p.name):
		case c.heard(p):
			all = append(all, Ack{id, Refused})
		default:
			all = append(all, Ack{id, Unheard})
		}
	}
	for _, id := range c.members {
		if c.peers[id] == nil && id != c.id && c.startedUp() && c.silent(id) {
			all = append(all, Ack{id, Unheard})
		}
	}
	sortAcks(all)
	return all
}

func sortAcks(all []Ack) {
	slices.SortFunc(all, func(a, b Ack) int { return cmp.Compare(a.Node, b.Node) })
}

// wantedAndReleased returns the addresses that this node waits for, and those that others wait for.
func (c *Election) wantedAndReleased() (wants, released []netip.Addr) {
	if c.waiting > 0 || c.stale {
		for a, h := range c.owned {
			if !h.answering && !h.fenced {
				wants = append(wants, a)
			}
		}
	}
	for a := range c.releases {
		if _, kept := c.draining[a]; !kept && (c.owned[a] == nil || !c.owned[a].answering) {
			released = append(released, a)
		}
	}
	return firsts(wants), firsts(released)
}

func firsts(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return all[:min(len(all), MaxListed)]
}

// unfit is the bitmap of addresses of the view that this node cannot serve.
func (c *Election) unfit() []byte {
	var bitmap []byte
	for i, a := range c.addresses {
		if fits, wanted := c.facts.Wanted[a]; wanted && !fits {
			if bitmap == nil {
				bitmap = make([]byte, (len(c.addresses)+7)/8)
			}
			bitmap[i/8] |= 1 << (i % 8)
		}
	}
	return bitmap
}
