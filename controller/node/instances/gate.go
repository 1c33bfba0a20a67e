package instances

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

const (
	// confirmAfter is the minimum time between the two observations that together mean "gone".
	confirmAfter = 30 * time.Second
	// confirmManyAfter is that time when more than one, and more than a fewShare of the known servers, are missing: an
	// API that shows a part of an account only for a moment must not delete a part of a cluster.
	confirmManyAfter = 2 * time.Minute
	// forgetAfter ends a suspicion that was not renewed: the Node was ready again, and the framework did not ask.
	forgetAfter = 5 * time.Minute
	// closelyFor is for how long fresh requests are made for a Node that has become not ready. Then they are only made
	// while its server may soon be found gone, because such a Node may be kept for days.
	closelyFor = 5 * time.Minute
	// breakerWindow is how long a missing server counts against the breaker, and how long a longer list is remembered.
	breakerWindow = 10 * time.Minute
	// breakerShare is the part of the known Nodes, one in two, that may disappear within that window.
	breakerShare = 2
	// fewShare is the part of the known Nodes, one in five, whose servers are few.
	fewShare = 5
)

// deletionState is the state of a server that seems to have disappeared.
type deletionState string

const (
	suspect deletionState = "suspect" // found missing once, or not for long enough
	held    deletionState = "held"    // missing, but something says that the API shows only a part of the account
	gone    deletionState = "gone"    // missing twice, while the servers of at least as many other Nodes are there
)

// holdReason is why the Node of a missing server is kept.
type holdReason int

const (
	notHeld holdReason = iota
	// listShrank: the list has just lost more than half of its length.
	listShrank
	// tooMany servers are missing, or were gone within the window.
	tooMany
	// noneReadable: other servers are listed, but cannot be read by their ID either.
	noneReadable
)

// observation is one check of a server that seems to have disappeared.
type observation struct {
	// since is when it was first found missing, seen when the list of this check was requested.
	since, seen time.Time
	// missing counts the Nodes whose servers are missing or were gone within the window, known all Nodes.
	missing, known int
	// listed and peak are the lengths of this list and of the longest list within the window.
	listed, peak int
	// unreadable reports that other servers are listed, but none that was tried can be read by its ID.
	unreadable bool
}

// mayGo returns how many of the known Nodes may be deleted within the window: one, or half of them. Unless there is one
// Node only, at least as many servers of other Nodes are then in the list.
func mayGo(known int) int { return max(1, known/breakerShare) }

// confirmation returns the minimum time between the two observations that together mean "gone".
func (s observation) confirmation() time.Duration {
	if s.missing > max(1, s.known/fewShare) {
		return confirmManyAfter
	}
	return confirmAfter
}

// classify returns the state of a server that is missing now, and why it is held.
func classify(s observation) (deletionState, holdReason) {
	switch {
	case s.unreadable:
		return held, noneReadable
	case s.seen.Sub(s.since) < s.confirmation():
		return suspect, notHeld
	case 2*s.listed < s.peak:
		return held, listShrank
	case s.missing > mayGo(s.known):
		return held, tooMany
	default:
		return gone, notHeld
	}
}

// explain describes why a server is held.
func (s observation) explain(reason holdReason) string {
	switch reason {
	case listShrank:
		return fmt.Sprintf("the account lists %d servers and had %d", s.listed, s.peak)
	case tooMany:
		return fmt.Sprintf("%d of %d servers disappeared within %s, more than half", s.missing, s.known, breakerWindow)
	case noneReadable:
		return "other servers are listed, but cannot be read by their ID either"
	case notHeld:
	}
	return ""
}

// gate stores the history for classify. A restart loses it, which can only delay a deletion.
type gate struct {
	mu      sync.Mutex
	missing map[string]suspicion
	gone    map[string]time.Time
	// checked are the servers of Nodes that are not ready.
	checked map[string]check
}

// check is since when the server of a Node is checked, and when it was last. seldom reports that nothing new is
// expected of it, so that the answers need not be fresh.
type check struct {
	since, last time.Time
	seldom      bool
}

// suspicion is a missing server: since when, when it was last checked, and its last state.
type suspicion struct {
	since, seen time.Time
	state       deletionState
	reason      holdReason
}

// finding is the result of a check of a missing server.
type finding struct {
	state deletionState
	// confirmation is how long a suspect has to be missing, reason why a server is held.
	confirmation time.Duration
	reason       string
	// changed reports whether the state or the reason is new.
	changed bool
}

func newGate() *gate {
	return &gate{missing: map[string]suspicion{}, gone: map[string]time.Time{}, checked: map[string]check{}}
}

// check records that the Node of a server is checked, which was created at the instant created.
func (g *gate) check(serverID string, created, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.checked, func(_ string, c check) bool { return now.Sub(c.last) > forgetAfter })
	c, ok := g.checked[serverID]
	if !ok || c.since.Before(created) {
		c.since = now
	}
	c.last = now
	suspected, ok := g.missing[serverID]
	c.seldom = now.Sub(c.since) >= closelyFor && (!ok || suspected.state == held)
	g.checked[serverID] = c
}

// closely reports whether what is known of a server must be fresh.
func (g *gate) closely(serverID string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.checked[serverID].seldom
}

// present removes a suspicion: the server was found.
func (g *gate) present(serverID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.missing, serverID)
	delete(g.gone, serverID)
}

// absent records that the server of a Node that was created at the instant created is missing from the list. others are
// the IDs of the servers of all Nodes, with true for those that are missing; unreadable is as in an observation.
func (g *gate) absent(serverID string, created time.Time, list List, others map[string]bool, unreadable bool) finding {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := list.AskedAt
	before, ok := g.missing[serverID]
	if !ok || seen.Sub(before.seen) > forgetAfter || before.since.Before(created) {
		before = suspicion{since: seen}
		ok = false // observations before the Node was created do not count
	}
	look := observation{since: before.since, seen: seen, listed: len(list.ByID), peak: list.Peak,
		unreadable: unreadable}
	look.missing, look.known = g.count(serverID, seen, others)
	state, reason := classify(look)
	if state == gone && g.checked[serverID].seldom {
		state = suspect // so that the next check makes fresh requests
	}
	if state == gone {
		g.gone[serverID] = seen
	}
	if unreadable { // the time of a suspicion begins again, because some answers are cached
		before.since = seen
	}
	g.missing[serverID] = suspicion{since: before.since, seen: seen, state: state, reason: reason}
	return finding{state: state, confirmation: look.confirmation(), reason: look.explain(reason),
		changed: !ok || before.state != state || before.reason != reason}
}

func (g *gate) count(serverID string, seen time.Time, others map[string]bool) (missing, known int) {
	all := map[string]bool{serverID: true}
	for id, isMissing := range others {
		all[id] = all[id] || isMissing
	}
	maps.DeleteFunc(g.gone, func(_ string, at time.Time) bool { return seen.Sub(at) >= breakerWindow })
	for id := range g.gone {
		all[id] = true
	}
	for _, isMissing := range all {
		if isMissing {
			missing++
		}
	}
	return missing, len(all)
}

// counts counts the servers by their last state, if it is not older than forgetAfter.
func (g *gate) counts(now time.Time) map[deletionState]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.missing, func(_ string, s suspicion) bool { return now.Sub(s.seen) > forgetAfter })
	counts := map[deletionState]int{}
	for _, each := range g.missing {
		counts[each.state]++
	}
	return counts
}
