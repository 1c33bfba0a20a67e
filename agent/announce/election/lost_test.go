package election

import (
	"testing"
	"time"
)

// TestDeathAfterRemoval: of three nodes one stands still for a moment and is removed, and the owner fails before it
// has seen that. The two that are left continue without being informed that the owner is off.
func TestDeathAfterRemoval(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(seed, 3, 1, standardRules())
		w.keepLog = true
		holder := w.stabilize()
		if holder == nil {
			t.Fatalf("seed %d: not stable", seed)
		}
		asleep := w.other(holder)
		asleep.pause()
		w.until(func() bool { return len(w.object.view.Members) == 2 })
		// The view has changed, and no node knows it yet.
		holder.stop()
		w.run(time.Second)
		asleep.resume()
		w.run(10 * time.Second)
		if next := w.holder(address(0)); next == nil || w.violation != "" {
			t.Errorf("seed %d: no node answers after the owner's death %s\n%s", seed, w.violation, w.tail())
			return
		}
	}
}

// TestSecondAgentEnds: an agent that was silent because of a later agent of its name takes part again when that is
// gone.
func TestSecondAgentEnds(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(seed, 4, 1, standardRules())
		w.keepLog = true
		second := w.takeSpare()
		holder := w.stabilize()
		if holder == nil {
			t.Fatalf("seed %d: not stable", seed)
		}
		w.nodes = append(w.nodes, second)
		second.name = holder.name
		second.facts.Candidate = false
		second.start()
		w.run(5 * time.Second)
		if owner := w.holder(address(0)); owner == nil || owner == holder || owner == second {
			t.Errorf("seed %d: beside a later agent that is no candidate, want another node to answer\n%s", seed,
				w.tail())
		}
		second.stop()
		w.run(20 * time.Second)
		if members := w.object.view.Members; len(members) != 3 || w.violation != "" {
			t.Errorf("seed %d: %q are members after the later agent ended %s\n%s", seed, members, w.violation, w.tail())
			return
		}
	}
}
