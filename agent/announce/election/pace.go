package election

import (
	"slices"
	"time"
)

// The bounds of an interval. A shorter one costs more than it gains, and with a longer one a dead node is replaced
// after more than a quarter of a minute.
const (
	MinInterval = 50 * time.Millisecond
	MaxInterval = 5 * time.Second

	minInterval = uint16(MinInterval / time.Millisecond)
	maxInterval = uint16(MaxInterval / time.Millisecond)
)

// isInterval reports whether a view may have an interval; zero is for none.
func isInterval(ms uint16) bool { return ms == 0 || ms >= minInterval && ms <= maxInterval }

func milliseconds(d time.Duration) uint16 {
	return uint16(min(max(d, MinInterval), MaxInterval) / time.Millisecond)
}

// configured is the interval that this node is configured with.
func (e *Election) configured() time.Duration {
	if e.Interval <= 0 {
		return StandardInterval
	}
	return e.Interval
}

// setPace applies the intervals of the view. Nodes that work by the view before the last one may still be alive: until
// it is certain that they are not, a node answers no longer than the shorter interval allows, and waits for others as
// long as the longer one demands.
func (e *Election) setPace() {
	if e.view.Interval == 0 {
		return // written by an agent of an earlier release
	}
	short := time.Duration(e.view.Interval) * time.Millisecond
	long := short
	if e.view.Former != 0 && e.standard.twoPaces {
		former := time.Duration(e.view.Former) * time.Millisecond
		short = min(short, former)
		long = max(long, former)
	}
	before := e.rules.interval
	e.pace = long
	e.rules = e.standard.withInterval(long)
	faster := e.standard.withInterval(short)
	e.rules.interval = faster.interval
	e.rules.lease = faster.lease
	if before < e.rules.interval {
		// Leases of the shorter interval have to last until there are longer ones.
		e.hurry = before
		e.hurryUntil = e.now + e.rules.suspectTimeout
	}
}

// beatInterval is the time between two heartbeats now.
func (e *Election) beatInterval() time.Duration {
	if e.now < e.hurryUntil {
		return min(e.hurry, e.rules.interval) // which may have become shorter meanwhile
	}
	return e.rules.interval
}

// sharesInterval reports whether a heartbeat counts. In a view without an interval, which agents of an earlier release
// wrote, each node works by its own, and only nodes with ours count.
func (e *Election) sharesInterval(h *Heartbeat) bool {
	return e.view == nil || e.view.Interval != 0 || h.Interval == 0 || h.Interval == milliseconds(e.pace)
}

// leaseBy is for how long an acknowledgement is valid: no longer than its node waits before it counts us as silent.
func (e *Election) leaseBy(h *Heartbeat) time.Duration {
	if h.Interval == 0 || !e.standard.ackerLease {
		return e.rules.lease
	}
	return min(e.rules.lease, e.standard.withInterval(time.Duration(h.Interval)*time.Millisecond).lease)
}

// repaced returns the view with another interval, when it is time for that; nil otherwise. It takes two changes: the
// first begins to work by the shorter interval and to wait by the longer one, the second ends that, after no node can
// be supported by an older view.
func (e *Election) repaced() *View {
	configured := milliseconds(e.configured())
	next := e.view.next()
	switch {
	case e.view.Interval == 0:
		return next // propose sets it
	case e.view.Former != 0:
		if e.rules.stablePace && e.stable() < e.view.Paced {
			return nil
		}
		next.Former = 0
	case configured == e.view.Interval || !e.allPacing():
		return nil
	default:
		next.Former = e.view.Interval
		next.Interval = configured
		next.Paced = next.Number
	}
	return next
}

// allPacing reports whether all other members are heard and configured with another interval than that of the view.
func (e *Election) allPacing() bool {
	return !slices.ContainsFunc(e.members, func(id ID) bool {
		p := e.peers[id]
		return id != e.id && (!e.acknowledges(p) || !p.last.Flags.Has(Pacing))
	})
}
