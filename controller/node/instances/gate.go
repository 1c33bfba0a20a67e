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
	// forgetAfter ends a suspicion that was not renewed: the Node was ready again, and the framework did not ask.
	forgetAfter = 5 * time.Minute
	// breakerWindow is how long a missing server counts against the breaker, and how long a longer list is remembered.
	breakerWindow = 10 * time.Minute
	// breakerShare is the part of the known Nodes, one in five, that may disappear within that window.
	breakerShare = 5
)

// deletionState is the state of a server that seems to have disappeared.
type deletionState string

const (
	suspect deletionState = "suspect" // found missing once, or not for long enough
	held    deletionState = "held"    // missing twice, but too many servers disappear at once
	gone    deletionState = "gone"    // missing twice, and few other servers are missing
)

// observation is one check of a server that seems to have disappeared.
type observation struct {
	// since is when it was first found missing, seen when the list of this check was requested.
	since, seen time.Time
	// missing counts the Nodes whose servers are missing or were gone within the window, known all Nodes.
	missing, known int
	// listed and peak are the lengths of this list and of the longest list within the window.
	listed, peak int
}

// classify returns the state of a server that is missing now.
func classify(s observation) deletionState {
	switch {
	case s.seen.Sub(s.since) < confirmAfter:
		return suspect
	case s.missing > max(1, s.known/breakerShare), 2*s.listed < s.peak:
		return held
	default:
		return gone
	}
}

// count describes how many servers are missing.
func (s observation) count() string {
	if 2*s.listed < s.peak {
		return fmt.Sprintf("the account lists %d servers and had %d", s.listed, s.peak)
	}
	return fmt.Sprintf("%d of %d servers", s.missing, s.known)
}

// gate stores the history for classify. A restart loses it, which can only delay a deletion.
type gate struct {
	mu      sync.Mutex
	missing map[string]suspicion
	gone    map[string]time.Time
}

// suspicion is a missing server: since when, when it was last checked, and its last state.
type suspicion struct {
	since, seen time.Time
	state       deletionState
}

func newGate() *gate {
	return &gate{missing: map[string]suspicion{}, gone: map[string]time.Time{}}
}

// present removes a suspicion: the server was found.
func (g *gate) present(serverID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.missing, serverID)
	delete(g.gone, serverID)
}

// absent records that the server of a Node that was created at the instant created is missing from the list. others are
// the IDs of the servers of all Nodes, with true for those that are missing. changed reports whether the state is new.
func (g *gate) absent(serverID string, created time.Time, list List, others map[string]bool) (result deletionState,
	count string, changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := list.AskedAt
	before, ok := g.missing[serverID]
	if !ok || seen.Sub(before.seen) > forgetAfter || before.since.Before(created) {
		before = suspicion{since: seen}
		ok = false // observations before the Node was created do not count
	}
	look := observation{since: before.since, seen: seen, listed: len(list.ByID), peak: list.Peak}
	look.missing, look.known = g.count(serverID, seen, others)
	result = classify(look)
	if result == gone {
		g.gone[serverID] = seen
	}
	g.missing[serverID] = suspicion{since: before.since, seen: seen, state: result}
	return result, look.count(), !ok || before.state != result
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
