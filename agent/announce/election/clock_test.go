package election

import (
	"fmt"
	"testing"
	"time"
)

// TestClockSetBack: the wall clock of machines is set back, and their agents restart, which is all that reads it. That
// costs no more than the restart itself: they are members as soon as with the right clock, and no view is older than
// another one.
func TestClockSetBack(t *testing.T) {
	for name, n := range map[string]int{"one of three": 1, "two of three": 2, "all": 3} {
		t.Run(name, func(t *testing.T) {
			var took [2]time.Duration
			for seed := range uint64(6) {
				for i, chance := range []float64{0, 1} {
					w := newWorld(seed, 3, 2, standardRules())
					w.keepLog = true
					if w.stabilize() == nil {
						t.Fatalf("seed %d: not stable", seed)
					}
					w.clockBack = chance
					took[i] = max(took[i], w.restart(w.nodes[:n]))
					if w.violation != "" || took[i] > 30*time.Second || len(w.unanswered()) > 0 {
						t.Fatalf("seed %d, set back %t: not whole after %s %s %v\n%s", seed, chance > 0, took[i],
							w.violation, w.unanswered(), w.tail())
					}
				}
			}
			if took[1] > took[0]+time.Second {
				t.Errorf("whole %s after a restart with the clock set back, %s without; want no difference", took[1],
					took[0])
			}
			_, _ = fmt.Fprintf(t.Output(), "figure announcer_clock_set_back_whole_ms %d ms\n", took[1].Milliseconds())
		})
	}
}

// restart restarts agents at once, each down for a second, and returns after how long all nodes are members that hear
// each other, and all addresses are answered for; at most a little over 30 s.
func (w *world) restart(all []*machine) time.Duration {
	for _, m := range all {
		m.stop()
		w.after(time.Second, m.start)
	}
	begun := w.now
	w.run(time.Second)
	for !w.isWhole() && w.now-begun < 31*time.Second && w.violation == "" {
		w.run(10 * time.Millisecond)
	}
	return w.now - begun
}

// isWhole reports whether all nodes are members and support each other.
func (w *world) isWhole() bool {
	for _, m := range w.nodes {
		if m.core.view == nil || len(m.core.members) < len(w.nodes) {
			return false
		}
		for _, p := range m.core.peers {
			if !m.core.acknowledges(p) {
				return false
			}
		}
	}
	return len(w.unanswered()) == 0
}
