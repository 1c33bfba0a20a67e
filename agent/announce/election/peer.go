package election

import (
	"net/netip"
	"slices"
	"time"
)

// never is before all other times.
const never = time.Duration(-1 << 62)

// peer is what is known of another node.
type peer struct {
	id   ID
	name string
	// last is its newest heartbeat, received at; since is when the current run of heartbeats without a gap began.
	last      *Heartbeat
	at, since time.Duration
	// supportedAt is when it was last heard and did not refuse us; it is acknowledged only then.
	supportedAt time.Duration
	supported   uint32 // the sequence number
	// seen is the highest number of a view that it ever reported. It is a promise that outlives its agent: a new
	// agent reads the view before it supports any node.
	seen uint64
	// ackedAt is when we sent our newest heartbeat that it acknowledged and that counts.
	ackedAt time.Duration
	// suspectCount is how many nodes its newest heartbeat does not support; silent: this node does not support it.
	suspectCount int
	silent       bool
	// behindSince is since when it works with an older view than ours.
	behindSince time.Duration
}

// handleHeartbeat handles a heartbeat of another node.
func (c *Election) handleHeartbeat(h *Heartbeat) {
	id := IDOf(h.Node)
	if h.Node == c.Node {
		c.handleDuplicate(h)
		return
	}
	p := c.peers[id]
	switch {
	case id == c.id, p != nil && p.name != h.Node:
		return // the IDs of two names are equal
	case p == nil:
		p = &peer{id: id, name: h.Node, since: c.now, supportedAt: never, ackedAt: never, behindSince: never}
		c.peers[id] = p
	case h.Boot < p.last.Boot && c.heard(p), h.Boot == p.last.Boot && h.Sequence <= p.last.Sequence:
		return // an earlier run, or overtaken on the way
	case c.now-p.at >= c.rules.suspectTimeout:
		p.since = c.now
	}
	if p.last == nil || p.last.Flags != h.Flags || p.last.Number != h.Number || !slices.Equal(p.last.Unfit, h.Unfit) {
		c.changed = true
	}
	p.last = h
	p.at = c.now
	p.seen = max(p.seen, h.Seen, h.Number)
	if p.seen > c.seen {
		c.seen = p.seen
		c.urgent = true
	}
	if sequence, found := h.ackOf(c.id); !found || sequence != Unheard || !c.rules.mutual {
		p.supportedAt = c.now
		p.supported = uint32(h.Sequence) //nolint:gosec // only the lower bits matter
	}
	if n := h.suspectCount(); n != p.suspectCount {
		p.suspectCount = n
		c.changed = true
	}
	c.countAck(p)
	c.updateBehind(p)
	c.yieldTo(h)
}

// countAck uses the acknowledgement in a node's newest heartbeat, if it counts.
func (c *Election) countAck(p *peer) {
	sequence, found := p.last.ackOf(c.id)
	if !found || sequence <= Refused || c.view == nil {
		return
	}
	if c.rules.newerVoids && (c.seen != c.view.Number || p.last.Seen > c.view.Number) {
		return
	}
	sent := c.sent[sequence%uint32(len(c.sent))]
	if sent.sequence != sequence {
		return
	}
	if !c.rules.sentTime {
		sent.at = c.now
	}
	p.ackedAt = max(p.ackedAt, sent.at)
}

func (c *Election) updateBehind(p *peer) {
	switch {
	case c.view == nil || p.last.Number >= c.view.Number:
		p.behindSince = never
	case p.behindSince == never:
		p.behindSince = c.now
	}
}

// handleDuplicate handles a heartbeat of another agent with our own name: the later one stays.
func (c *Election) handleDuplicate(h *Heartbeat) {
	if h.Boot <= c.Boot || !c.rules.yieldToLater {
		return
	}
	if c.now-c.duplicateAt >= c.rules.suspectTimeout {
		c.record(DuplicateMember, netip.Addr{}, "")
	}
	c.duplicateAt = c.now
}

// superseded reports whether a later agent of our own name is alive.
func (c *Election) superseded() bool { return c.now-c.duplicateAt < c.rules.suspectTimeout }

// startedUp reports whether this agent has run for long enough that no node supports an earlier run of it.
func (c *Election) startedUp() bool {
	return !c.rules.startUpDelay || c.now-c.begun >= c.rules.suspectTimeout
}

// acknowledges reports whether this node supports a peer now.
func (c *Election) acknowledges(p *peer) bool {
	return p != nil && c.now-p.supportedAt < c.rules.suspectTimeout
}

// silent reports whether a node has not been supported for the suspect timeout.
func (c *Election) silent(id ID) bool {
	last := c.resumed
	if p := c.peers[id]; p != nil {
		last = max(last, p.supportedAt)
	}
	return c.now-last >= c.rules.suspectTimeout
}

// updateSilent updates which peers are silent. Others wait for a change, so the next heartbeat is urgent.
func (c *Election) updateSilent() {
	for id, p := range c.peers {
		if silent := c.silent(id); silent != p.silent {
			p.silent = silent
			c.urgent = true
			c.changed = true
		}
	}
}

// heard reports whether any heartbeat of a peer was received recently.
func (c *Election) heard(p *peer) bool { return p != nil && c.now-p.at < c.rules.suspectTimeout }

// prunePeers removes peers that were not heard for long and are not members.
func (c *Election) prunePeers() {
	for id, p := range c.peers {
		if c.now-p.at > c.rules.holdDownMax && (c.view == nil || !c.view.has(p.name)) {
			delete(c.peers, id)
		}
	}
}
