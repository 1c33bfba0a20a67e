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
	// breakerWindow is how long a vanished server counts against the breaker, and how long a longer list is
	// remembered.
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

// sight is one look at a server that seems to have vanished.
type sight struct {
	// since is when it was first seen missing, seen when the list of this look was asked for.
	since, seen time.Time
	// missing counts the Nodes whose servers are missing now or were found gone within the window, known all
	// Nodes among them.
	missing, known int
	// listed and peak are the lengths of this list and of the longest list within the window.
	listed, peak int
}

// judge decides on a server that is missing now.
func judge(s sight) verdict {
	switch {
	case s.seen.Sub(s.since) < confirmAfter:
		return suspect
	case s.missing > max(1, s.known/breakerShare), 2*s.listed < s.peak:
		return held
	default:
		return gone
	}
}

// count says in words how many are missing.
func (s sight) count() string {
	if 2*s.listed < s.peak {
		return fmt.Sprintf("the account lists %d servers and had %d", s.listed, s.peak)
	}
	return fmt.Sprintf("%d of %d servers", s.missing, s.known)
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

// absent records that the server of a Node that was created at the instant created is missing from the
// list. others are the IDs of all servers that Nodes name, with true for those that are missing. changed
// tells that the verdict is new.
func (g *gate) absent(serverID string, created time.Time, list List, others map[string]bool) (result verdict, count string, changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := list.AskedAt
	before, ok := g.missing[serverID]
	if !ok || seen.Sub(before.seen) > forgetAfter || before.since.Before(created) {
		before, ok = suspicion{since: seen}, false // what was seen before the Node was created says nothing of it
	}
	look := sight{since: before.since, seen: seen, listed: len(list.ByID), peak: list.Peak}
	look.missing, look.known = g.count(serverID, seen, others)
	result = judge(look)
	if result == gone {
		g.gone[serverID] = seen
	}
	g.missing[serverID] = suspicion{since: before.since, seen: seen, verdict: result}
	return result, look.count(), !ok || before.verdict != result
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

// standing counts the servers by the last verdict on each that is not older than forgetAfter.
func (g *gate) standing(now time.Time) map[verdict]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	counts := map[verdict]int{}
	for id, each := range g.missing {
		if now.Sub(each.seen) > forgetAfter {
			delete(g.missing, id)
			continue
		}
		counts[each.verdict]++
	}
	return counts
}
