package election

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// update starts an agent beside that of a machine, as an update of the DaemonSet does, and later ends the earlier one.
func (w *world) update(m *machine, warm time.Duration) *machine {
	next := &machine{w: w, index: m.index, name: m.name, offset: m.offset, rate: m.rate, facts: m.facts, deaf: m.deaf,
		noGateway: m.noGateway, noAPI: m.noAPI, outdated: m.outdated}
	next.facts.Standby = true
	next.start()
	w.nodes = append(slices.Clip(w.nodes), next)
	w.after(warm, func() {
		if next.facts.Standby {
			w.replace(m, next)
		}
	})
	return next
}

// finishUpdates ends the agents beside which another one stands by.
func (w *world) finishUpdates() {
	for _, next := range w.nodes {
		for _, m := range w.nodes {
			if next.facts.Standby && m != next && m.index == next.index {
				w.replace(m, next)
			}
		}
	}
}

// replace ends an agent beside which another one stands by. One that cannot end in time is killed.
func (w *world) replace(m, next *machine) {
	w.note("%s is replaced", m.name)
	m.facts.Replaced = true
	if m.alive && !m.paused {
		m.sendFacts()
	}
	if !m.alive || m.paused {
		m.stop()
		w.remove(m)
	}
	next.facts.Standby = false
	if next.alive {
		next.sendFacts()
	}
}

// remove removes an agent that was replaced.
func (w *world) remove(m *machine) {
	m.gone = true
	w.nodes = slices.DeleteFunc(slices.Clone(w.nodes), func(other *machine) bool { return other == m })
}

// moved returns how many addresses moved since a state of the moves, and the most that one of them did.
func (w *world) movedSince(before map[string]int) (moves, most int) {
	for a, n := range w.moves {
		n -= before[a.String()]
		moves += n
		most = max(most, n)
	}
	return moves, most
}

func (w *world) movesNow() map[string]int {
	now := map[string]int{}
	for a, n := range w.moves {
		now[a.String()] = n
	}
	return now
}

// loads returns how many addresses the nodes have, the most first.
func (w *world) loads() []int {
	by := map[string]int{}
	for _, m := range w.nodes {
		by[m.name] = 0
	}
	for _, owner := range w.object.view.Owners {
		by[owner.Node]++
	}
	loads := slices.Sorted(maps.Values(by))
	slices.Reverse(loads)
	return loads
}

// TestUpdate: an update of the agents of all nodes, one after the other, moves no address and writes nothing. While the
// lease of the earlier agent ends and that of the next begins, an address is silent for less than a lease.
func TestUpdate(t *testing.T) {
	const addresses = 30
	moves := 0
	writes := 0
	var silent time.Duration
	for _, nodes := range []int{1, 2, 3, 5} {
		for seed := range uint64(5) {
			w := newWorld(seed, nodes, addresses, standardRules())
			w.keepLog = true
			if w.stabilize() == nil {
				t.Fatalf("%d nodes, seed %d: not stable", nodes, seed)
			}
			w.run(10 * time.Second)
			before := w.movesNow()
			wrote := w.writes
			for i := range nodes {
				w.update(w.nodes[slices.IndexFunc(w.nodes, func(m *machine) bool { return m.index == i })],
					w.between(2*time.Second, 20*time.Second))
				silent = max(silent, w.watch(25*time.Second))
			}
			moved, _ := w.movedSince(before)
			moves += moved
			writes += w.writes - wrote
			if w.violation != "" || len(w.nodes) != nodes {
				t.Fatalf("%d nodes, seed %d: %d agents %s\n%s", nodes, seed, len(w.nodes), w.violation, w.tail())
			}
		}
	}
	if moves > 0 || writes > 0 || silent > 300*time.Millisecond {
		t.Errorf("%d moves, %d writes, silent for %s; want none, none, and at most 300 ms", moves, writes, silent)
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_update_moves %d moves\nfigure announcer_update_writes %d writes\n"+
		"figure announcer_update_silent %d ms\n", moves, writes, silent.Milliseconds())
}

// TestRollingReboot: in a rolling reboot each reboot moves each address of the node once.
func TestRollingReboot(t *testing.T) {
	const nodes, addresses = 3, 30
	most := 0
	total := 0
	for seed := range uint64(5) {
		w := newWorld(seed, nodes, addresses, standardRules())
		w.keepLog = true
		if w.stabilize() == nil {
			t.Fatalf("seed %d: not stable", seed)
		}
		w.run(10 * time.Second)
		start := w.movesNow()
		for _, m := range w.nodes {
			before := w.movesNow()
			m.facts.Leaving = true
			m.sendFacts()
			w.run(time.Minute)
			m.start()
			w.run(15 * time.Second)
			_, once := w.movedSince(before)
			most = max(most, once)
		}
		moved, _ := w.movedSince(start)
		total = max(total, moved)
		t.Logf("seed %d: %d moves, loads %v", seed, moved, w.loads())
		if silent := w.unanswered(); w.violation != "" || len(silent) > 0 {
			t.Fatalf("seed %d: %s, silent %v", seed, w.violation, silent)
		}
	}
	if most != 1 {
		t.Errorf("an address moved %d times in one reboot, want once", most)
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_reboot_moves_per_address %d moves\n"+
		"figure announcer_rolling_reboot_moves %d moves\n", most, total)
}
