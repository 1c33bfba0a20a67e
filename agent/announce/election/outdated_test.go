package election

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"
)

// outdated are the ways in which the list of Services of one node lags, or its blocks do. change happens in a stable
// world of three nodes; the function that it returns ends it.
var outdated = map[string]func(w *world, late *machine){
	"lacks an address": func(w *world, late *machine) {
		late.outdated = maps.Clone(w.wanted)
		delete(late.outdated, address(0))
	},
	"still has an address that is gone": func(w *world, late *machine) {
		late.outdated = maps.Clone(w.wanted)
		late.outdated[address(9)] = true
	},
	"learns of a new address late": func(w *world, late *machine) {
		late.outdated = maps.Clone(w.wanted)
		w.wanted[address(5)] = true
		w.after(2*time.Second, func() {
			late.outdated = nil
			late.sendFacts()
		})
	},
	"learns of a deletion late": func(w *world, late *machine) {
		late.outdated = maps.Clone(w.wanted)
		delete(w.wanted, address(1))
		w.after(2*time.Second, func() {
			late.outdated = nil
			late.sendFacts()
		})
	},
}

// TestOutdatedList: one node whose list of Services is out of date makes no address silent, moves none, and causes at
// most two writes in a minute, whichever node it is.
func TestOutdatedList(t *testing.T) {
	for name, change := range outdated {
		t.Run(name, func(t *testing.T) {
			var silent time.Duration
			writes := 0
			for seed := range uint64(6) {
				w := newWorld(seed, 3, 2, standardRules())
				w.keepLog = true
				if w.stabilize() == nil {
					t.Fatalf("seed %d: not stable", seed)
				}
				before := w.writes
				owners := maps.Clone(w.object.view.Owners)
				change(w, w.nodes[seed%3])
				for _, m := range w.nodes {
					m.sendFacts()
				}
				w.run(time.Second) // a new address needs a moment
				silent = max(silent, w.watch(time.Minute))
				writes = max(writes, w.writes-before)
				if w.violation != "" {
					t.Fatalf("seed %d: %s\n%s", seed, w.violation, w.tail())
				}
				expectOwners(t, w, owners)
			}
			if silent > 0 || writes > 2 {
				t.Errorf("silent for %s, %d writes in a minute; want none and at most 2", silent, writes)
			}
			_, _ = fmt.Fprintf(t.Output(), "figure announcer_outdated_list_silent %d ms\n"+
				"figure announcer_outdated_list_writes %d writes\n", silent.Milliseconds(), writes)
		})
	}
}

// expectOwners: exactly the addresses that are wanted have owners, and those that had one before have the same.
func expectOwners(t *testing.T, w *world, before map[netip.Addr]Owner) {
	t.Helper()
	for a := range w.wanted {
		owner, found := w.object.view.Owners[a]
		if was, had := before[a]; !found || had && was.Node != owner.Node {
			t.Errorf("%s: owner %q, was %q", a, owner.Node, was.Node)
		}
	}
	if n := len(w.object.view.Owners); n != len(w.wanted) {
		t.Errorf("the view has %d addresses, want %d", n, len(w.wanted))
	}
}
