package election

import (
	"slices"
	"time"
)

// lapse is whether this node has gone without the support of a majority for so long that others may have taken it for
// off, and its majority with it. Before it supports any node again, itself included, it must know that the view is
// still its own: by a read or a write that it requests after it hears a majority again, or from all members. An event
// of a watch may be late.
type lapse struct {
	// is says so. at is when the last lapse or lease ended.
	is bool
	at time.Duration
	// reachedAt is since when it has been hearing a majority again; never while it does not.
	reachedAt time.Duration
}

// updateLapse is called before the lease is renewed.
func (e *Election) updateLapse() {
	l := &e.lapse
	l.at = max(l.at, min(e.lease, e.now))
	l.is = e.rules.readAfterLapse && e.view != nil && e.view.has(e.Node) && e.now-l.at >= e.rules.lapse
	if !l.is || !e.hearsMajority() {
		l.reachedAt = never
		return
	}
	if l.reachedAt == never {
		l.reachedAt = e.now
	}
	if e.api.knownAt >= l.reachedAt || e.allAnswer(l.reachedAt) {
		l.at = e.now
		l.is = false
		e.urgent = true
		return
	}
	e.api.readWanted = true
}

// hearsMajority reports whether this node and the members that it hears are a majority.
func (e *Election) hearsMajority() bool {
	n := 1
	for _, id := range e.members {
		if id != e.id && e.heard(e.peers[id]) {
			n++
		}
	}
	return n >= e.rules.majority(len(e.members))
}

// allAnswer reports whether all other members know this view or a newer one, and have received what this node sent
// after a time. Then no node has changed the view without them. It works without the API server.
func (e *Election) allAnswer(after time.Duration) bool {
	return len(e.members) > 1 && !slices.ContainsFunc(e.members, func(id ID) bool {
		p := e.peers[id]
		return id != e.id && (!e.heard(p) || p.last.Number < e.view.Number || e.ackedSince(p) < after)
	})
}

// ackedSince is when this node sent the newest heartbeat that a node has received, if it was one of the last.
func (e *Election) ackedSince(p *peer) time.Duration {
	sequence, ok := e.recent(p.last)
	if !ok {
		return never
	}
	return e.sent[sequence%uint32(len(e.sent))].at
}
