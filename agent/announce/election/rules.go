package election

import "time"

// rules are the numbers and switches on which the safety of an Election rests. Tests break them one by one to prove
// that each is needed.
type rules struct {
	// interval is the time between two heartbeats; jitter takes off up to a tenth of it.
	interval time.Duration
	// suspectTimeout is how long a node must not have been acknowledged to count as silent.
	suspectTimeout time.Duration
	// lease is how long an acknowledged heartbeat is valid, from when it was sent. It is shorter than suspectTimeout
	// by more than the clocks of two machines drift apart meanwhile.
	lease time.Duration
	// step is the time that each further deputy waits longer after a member failed, relaxed that for what is not
	// urgent.
	step, relaxed time.Duration
	// drop is how long an address must be unwanted before it is removed.
	drop time.Duration
	// holdDown is how long a node that was not ready takes no address that another node can take; it doubles up to
	// holdDownMax.
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
	// maxStaleReads is how often a view is read that is older than a number reported as seen, before it gets a higher
	// number.
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
