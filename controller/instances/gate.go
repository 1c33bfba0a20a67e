package instances

import (
	"fmt"
	"sync"
	"time"
)

const (
	// confirmAfter is the least time between the two sights that together mean "gone".
	confirmAfter = 30 * time.Second
	// forgetAfter ends a suspicion that was not renewed: the Node was ready again, and nobody asked.
	forgetAfter = 5 * time.Minute
	// breakerWindow is how long a vanished server counts against the breaker.
	breakerWindow = 10 * time.Minute
	// breakerShare is the part of the known Nodes, one in five, that may vanish within that window.
	breakerShare = 5
)

// verdict is what is believed of a server that seems to have vanished.
type verdict int

const (
	// suspect: seen missing once, or not long enough.
	suspect verdict = iota
	// held: missing twice, but too many vanish at once to believe it.
	held
	// gone: missing twice, and alone in that.
	gone
)

// judge decides on a server that is missing now and was first seen missing at since. missing counts the
// Nodes whose servers are missing now or were found gone within the window, known all Nodes among them.
func judge(since, seen time.Time, missing, known int) verdict {
	switch {
	case seen.Sub(since) < confirmAfter:
		return suspect
	case missing > max(1, known/breakerShare):
		return held
	default:
		return gone
	}
}

// gate remembers what judge needs: since when a server is missing and which were found gone lately.
// After a restart it begins anew, which delays a verdict and never hastens one.
type gate struct {
	mu      sync.Mutex
	missing map[string]suspicion
	gone    map[string]time.Time
}

// suspicion is a server that is missing: since when, when it was last looked for, and what was said of it.
type suspicion struct {
	since, seen time.Time
	verdict     verdict
}

func newGate() *gate {
	return &gate{missing: map[string]suspicion{}, gone: map[string]time.Time{}}
}

// present forgets a suspicion: the server was seen.
func (g *gate) present(serverID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.missing, serverID)
	delete(g.gone, serverID)
}

// absent records that the server was missing at the instant seen. others are the IDs of all servers
// that Nodes name, with true for those that are missing. changed tells that the verdict is new.
func (g *gate) absent(serverID string, seen time.Time, others map[string]bool) (result verdict, count string, changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, ok := g.missing[serverID]
	if !ok || seen.Sub(before.seen) > forgetAfter {
		before, ok = suspicion{since: seen}, false
	}
	missing, known := g.count(serverID, seen, others)
	result = judge(before.since, seen, missing, known)
	if result == gone {
		g.gone[serverID] = seen
	}
	g.missing[serverID] = suspicion{since: before.since, seen: seen, verdict: result}
	return result, fmt.Sprintf("%d of %d servers", missing, known), !ok || before.verdict != result
}

func (g *gate) count(serverID string, seen time.Time, others map[string]bool) (missing, known int) {
	all := map[string]bool{serverID: true}
	for id, isMissing := range others {
		all[id] = all[id] || isMissing
	}
	for id, at := range g.gone {
		if seen.Sub(at) >= breakerWindow {
			delete(g.gone, id)
			continue
		}
		all[id] = true
	}
	for _, isMissing := range all {
		if isMissing {
			missing++
		}
	}
	return missing, len(all)
}
