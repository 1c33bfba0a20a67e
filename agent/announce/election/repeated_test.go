package election

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestMovesAreDamped: an address whose nodes take turns at being unable to serve it moves at once three times, then
// more and more rarely, and at once again after some minutes of calm.
func TestMovesAreDamped(t *testing.T) {
	w := newWorld(1, 3, 1, standardRules())
	if w.stabilize() == nil {
		t.Fatal("not stable")
	}
	endpoint := func(on *machine) { // the only one
		for _, m := range w.nodes {
			m.facts.Wanted = map[netip.Addr]bool{address(0): m == on}
			m.sendFacts()
		}
	}
	for i := range 60 { // each second on another node
		endpoint(w.nodes[i%3])
		w.run(time.Second)
	}
	moves := w.moves[address(0)]
	if moves < 6 || moves > 10 {
		t.Errorf("%d moves in a minute, want 3 and then after 1, 2, 4, 8, 16 and 32 seconds", moves)
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_flapping_moves_per_minute %d moves\n", moves)
	w.run(6 * time.Minute)
	calm := w.moves[address(0)]
	for i := range 3 {
		endpoint(w.nodes[i%3])
		w.run(300 * time.Millisecond)
	}
	if n := w.moves[address(0)] - calm; n < 2 {
		t.Errorf("%d moves after some minutes of calm, want one for each change", n)
	}
}

// TestRepeatedMovesAreReported: by the node that gets the address, from the fourth move on; moves from a node that
// failed do not count.
func TestRepeatedMovesAreReported(t *testing.T) {
	for name, tc := range map[string]struct {
		moves   int
		failed  bool
		between time.Duration
		want    uint64
	}{
		"three":                     {moves: 3},
		"four":                      {moves: 4, want: 4},
		"five":                      {moves: 5, want: 5},
		"with minutes between them": {moves: 5, between: 6 * time.Minute},
		"from failed nodes":         {moves: 5, failed: true},
	} {
		e := member(t)
		for i := range tc.moves {
			e.now += tc.between
			owned := func(by string) map[netip.Addr]Owner { return map[netip.Addr]Owner{decided: {Node: by}} }
			e.view = &View{Members: []string{"node-a", "node-b"}, Owners: owned("node-b")}
			next := &View{Members: e.view.Members, Owners: owned("node-a")}
			if tc.failed {
				next.Members = []string{"node-a"}
			}
			e.events = nil
			e.observeMoves(next)
			if reported := len(e.events) == 1; i == tc.moves-1 && reported != (tc.want > 0) {
				t.Errorf("%s: %+v", name, e.events)
			}
		}
		want := Event{Kind: MovesOften, Address: decided, Node: "node-b", Number: tc.want}
		if tc.want > 0 && e.events[0] != want {
			t.Errorf("%s: %+v, want %+v", name, e.events, want)
		}
	}
}

// TestNodesKnowWhoIsUnfit: what a node cannot serve is known from its heartbeats by an earlier view, if that has the
// same addresses. Otherwise two nodes that cannot serve an address would give it to each other as fast as they can
// write, because neither has heard the other by the newest view.
func TestNodesKnowWhoIsUnfit(t *testing.T) {
	for name, tc := range map[string]struct {
		number, since uint64
		want          bool // it fits, as far as is known
	}{
		"by this view":                {number: 10, since: 3},
		"by an earlier one":           {number: 9, since: 3},
		"by one with other addresses": {number: 9, since: 10, want: true},
		"by a later one":              {number: 11, since: 3, want: true},
	} {
		e := member(t)
		e.addresses = []netip.Addr{decided}
		e.addressesSince = tc.since
		p := hear(e, "node-b", 1, func(h *Heartbeat) {
			h.Number = tc.number
			h.Unfit = []byte{1}
		})
		if got := e.fits(p, decided); got != tc.want {
			t.Errorf("%s: fits %t, want %t", name, got, tc.want)
		}
	}
}

// TestListsAreNewerThanTheView: a list of the addresses that exist decides nothing about a view that was written after
// it was requested.
func TestListsAreNewerThanTheView(t *testing.T) {
	for name, tc := range map[string]struct {
		asOf, changed, now time.Duration
		want               bool
	}{
		"newer":    {asOf: 2 * time.Second, changed: time.Second, now: 2 * time.Second, want: true},
		"older":    {asOf: time.Second, changed: 2 * time.Second, now: 2 * time.Second},
		"too old":  {asOf: 2 * time.Second, changed: time.Second, now: 4 * time.Second},
		"not ever": {asOf: never, changed: time.Second, now: 2 * time.Second},
	} {
		e := member(t)
		e.now = tc.now
		e.listing.asOf = tc.asOf
		e.balance.changedAt = tc.changed
		if got := e.isListed(never); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// TestLateHeartbeats: a heartbeat that is sent an interval after it was due is reported, one that is a little late is
// not, nor that no heartbeat is sent.
func TestLateHeartbeats(t *testing.T) {
	for name, tc := range map[string]struct {
		late  time.Duration
		quiet bool
		want  int
	}{
		"in time":        {},
		"a little late":  {late: 90 * time.Millisecond},
		"an interval":    {late: 100 * time.Millisecond, want: 1},
		"a second":       {late: time.Second, want: 1},
		"without a link": {late: time.Second, quiet: true},
	} {
		e := member(t)
		e.facts.Link = !tc.quiet
		late := 0
		for _, event := range e.Step(e.nextBeat+tc.late, Tick{}).Events {
			if event.Kind == HeartbeatLate {
				late++
			}
		}
		if late != tc.want {
			t.Errorf("%s: %d reported, want %d", name, late, tc.want)
		}
	}
}
