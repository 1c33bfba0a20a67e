package instances

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/seeds"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

//proves:known-bugs/half-list
func TestJudge(t *testing.T) {
	tests := map[string]struct {
		after          time.Duration
		missing, known int
		listed, peak   int
		want           deletionState
	}{
		"first check":                {after: 0, missing: 1, known: 10, want: suspect},
		"just before":                {after: confirmAfter - 1, missing: 1, known: 10, want: suspect},
		"confirmed":                  {after: confirmAfter, missing: 1, known: 10, want: gone},
		"one of one":                 {after: time.Hour, missing: 1, known: 1, want: gone},
		"one of two":                 {after: time.Hour, missing: 1, known: 2, want: gone},
		"two of two":                 {after: time.Hour, missing: 2, known: 2, want: held},
		"two of nine":                {after: time.Hour, missing: 2, known: 9, want: held},
		"two of ten":                 {after: time.Hour, missing: 2, known: 10, want: gone},
		"three of ten":               {after: time.Hour, missing: 3, known: 10, want: held},
		"many, not confirmed":        {after: time.Second, missing: 9, known: 10, want: suspect},
		"a fifth of a thousand":      {after: time.Hour, missing: 200, known: 1000, want: gone},
		"the list lost half":         {after: time.Hour, missing: 1, known: 10, listed: 5, peak: 10, want: gone},
		"the list lost more":         {after: time.Hour, missing: 1, known: 10, listed: 4, peak: 10, want: held},
		"the list lost its only one": {after: time.Hour, missing: 1, known: 1, listed: 0, peak: 1, want: held},
	}
	for name, test := range tests {
		look := observation{since: start, seen: start.Add(test.after), missing: test.missing, known: test.known,
			listed: test.listed, peak: test.peak}
		if got := classify(look); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// at returns a list without servers that was requested at a given time.
func at(instant time.Time) List { return List{AskedAt: instant} }

func others(missing int, ids ...string) map[string]bool {
	all := map[string]bool{}
	for i, id := range ids {
		all[id] = i < missing
	}
	return all
}

//proves:known-bugs/no-grace
func TestGateForgets(t *testing.T) {
	g := newGate()
	see := func(after time.Duration) deletionState {
		result, _, _ := g.absent("a", start, at(start.Add(after)), others(1, "a", "b", "c"))
		return result
	}
	if see(0) != suspect || see(10*time.Second) != suspect {
		t.Fatal("gone at the first check")
	}
	g.present("a")
	if got := see(40 * time.Second); got != suspect {
		t.Errorf("after it was seen again: %v, want suspect", got)
	}
	// No check for an hour: the Node was ready. The old suspicion does not count.
	if got := see(time.Hour); got != suspect {
		t.Errorf("after an hour without a check: %v, want suspect", got)
	}
	if got := see(time.Hour + confirmAfter); got != gone {
		t.Errorf("confirmed: %v, want gone", got)
	}
}

// Observations before a Node was created do not count: the server may have been released and ordered again.
//
//proves:known-bugs/stale-cache
func TestSuspicionIsNotOlderThanTheNode(t *testing.T) {
	g := newGate()
	all := others(1, "a", "b", "c")
	g.absent("a", start, at(start), all)
	created := start.Add(20 * time.Second)
	if got, _, _ := g.absent("a", created, at(start.Add(confirmAfter)), all); got != suspect {
		t.Errorf("ten seconds after the Node was created: %v, want suspect", got)
	}
	if got, _, _ := g.absent("a", created, at(start.Add(2*confirmAfter)), all); got != gone {
		t.Errorf("confirmed: %v, want gone", got)
	}
}

// Nodes that were deleted one after another still count against the breaker for a while.
//
//proves:known-bugs/lost-permission
func TestBreakerRemembersTheGone(t *testing.T) {
	g := newGate()
	look := func(id string, after time.Duration, remaining map[string]bool) deletionState {
		result, _, _ := g.absent(id, start, at(start.Add(after)), remaining)
		return result
	}
	look("a", 0, others(1, "a", "b", "c"))
	if got := look("a", confirmAfter, others(1, "a", "b", "c")); got != gone {
		t.Fatalf("the first: %v, want gone", got)
	}
	look("b", time.Minute, others(1, "b", "c"))
	if got := look("b", 2*time.Minute, others(1, "b", "c")); got != held {
		t.Errorf("the second within the window: %v, want held", got)
	}
	for after := 3 * time.Minute; after < breakerWindow+confirmAfter; after += time.Minute {
		look("b", after, others(1, "b", "c"))
	}
	if got := look("b", breakerWindow+confirmAfter, others(1, "b", "c")); got != gone {
		t.Errorf("the second after the window: %v, want gone", got)
	}
}

// For any sequence of observations: a server is gone only when it was found missing at least 30 s before and not found
// since, and never more than a fifth, or one, within the window.
//
//proves:known-bugs/joining-node
func TestGateWalks(t *testing.T) {
	for n := range seeds.Count(t, 200) {
		seed := uint64(n)
		random := rand.New(rand.NewPCG(seed, 1))
		walkGate(t, seed, random)
	}
}

func walkGate(t *testing.T, seed uint64, random *rand.Rand) {
	t.Helper()
	g := newGate()
	now := start
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}[:1+random.IntN(12)]
	missing := map[string]bool{}
	firstMissing := map[string]time.Time{}
	lastGone := map[string]time.Time{}
	for range 200 {
		now = now.Add(time.Duration(random.IntN(40)) * time.Second)
		id := ids[random.IntN(len(ids))]
		if random.IntN(4) == 0 {
			missing[id] = !missing[id]
		}
		all := map[string]bool{}
		for _, each := range ids {
			all[each] = missing[each]
		}
		if !missing[id] {
			g.present(id)
			delete(firstMissing, id)
			delete(lastGone, id)
			continue
		}
		if _, ok := firstMissing[id]; !ok {
			firstMissing[id] = now
		}
		result, count, _ := g.absent(id, start, at(now), all)
		if result != gone {
			continue
		}
		lastGone[id] = now
		recently := 0
		for _, instant := range lastGone {
			if now.Sub(instant) < breakerWindow {
				recently++
			}
		}
		if now.Sub(firstMissing[id]) < confirmAfter || recently > max(1, len(ids)/breakerShare) {
			t.Fatalf("seed %d: %s gone at %v, missing since %v, %d gone of %d (%s)", seed, id, now, firstMissing[id],
				recently, len(ids), count)
		}
	}
}
