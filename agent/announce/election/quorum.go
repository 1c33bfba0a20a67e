package election

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// rules are the numbers and switches on which safety depends. Tests break each to prove that it is needed.
type rules struct {
	// interval is the time between two heartbeats; jitter takes off up to a tenth of it.
	interval time.Duration
	// suspectTimeout is how long a node must not have been acknowledged to count as silent.
	suspectTimeout time.Duration
	// lease is how long an acknowledged heartbeat is valid, from when it was sent. It is shorter than suspectTimeout
	// by more than the clocks of two machines drift apart meanwhile.
	lease time.Duration
	// step is how much longer each further deputy waits after a member failed, relaxed when nothing is urgent.
	step, relaxed time.Duration
	// asks is how often the gateway is probed in quick succession; after that, each member gets askShare of the time.
	asks     int
	askShare time.Duration
	// drop is how long an address must be unwanted before it is removed.
	drop time.Duration
	// listValid is for how long a list of the addresses that exist may be used. When it confirms the view, the next one
	// is requested after listAgain, doubled up to listAgainMax.
	listValid, listAgain, listAgainMax time.Duration
	// holdDown, doubled up to holdDownMax, is how long a node that was not ready takes only what no other can.
	holdDown, holdDownMax time.Duration
	// cold is how long no node that knows the view may have been heard before a view is made from nothing.
	cold time.Duration
	// behind is how long a node may work with an old view before its addresses are given to others.
	behind time.Duration
	// rejoinDelay is how long a node that was removed waits before it asks to join again; it doubles up to holdDown.
	rejoinDelay time.Duration
	// joinerGrace is how long new addresses wait for nodes that are about to become members.
	joinerGrace time.Duration
	// rebalance is the minimum time between a move of an address and one that only makes the loads more even; zero for
	// none of these. calm is how long nothing must have changed before.
	rebalance, calm time.Duration
	// freeMoves is how often an address may move from an owner that cannot serve it, without movesWithin between two
	// moves, before it stays for a while: for stay, doubled up to stayMax.
	freeMoves                  int
	movesWithin, stay, stayMax time.Duration
	// A member that was not heard for examineAfter is examined every examineEvery, after a while every examineEveryMax;
	// what that shows counts for examinedFor. The member counts as off when its kubelet does not renew its Lease for as
	// long as that is valid, nodeLease at least. lapse is how long a node must have had no majority before it asks
	// whether others have taken it for off.
	examineAfter, examineEvery, examineEveryMax, examinedFor, nodeLease, lapse time.Duration
	// maxMembers is the maximum number of members of a view.
	maxMembers int
	// maxStaleReads is how often a view older than one reported as seen is read before it gets a higher number.
	maxStaleReads int

	majority, blocking func(members int) int

	// newerVoids: an acknowledgement does not count when its sender or this node has seen a newer view.
	// sentTime: it counts from when the acknowledged heartbeat was sent, not from when it came back.
	// startUpDelay: an agent that starts does not count for as long as its earlier run may be supported.
	newerVoids, sentTime, startUpDelay bool
	// startHandsOver: meanwhile it does not report that the node stopped answering. readFirst: it supports no node
	// before it has read the view.
	startHandsOver, readFirst bool
	// proof: a new owner waits until its predecessor cannot answer. stableProof: that a majority has seen the new
	// view proves it only after a lease. blockedProof: members that report not to hear it must have seen the new
	// view. boundedDraining: an address that is handed over is answered for no longer than the lease of the old view.
	proof, stableProof, blockedProof, boundedDraining bool
	// quorum: a member that finds a majority stays. stableRemoval: no removal before a majority has seen the last
	// change of the members for a lease. establishedJoin: no node joins before a majority saw that and hears the node.
	quorum, stableRemoval, establishedJoin bool
	// mutual: a member that does not receive our heartbeats is not supported. askGateway: only nodes that the gateway
	// answers remove others. yieldToLater: an agent that hears a later one of its own name is silent.
	mutual, askGateway, yieldToLater bool
	// readAfterLapse: a node that had no majority for long supports no node before it has read the view, or heard all
	// members.
	readAfterLapse bool
}

func standardRules() rules {
	return rules{
		interval:        HeartbeatInterval,
		suspectTimeout:  3 * HeartbeatInterval,
		lease:           29 * HeartbeatInterval / 10,
		step:            HeartbeatInterval,
		relaxed:         5 * HeartbeatInterval,
		asks:            8,
		askShare:        250 * time.Millisecond,
		drop:            5 * HeartbeatInterval,
		listValid:       10 * HeartbeatInterval,
		listAgain:       time.Second,
		listAgainMax:    time.Minute,
		holdDown:        max(10*time.Second, 30*HeartbeatInterval),
		holdDownMax:     max(5*time.Minute, 300*HeartbeatInterval),
		cold:            20 * HeartbeatInterval,
		behind:          10 * HeartbeatInterval,
		rejoinDelay:     5 * HeartbeatInterval,
		joinerGrace:     50 * HeartbeatInterval,
		calm:            30 * time.Second,
		freeMoves:       3,
		movesWithin:     5 * time.Minute,
		stay:            time.Second,
		stayMax:         time.Minute,
		examineAfter:    2 * time.Second,
		examineEvery:    3 * time.Second,
		examineEveryMax: 10 * time.Second,
		examinedFor:     15 * time.Second,
		nodeLease:       40 * time.Second,
		lapse:           20 * time.Second,
		maxMembers:      MaxMembers,
		maxStaleReads:   2,
		majority:        majority,
		blocking:        blocking,

		newerVoids: true, proof: true, stableProof: true, blockedProof: true,
		quorum: true, stableRemoval: true, establishedJoin: true,
		readAfterLapse: true,
		startHandsOver: true, readFirst: true,
		startUpDelay: true, boundedDraining: true, mutual: true, askGateway: true, yieldToLater: true, sentTime: true,
	}
}

