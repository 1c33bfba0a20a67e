package instances

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

//proves:known-bugs/half-list
func TestClassify(t *testing.T) {
	const many = 2 * time.Minute
	for name, test := range map[string]struct {
		after          time.Duration
		missing, known int
		want           deletionState
		reason         holdReason
		// listed and peak are equal by default.
		listed, peak int
		unreadable   bool
	}{
		"first check":                    {0, 1, 10, suspect, notHeld, 0, 0, false},
		"just before":                    {confirmAfter - 1, 1, 10, suspect, notHeld, 0, 0, false},
		"confirmed":                      {confirmAfter, 1, 10, gone, notHeld, 0, 0, false},
		"one of one":                     {confirmAfter, 1, 1, gone, notHeld, 0, 0, false},
		"one of two":                     {confirmAfter, 1, 2, gone, notHeld, 0, 0, false},
		"two of two":                     {time.Hour, 2, 2, held, tooMany, 0, 0, false},
		"one of three":                   {confirmAfter, 1, 3, gone, notHeld, 0, 0, false},
		"two of three":                   {time.Hour, 2, 3, held, tooMany, 0, 0, false},
		"two of eight, just before":      {many - 1, 2, 8, suspect, notHeld, 0, 0, false},
		"two of eight":                   {many, 2, 8, gone, notHeld, 0, 0, false},
		"four of eight":                  {many, 4, 8, gone, notHeld, 0, 0, false},
		"five of eight":                  {time.Hour, 5, 8, held, tooMany, 0, 0, false},
		"four of nine":                   {many, 4, 9, gone, notHeld, 0, 0, false},
		"five of nine":                   {time.Hour, 5, 9, held, tooMany, 0, 0, false},
		"two of ten":                     {confirmAfter, 2, 10, gone, notHeld, 0, 0, false},
		"three of ten, just before":      {many - 1, 3, 10, suspect, notHeld, 0, 0, false},
		"five of ten":                    {many, 5, 10, gone, notHeld, 0, 0, false},
		"six of ten":                     {time.Hour, 6, 10, held, tooMany, 0, 0, false},
		"many, not confirmed":            {time.Second, 9, 10, suspect, notHeld, 0, 0, false},
		"20 of 100":                      {confirmAfter, 20, 100, gone, notHeld, 0, 0, false},
		"21 of 100, just before":         {many - 1, 21, 100, suspect, notHeld, 0, 0, false},
		"50 of 100":                      {many, 50, 100, gone, notHeld, 0, 0, false},
		"51 of 100":                      {time.Hour, 51, 100, held, tooMany, 0, 0, false},
		"the list lost half":             {time.Hour, 1, 10, gone, notHeld, 5, 10, false},
		"the list lost more":             {time.Hour, 1, 10, held, listShrank, 4, 10, false},
		"the list lost its only one":     {time.Hour, 1, 1, held, listShrank, 0, 1, false},
		"no other can be read":           {time.Hour, 1, 2, held, noneReadable, 0, 0, true},
		"not confirmed, nor can another": {time.Second, 1, 2, held, noneReadable, 0, 0, true},
	} {
		seen := observation{since: start, seen: start.Add(test.after), missing: test.missing, known: test.known,
			listed: test.listed, peak: test.peak, unreadable: test.unreadable}
		got, reason := classify(seen)
		if got != test.want || reason != test.reason {
			t.Errorf("%s: got %v (%d), want %v (%d)", name, got, reason, test.want, test.reason)
		}
		if explained := seen.explain(reason); (explained != "") != (got == held) {
			t.Errorf("%s: %v is explained as %q", name, got, explained)
		}
	}
}

func TestHeldIsExplained(t *testing.T) {
	seen := observation{missing: 5, known: 8, listed: 3, peak: 8}
	for reason, want := range map[holdReason]string{
		tooMany:      "5 of 8 servers disappeared within 10m0s, more than half",
		listShrank:   "the account lists 3 servers and had 8",
		noneReadable: "other servers are listed, but cannot be read by their ID either",
	} {
		if got := seen.explain(reason); got != want {
			t.Errorf("got %q, want %q", got, want)
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
		return g.absent("a", start, at(start.Add(after)), others(1, "a", "b", "c"), false).state
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
	g.absent("a", start, at(start), all, false)
	created := start.Add(20 * time.Second)
	if got := g.absent("a", created, at(start.Add(confirmAfter)), all, false).state; got != suspect {
		t.Errorf("ten seconds after the Node was created: %v, want suspect", got)
	}
	if got := g.absent("a", created, at(start.Add(2*confirmAfter)), all, false).state; got != gone {
		t.Errorf("confirmed: %v, want gone", got)
	}
}

// Nodes that were deleted one after another still count against the breaker for a while.
//
//proves:known-bugs/lost-permission
func TestBreakerRemembersTheGone(t *testing.T) {
	g := newGate()
	look := func(id string, after time.Duration, remaining map[string]bool) deletionState {
		return g.absent(id, start, at(start.Add(after)), remaining, false).state
	}
	look("a", 0, others(1, "a", "b", "c"))
	if got := look("a", confirmAfter, others(1, "a", "b", "c")); got != gone {
		t.Fatalf("the first: %v, want gone", got)
	}
	look("b", time.Minute, others(1, "b", "c"))
	if got := look("b", time.Minute+confirmManyAfter, others(1, "b", "c")); got != held {
		t.Errorf("the second within the window: %v, want held", got)
	}
	for after := 4 * time.Minute; after < breakerWindow+confirmAfter; after += time.Minute {
		look("b", after, others(1, "b", "c"))
	}
	if got := look("b", breakerWindow+confirmAfter, others(1, "b", "c")); got != gone {
		t.Errorf("the second after the window: %v, want gone", got)
	}
}

// For any sequence of observations: a server is gone only when it was found missing at least 30 s before (two minutes
// if many are missing) and not found since; never more than half, or one, within the window; and never while no other
// can be read.
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
		unreadable := random.IntN(20) == 0
		if unreadable {
			firstMissing[id] = now
		}
		found := g.absent(id, start, at(now), all, unreadable)
		if found.state != gone {
			continue
		}
		lastGone[id] = now
		recently := 0
		for _, instant := range lastGone {
			if now.Sub(instant) < breakerWindow {
				recently++
			}
		}
		since := confirmAfter
		if recently > max(1, len(ids)/5) {
			since = confirmManyAfter
		}
		if now.Sub(firstMissing[id]) < since || recently > max(1, len(ids)/2) || unreadable {
			t.Fatalf("seed %d: %s gone at %v, missing since %v, %d gone of %d, unreadable %v", seed, id, now,
				firstMissing[id], recently, len(ids), unreadable)
		}
	}
}

// TestKnownServers: a server that was released to its reservation is missing, too.
func TestKnownServers(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	for _, id := range []string{simtest.Server1ID, simtest.Server2ID, "60473c2509268bc77fd06d99"} {
		w.node("node-"+id, id)
	}
	missing, err := w.knownServers(List{ByID: map[string]pnap.Server{
		simtest.Server1ID: {ID: simtest.Server1ID, Status: pnap.ServerPoweredOn},
		simtest.Server2ID: {ID: simtest.Server2ID, Status: pnap.ServerReserved},
	}})
	want := map[string]bool{simtest.Server1ID: false, simtest.Server2ID: true, "60473c2509268bc77fd06d99": true}
	if err != nil || !maps.Equal(missing, want) {
		t.Errorf("missing are %v, %v; want %v", missing, err, want)
	}
}
