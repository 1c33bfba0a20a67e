package election

import (
	"maps"
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
	// begunAt is when its agent started after an earlier one that had handed over its addresses.
	begunAt time.Duration
	// supportedAt is when it was last heard and did not refuse us; it is acknowledged only then.
	supportedAt time.Duration
	supported   uint32 // the sequence number
	// acked is the sequence number of our newest heartbeat that it reported to have received, zero before the first.
	acked uint32
	// replaySuspectAt is when a heartbeat of it was last dropped, because it may be an old one.
	replaySuspectAt time.Duration
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
func (e *Election) handleHeartbeat(h *Heartbeat) {
	id := IDOf(h.Node)
	if h.Node == e.Node {
		e.handleDuplicate(h)
		return
	}
	p := e.peers[id]
	switch {
	case id == e.id, p != nil && p.name != h.Node, e.isClash(id, h.Node):
		return // the IDs of two names are equal
	case p == nil:
		p = &peer{id: id, name: h.Node, since: e.now, supportedAt: never, ackedAt: never, behindSince: never,
			replaySuspectAt: never, begunAt: never}
		e.peers[id] = p
	case h.Boot < p.last.Boot && e.heard(p),
		h.Boot == p.last.Boot && h.Sequence <= p.last.Sequence && !e.isLater(p, h):
		return // an earlier run, or overtaken on the way
	case e.now-p.at >= e.rules.suspectTimeout:
		p.since = e.now
	}
	if p.last == nil || p.last.Flags != h.Flags || p.last.Number != h.Number || !slices.Equal(p.last.Unfit, h.Unfit) {
		e.changed = true
	}
	if p.last != nil && h.Boot > p.last.Boot && p.last.Flags.Has(Leaving) {
		p.begunAt = e.now
	}
	p.last = h
	p.at = e.now
	p.seen = max(p.seen, h.Seen, h.Number)
	if p.seen > e.seen {
		e.seen = p.seen
		e.urgent = true
	}
	if sequence, found := h.AckOf(e.id); !found || sequence != Unheard || !e.rules.mutual {
		p.supportedAt = e.now
		p.supported = uint32(h.Sequence) //nolint:gosec // only the lower bits matter
	}
	if n := h.suspectCount(); n != p.suspectCount {
		p.suspectCount = n
		e.changed = true
	}
	if sequence, ok := e.recent(h); ok && (p.acked == Unheard || IsAfter(sequence, p.acked)) {
		p.acked = sequence
	}
	e.countAck(p)
	e.updateBehind(p)
	e.yieldTo(h)
}

// isClash reports whether the ID of a node is that of a member with another name.
func (e *Election) isClash(id ID, name string) bool {
	return e.view != nil && slices.Contains(e.members, id) && !e.view.has(name)
}

// isLater reports whether a heartbeat was sent after all others received of its node, whatever its number is: it
// reports a later one of ours. So a heartbeat with a number that is far ahead drops none of those that follow.
func (e *Election) isLater(p *peer, h *Heartbeat) bool {
	sequence, recent := e.recent(h)
	return recent && (p.acked == Unheard || IsAfter(sequence, p.acked))
}

// recent returns our heartbeat that a node reports to have received, if it is one of the last.
func (e *Election) recent(h *Heartbeat) (sequence uint32, ok bool) {
	sequence, found := h.AckOf(e.id)
	return sequence, found && sequence > Refused && e.sent[sequence%uint32(len(e.sent))].sequence == sequence
}

// handleReplaySuspect handles a heartbeat that was dropped, because it may be an old one.
func (e *Election) handleReplaySuspect(node string) {
	if p := e.peers[IDOf(node)]; p != nil && p.name == node {
		p.replaySuspectAt = e.now
	}
}

// countAck uses the acknowledgement in a node's newest heartbeat, if it counts.
func (e *Election) countAck(p *peer) {
	sequence, found := p.last.AckOf(e.id)
	if !found || sequence <= Refused || e.view == nil || p.last.Flags.Has(Lapsed) {
		return
	}
	if e.rules.newerVoids && e.seen != e.view.Number {
		return
	}
	sent := e.sent[sequence%uint32(len(e.sent))]
	if sent.sequence != sequence {
		return
	}
	if !e.rules.sentTime {
		sent.at = e.now
	}
	p.ackedAt = max(p.ackedAt, sent.at)
}

func (e *Election) updateBehind(p *peer) {
	switch {
	case e.view == nil || p.last.Number >= e.view.Number:
		p.behindSince = never
	case p.behindSince == never:
		p.behindSince = e.now
	}
}

// handleDuplicate handles a heartbeat of another agent with our own name: the later one stays.
func (e *Election) handleDuplicate(h *Heartbeat) {
	if h.Boot <= e.Boot || !e.rules.yieldToLater {
		return
	}
	if e.now-e.duplicateAt >= e.rules.suspectTimeout {
		e.record(DuplicateMember, netip.Addr{}, "")
	}
	e.duplicateAt = e.now
}

// superseded reports whether a later agent of our own name is alive.
func (e *Election) superseded() bool { return e.now-e.duplicateAt < e.rules.suspectTimeout }

// startedUp reports whether this agent has run for long enough that no node supports an earlier run of it.
func (e *Election) startedUp() bool {
	return !e.rules.startUpDelay || e.now-e.begun >= e.rules.suspectTimeout
}

// mayPrecede reports whether an earlier agent of this node may still answer.
func (e *Election) mayPrecede() bool { return e.rules.startHandsOver && !e.startedUp() }

// acknowledges reports whether this node supports a peer now.
func (e *Election) acknowledges(p *peer) bool {
	return p != nil && e.now-p.supportedAt < e.rules.suspectTimeout
}

// silent reports whether a node has not been supported for the suspect timeout.
func (e *Election) silent(id ID) bool {
	last := e.resumed
	if p := e.peers[id]; p != nil {
		last = max(last, p.supportedAt)
	}
	return e.now-last >= e.rules.suspectTimeout
}

// updateSilent updates which peers are silent. Others wait for a change, so the next heartbeat is urgent.
func (e *Election) updateSilent() {
	for id, p := range e.peers {
		if silent := e.silent(id); silent != p.silent {
			p.silent = silent
			e.urgent = true
			e.changed = true
		}
	}
}

// heard reports whether any heartbeat of a peer was received recently.
func (e *Election) heard(p *peer) bool { return p != nil && e.now-p.at < e.rules.suspectTimeout }

// inHoldDown reports whether this node takes an address only when no other one can.
func (e *Election) inHoldDown() bool { return e.now < e.holdDown.until || e.facts.Cordoned }

// peerInHoldDown reports whether a peer should not get addresses soon after it was not ready. That its agent has just
// started is no reason if the one before ended in an orderly way, as in a reboot: in a rolling one another node reboots
// next, and all of its addresses would go to the nodes that have not been rebooted recently.
func (e *Election) peerInHoldDown(p *peer) bool {
	return p.last.Flags.Has(HoldDown) && e.now-p.begunAt >= e.rules.holdDown
}

// prunePeers removes peers that were not heard for long and are not members, and old evidence.
func (e *Election) prunePeers() {
	maps.DeleteFunc(e.examinations.members, func(_ ID, x examination) bool {
		return e.now-x.asOf > e.rules.holdDownMax
	})
	maps.DeleteFunc(e.peers, func(_ ID, p *peer) bool {
		return e.now-p.at > e.rules.holdDownMax && (e.view == nil || !e.view.has(p.name))
	})
}