// renew computes until when a majority of the members supports this node.
func (e *Election) renew() {
	e.updateLapse()
	e.lease = e.supportedUntil()
	if e.lease > e.now {
		e.leaseLost = false
	} else if !e.leaseLost {
		e.leaseLost = true
		if len(e.owned) > 0 && len(e.answered) > 0 && !e.ended {
			e.record(LeaseLost, netip.Addr{}, "")
		}
	}
}

func (e *Election) supportedUntil() time.Duration {
	silent := e.superseded() || e.facts.Standby || !e.facts.Link
	if e.view == nil || !e.view.has(e.Node) || !e.startedUp() || silent || e.lapse.is {
		return never
	}
	others := e.rules.majority(len(e.view.Members)) - 1
	switch {
	case others > 0:
	case e.ended:
		return e.lease
	case e.rules.newerVoids && e.seen != e.view.Number:
		return e.lease // its own acknowledgement counts no more than that of others would
	default:
		return e.now + e.rules.lease
	}
	times := e.times[:0]
	for _, id := range e.members {
		if p := e.peers[id]; p != nil && p.ackedAt != never {
			times = append(times, p.ackedAt)
		}
	}
	e.times = times
	if len(times) < others {
		return never
	}
	slices.SortFunc(times, func(a, b time.Duration) int { return int(b - a) })
	return times[others-1] + e.rules.lease
}

// mark is since when a majority is known to have seen a number.
type mark struct {
	number uint64
	at     time.Duration
}

// acknowledge updates the highest number that a majority of the members is known to have seen.
func (e *Election) acknowledge() {
	if e.view == nil {
		return
	}
	numbers := e.numbers[:0]
	for _, id := range e.members {
		switch p := e.peers[id]; {
		case id == e.id:
			numbers = append(numbers, e.seen)
		case p != nil:
			numbers = append(numbers, p.seen)
		}
	}
	e.numbers = numbers
	n := e.rules.majority(len(e.members))
	if len(numbers) < n {
		return
	}
	slices.SortFunc(numbers, func(a, b uint64) int { return cmp.Compare(b, a) })
	if agreed := numbers[n-1]; agreed > e.acknowledged() {
		e.marks = append(e.marks, mark{agreed, e.now})
	}
	for len(e.marks) > 1 && e.marks[1].at <= e.now-e.rules.suspectTimeout {
		e.marks = e.marks[1:]
	}
}

// acknowledged is the highest number that a majority of the members is known to have seen.
func (e *Election) acknowledged() uint64 {
	if len(e.marks) == 0 {
		return 0
	}
	return e.marks[len(e.marks)-1].number
}

// stable is the highest number seen by a majority for more than a lease: no node is supported by an older view.
func (e *Election) stable() uint64 {
	if len(e.marks) == 0 || e.marks[0].at > e.now-e.rules.suspectTimeout {
		return 0
	}
	return e.marks[0].number
}

// quorum counts the members that do not support a node, and those that are certainly off.
func (e *Election) quorum(against ID, among []ID, seen uint64, fresh bool) int {
	n := 0
	for _, id := range among {
		p := e.peers[id]
		switch {
		case e.off(id):
			n++
		case id == against:
		case id == e.id:
			if e.silent(against) && e.seen >= seen {
				n++
			}
		case p != nil && p.last.Seen >= seen && p.last.suspects(against) && (!fresh || e.acknowledges(p)):
			n++
		}
	}
	return n
}

// proven reports whether no predecessor can answer for an address that the view gives to this node.
func (e *Election) proven(o *ownership) bool {
	if !e.rules.proof || e.stable() >= o.epoch || !e.rules.stableProof && e.acknowledged() >= o.epoch {
		return true
	}
	for _, name := range o.predecessors {
		if name != e.Node && !e.stopped(name, o) {
			return false
		}
	}
	return len(o.predecessors) > 0
}

// stopped reports whether a predecessor is known not to answer by a view older than the one that named this node.
func (e *Election) stopped(name string, o *ownership) bool {
	id := IDOf(name)
	if e.off(id) {
		return true
	}
	if p := e.peers[id]; p != nil && p.last.Seen >= o.epoch {
		if p.last.Number >= o.epoch && !p.last.Flags.Has(Handing) || slices.Contains(p.last.Released, o.address) {
			return true
		}
	}
	return e.blocked(id, o.epoch)
}

// blocked reports whether so many members have seen a view and do not support a node that the node cannot find a
// majority by an older view. The members of that older view must be known.
func (e *Election) blocked(id ID, epoch uint64) bool {
	among := e.members
	if !e.rules.blockedProof {
		epoch = 0
	}
	switch {
	case e.view.Changed < epoch && e.stable() >= e.view.Changed, epoch == 0:
	case e.view.Changed == epoch && e.view.Removed != "":
		among = append(slices.Clip(among), IDOf(e.view.Removed))
	default:
		return false
	}
	return e.quorum(id, among, epoch, false) >= e.rules.blocking(len(among))
}
