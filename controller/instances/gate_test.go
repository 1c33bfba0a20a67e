package instances

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/seeds"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		after          time.Duration
		missing, known int
		want           verdict
	}{
		"first sight":           {0, 1, 10, suspect},
		"just before":           {confirmAfter - 1, 1, 10, suspect},
		"confirmed":             {confirmAfter, 1, 10, gone},
		"one of one":            {time.Hour, 1, 1, gone},
		"one of two":            {time.Hour, 1, 2, gone},
		"two of two":            {time.Hour, 2, 2, held},
		"two of nine":           {time.Hour, 2, 9, held},
		"two of ten":            {time.Hour, 2, 10, gone},
		"three of ten":          {time.Hour, 3, 10, held},
		"many, not confirmed":   {time.Second, 9, 10, suspect},
		"a fifth of a thousand": {time.Hour, 200, 1000, gone},
	}
	for name, test := range tests {
		if got := judge(start, start.Add(test.after), test.missing, test.known); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func others(missing int, ids ...string) map[string]bool {
	all := map[string]bool{}
	for i, id := range ids {
		all[id] = i < missing
	}
	return all
}

func TestGateForgets(t *testing.T) {
	g := newGate()
	see := func(at time.Duration) verdict {
		result, _, _ := g.absent("a", start.Add(at), others(1, "a", "b", "c"))
		return result
	}
	if see(0) != suspect || see(10*time.Second) != suspect {
		t.Fatal("gone at first sight")
	}
	g.present("a")
	if got := see(40 * time.Second); got != suspect {
		t.Errorf("after it was seen again: %v, want suspect", got)
	}
	// Nobody asked for an hour: the Node was ready. The old suspicion proves nothing.
	if got := see(time.Hour); got != suspect {
		t.Errorf("after an hour without a look: %v, want suspect", got)
	}
	if got := see(time.Hour + confirmAfter); got != gone {
		t.Errorf("confirmed: %v, want gone", got)
	}
}

// Nodes that were deleted one after another still count against the breaker for a while.
func TestBreakerRemembersTheGone(t *testing.T) {
	g := newGate()
	sight := func(id string, at time.Duration, remaining map[string]bool) verdict {
		result, _, _ := g.absent(id, start.Add(at), remaining)
		return result
	}
	sight("a", 0, others(1, "a", "b", "c"))
	if got := sight("a", confirmAfter, others(1, "a", "b", "c")); got != gone {
		t.Fatalf("the first: %v, want gone", got)
	}
	sight("b", time.Minute, others(1, "b", "c"))
	if got := sight("b", 2*time.Minute, others(1, "b", "c")); got != held {
		t.Errorf("the second within the window: %v, want held", got)
	}
	for at := 3 * time.Minute; at < breakerWindow+confirmAfter; at += time.Minute {
		sight("b", at, others(1, "b", "c"))
	}
	if got := sight("b", breakerWindow+confirmAfter, others(1, "b", "c")); got != gone {
		t.Errorf("the second after the window: %v, want gone", got)
	}
}

// Whatever is seen in whatever order: a server is gone only when it was seen missing at least 30 s
// before and not seen present since, and never more than a fifth, or one, within the window.
func TestGateWalks(t *testing.T) {
	for n := range seeds.Count(t, 200) {
		seed := uint64(n)
		random := rand.New(rand.NewPCG(seed, 1))
		walkGate(t, seed, random)
	}
}

func walkGate(t *testing.T, seed uint64, random *rand.Rand) {
	t.Helper()
	g, now := newGate(), start
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
		result, count, _ := g.absent(id, now, all)
		if result != gone {
			continue
		}
		lastGone[id] = now
		recently := 0
		for _, at := range lastGone {
			if now.Sub(at) < breakerWindow {
				recently++
			}
		}
		if now.Sub(firstMissing[id]) < confirmAfter || recently > max(1, len(ids)/breakerShare) {
			t.Fatalf("seed %d: %s gone at %v, missing since %v, %d gone of %d (%s)", seed, id, now, firstMissing[id], recently, len(ids), count)
		}
	}
}
