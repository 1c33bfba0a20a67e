package election

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Evidence is what is known about a silent member other than by heartbeats.
type Evidence struct {
	// Off reports whether someone has stated that the server is off, or no member of the network any more: the Node was
	// deleted, or has a taint that says so, or does not list the network.
	Off bool
	// Renewal is when the kubelet last renewed the Lease of the Node and the agent its own, in any form that differs
	// from one renewal to the next; empty when that is unknown. Duration is for how long the Lease of the Node is
	// valid.
	Renewal  string
	Duration time.Duration
	// Claimed reports whether a machine claims one of the member's addresses on the public network (ARP).
	Claimed bool
}

// Examined answers Output.Examine. Members about which nothing could be learned are missing.
type Examined map[string]Evidence

// examinations are what is known about silent members, of which a majority may be dead.
type examinations struct {
	// inFlight is set while an answer is outstanding, to the request at askedAt.
	inFlight bool
	askedAt  time.Duration
	// asked counts the requests since there have been such members, silent those members.
	asked   int
	silent  int
	members map[ID]examination
}

// examination is what is known about a silent member.
type examination struct {
	off      bool
	renewal  string
	duration time.Duration
	// since is when this renewal was first known, and since when no machine has claimed an address of the member. asOf
	// is when the newest evidence was requested.
	since, asOf time.Duration
}

// examine requests evidence about members that have been silent for long. It is collected by the nodes whose turn to
// remove them is near, about some members at a time, and only while the gateway answers: a node that is cut off, or one
// of hundreds in a broken network, must not flood the API server.
func (e *Election) examine(out *Output) {
	if e.view == nil || e.examinations.inFlight {
		return
	}
	silent := e.unheard()
	if e.examinations.silent = len(silent); len(silent) == 0 {
		e.examinations.asked = 0
		return
	}
	pause := loop.Backoff(e.rules.examineEvery, e.rules.examineEveryMax, e.examinations.asked-manyExaminations)
	if due := e.examinations.askedAt + pause; e.now < due {
		e.wake(due)
		return
	}
	if e.facts.HasGateway && e.gatewayAt <= e.examinations.askedAt {
		return
	}
	members := map[string][]netip.Addr{}
	for _, m := range silent[:min(len(silent), maxExamined)] {
		members[m] = nil
	}
	for a, owner := range e.view.Owners {
		if _, is := members[owner.Node]; is {
			members[owner.Node] = append(members[owner.Node], a)
		}
	}
	e.examinations.inFlight = true
	e.examinations.askedAt = e.now
	e.examinations.asked++
	out.Examine = members
}

// unheard returns the members that this node should examine, those first whose evidence is the oldest.
func (e *Election) unheard() []string {
	var silent []string
	for _, m := range e.view.Members {
		if e.unheardFor(IDOf(m)) >= e.rules.examineAfter && m != e.Node && e.rank("remove/"+m) < examiners {
			silent = append(silent, m)
		}
	}
	slices.SortStableFunc(silent, func(a, b string) int {
		return cmp.Compare(e.examinations.members[IDOf(a)].asOf, e.examinations.members[IDOf(b)].asOf)
	})
	return silent
}

const (
	// examiners is how many nodes examine a silent member, maxExamined how many members a node examines at a time.
	examiners   = 3
	maxExamined = 16
	// manyExaminations is after how many of them the pauses grow: the Leases of dead Nodes have expired by then.
	manyExaminations = 20
)

// handleExamined handles evidence.
func (e *Election) handleExamined(members Examined) {
	e.examinations.inFlight = false
	e.changed = true
	for name, evidence := range members {
		x, known := e.examinations.members[IDOf(name)]
		if !known || evidence.Renewal == "" || evidence.Renewal != x.renewal || evidence.Claimed {
			x.since = e.now
		}
		x.off = evidence.Off
		x.renewal = evidence.Renewal
		x.duration = max(evidence.Duration, e.rules.nodeLease)
		x.asOf = e.examinations.askedAt
		e.examinations.members[IDOf(name)] = x
	}
}

// unheardFor is for how long no heartbeat of a node has been received, not even one that was dropped. While the process
// stood still, there may have been some.
func (e *Election) unheardFor(id ID) time.Duration {
	last := max(e.begun, e.resumed)
	if p := e.peers[id]; p != nil {
		last = max(last, p.at, p.replaySuspectAt)
	}
	return e.now - last
}

// isExamined reports whether there is new evidence about a node, and it has been silent for long. Where there are many
// such nodes, each has its turn more rarely.
func (e *Election) isExamined(id ID) (x examination, ok bool) {
	x, ok = e.examinations.members[id]
	valid := time.Duration(1+e.examinations.silent/maxExamined) * e.rules.examinedFor
	return x, ok && e.now-x.asOf < valid && e.unheardFor(id) >= e.rules.examineAfter
}

// off reports whether a node is off. Either someone states so, or everything says so for as long as the Lease of a Node
// is valid: neither its kubelet nor its agent renews one, no machine claims its addresses, and it is not heard. That
// the gateway and the API server answer is required for every change of the members.
func (e *Election) off(id ID) bool {
	x, ok := e.isExamined(id)
	expired := x.renewal != "" && x.asOf-x.since >= x.duration && e.unheardFor(id) >= x.duration
	return ok && (x.off || expired)
}

// isolated reports whether others may come to take this node for off.
func (e *Election) isolated() bool {
	if e.view == nil || !e.view.has(e.Node) {
		return false
	}
	return e.lease <= e.now || slices.ContainsFunc(e.members, func(id ID) bool {
		p := e.peers[id]
		return id != e.id && (!e.acknowledges(p) || p.last.suspects(e.id))
	})
}

// declaredOff reports whether someone states that a node is off.
func (e *Election) declaredOff(id ID) bool {
	x, ok := e.isExamined(id)
	return ok && x.off
}
