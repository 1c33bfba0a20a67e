package election

import "time"

// rules are the numbers and demands on which the safety of a Core rests. Tests break them one by one to see that it shows.
type rules struct {
	// interval is the time between two heartbeats; up to a tenth of it is taken off by chance.
	interval time.Duration
	// suspectTimeout is for how long a node must not have been acknowledged to be called silent.
	suspectTimeout time.Duration
	// lease is how long an acknowledged heartbeat is good for, from when it was sent. It is shorter than silence by more than
	// clocks of two machines drift apart meanwhile.
	lease time.Duration
	// step is the time by which each further deputy waits longer for the death of a member, easy that for what is not urgent.
	step, relaxed time.Duration
	// drop is how long an address must be unwanted before it is dropped.
	drop time.Duration
	// holdDown is how long a node that was not ready takes no address that another one can take; it doubles up to holdDownMax.
	holdDown, holdDownMax time.Duration
	// cold is how long nobody may have been heard before a view is made from nothing.
	cold time.Duration
	// behind is for how long a node may work with an old view before its addresses are given to others.
	behind time.Duration
	// rejoinDelay is the pause before a node that was removed is taken in again; it doubles up to hold.
	rejoinDelay time.Duration
	// gather is how long addresses that are new wait for nodes that are about to become members.
	gather time.Duration
	// members is the most members of a view.
	members int
	// chase is how often a view is read that is older than what is said to have been seen, before it gets a higher number.
	chase int

	majority, blocking func(members int) int

	// newerVoids: an acknowledgement does not count when its sender or this node has seen a newer view.
	// sentTime: it counts from when the acknowledged heartbeat was sent, not from when it came back.
	// startUpDelay: an agent that starts has no voice for as long as its former life may be supported.
	newerVoids, sentTime, startUpDelay bool
	// proof: a new owner waits until its predecessor cannot answer. stableProof: that a majority has seen the new view proves
	// it only after a lease. blockedProof: those who say that they do not hear it have to have seen the new view.
	// boundedDraining: what is handed over is answered for no longer than the lease of the old view lasts.
	proof, stableProof, blockedProof, boundedDraining bool
	// quorum: who finds a majority is not removed. stableRemoval: no member is removed before the last change of the members
	// has been seen by a majority for a lease. establishedJoin: none comes before a majority has seen that, and
	// hears it.
	quorum, stableRemoval, establishedJoin bool
	// mutual: who does not hear us is not supported. askGateway: only those remove others whom the gateway answers.
	// yields: an agent is silent that hears a later one of its own name.
	mutual, askGateway, yields bool
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
		gather:         5 * time.Second,
		members:        120,
		chase:          5,
		majority:       majority,
		blocking:       blocking,

		newerVoids: true, proof: true, stableProof: true, blockedProof: true, quorum: true, stableRemoval: true, establishedJoin: true,
		startUpDelay: true, boundedDraining: true, mutual: true, askGateway: true, yields: true, sentTime: true,
	}
}

// paced are the rules with another time between two heartbeats, in proportion.
func (r rules) paced(interval time.Duration) rules {
	if interval <= 0 {
		return r
	}
	standard := r.interval
	for _, d := range []*time.Duration{&r.interval, &r.suspectTimeout, &r.lease, &r.step, &r.relaxed, &r.drop, &r.cold, &r.behind, &r.rejoinDelay, &r.gather} {
		*d = time.Duration(float64(*d) * float64(interval) / float64(standard))
	}
	r.holdDown, r.holdDownMax = max(r.holdDown, 10*r.suspectTimeout), max(r.holdDownMax, 100*r.suspectTimeout)
	return r
}
