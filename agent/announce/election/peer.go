package election

import (
	"slices"
	"time"
)

// never is a time before all others.
const never = time.Duration(-1 << 62)

// peer is what is known of another node.
type peer struct {
	id   ID
	name string
	// last is its newest heartbeat, at is when it was heard, since from when on it was heard without a break.
	last      *Heartbeat
	at, since time.Duration
	// supportedAt is when it was last heard and said nothing against hearing us; only then it is acknowledged.
	supportedAt time.Duration
	supported   uint32 // the sequence number
	// seen is the highest number that it ever said to have seen. It is a promise that outlives its agent: a new agent reads the
	// view before it supports anybody.
	seen uint64
	// ackedAt is when our newest heartbeat was sent that it acknowledged and that counts.
	ackedAt time.Duration
	// silences is how many nodes its newest heartbeat does not support, silent that this node does not support it.
	silences int
	silent   bool
	// behindSince is from when on it worked with an older view than ours.
	behindSince time.Duration
}

// hear takes a heartbeat.
func (c *Election) hear(h *Heartbeat) {
	id := IDOf(h.Node)
	if h.Node == c.Node {
		c.hearSelf(h)
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
		return // a former life, or overtaken on the way
	case c.now-p.at >= c.rules.suspectTimeout:
		p.since = c.now
	}
	c.noteFlags(p, h)
	p.last, p.at = h, c.now
	p.seen = max(p.seen, h.Seen, h.Number)
	if p.seen > c.seen {
		c.seen, c.urgent = p.seen, true
	}
	if sequence, said := h.says(c.id); !said || sequence != Unheard || !c.rules.mutual {
		p.supportedAt, p.supported = c.now, uint32(h.Sequence) //nolint:gosec // the lower bits are wanted
	}
	if n := h.silenced(); n != p.silences {
		p.silences, c.changed = n, true
	}
	c.countAck(p)
	c.noteBehind(p)
	c.yieldTo(h)
}

// noteFlags notes what makes the answers to a heartbeat urgent, and the state of a node new.
func (c *Election) noteFlags(p *peer, h *Heartbeat) {
	if p.last == nil || p.last.Flags != h.Flags || p.last.Number != h.Number || !slices.Equal(p.last.Unfit, h.Unfit) {
		c.changed = true
	}
}

// countAck counts the acknowledgement in a node's newest heartbeat, if it counts.
func (c *Election) countAck(p *peer) {
	sequence, said := p.last.says(c.id)
	if !said || sequence <= Refused || c.view == nil {
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

func (c *Election) noteBehind(p *peer) {
	switch {
	case c.view == nil || p.last.Number >= c.view.Number:
		p.behindSince = never
	case p.behindSince == never:
		p.behindSince = c.now
	}
}

// hearSelf takes a heartbeat of another agent with our own name: the one that was started later stays.
func (c *Election) hearSelf(h *Heartbeat) {
	if h.Boot <= c.Boot || !c.rules.yields {
		return
	}
	if c.now-c.duplicateAt >= c.rules.suspectTimeout {
		c.record(DuplicateMember, "")
	}
	c.duplicateAt = c.now
}

// deposed tells whether a later agent of our own name is heard.
func (c *Election) deposed() bool { return c.now-c.duplicateAt < c.rules.suspectTimeout }

// startedUp tells whether this agent is long enough at work to have a voice: nobody supports a former life of it, and what
// it does not hear is silent.
func (c *Election) startedUp() bool {
	return !c.rules.startUpDelay || c.now-c.begun >= c.rules.suspectTimeout
}

// acknowledge tells whether a node is supported at the moment.
func (c *Election) acknowledges(p *peer) bool {
	return p != nil && c.now-p.supportedAt < c.rules.suspectTimeout
}

// silent tells whether a node has not been supported for long enough.
func (c *Election) silent(id ID) bool {
	last := c.resumed
	if p := c.peers[id]; p != nil {
		last = max(last, p.supportedAt)
	}
	return c.now-last >= c.rules.suspectTimeout
}

// noteSilent notes who has become silent, which others are waiting to be told, and who has not.
func (c *Election) noteSilent() {
	for id, p := range c.peers {
		if silent := c.silent(id); silent != p.silent {
			p.silent, c.urgent, c.changed = silent, true, true
		}
	}
}

// heard tells whether anything is heard of a node.
func (c *Election) heard(p *peer) bool { return p != nil && c.now-p.at < c.rules.suspectTimeout }

// forget drops nodes that are not heard any more and have no voice.
func (c *Election) forget() {
	for id, p := range c.peers {
		if c.now-p.at > c.rules.holdDownMax && (c.view == nil || !c.view.has(p.name)) {
			delete(c.peers, id)
		}
	}
}
