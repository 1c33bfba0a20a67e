package election

import (
	"fmt"
	"testing"
	"time"
)

// TestFormatUpdate: the agents are updated one after the other to a release with another version of the format, and
// back again. They keep one view, and an address is silent no longer than in an update that changes nothing. Each time
// all of them use the newest version that all understand.
func TestFormatUpdate(t *testing.T) {
	var silent time.Duration
	for seed := range uint64(6) {
		w := newWorld(seed, 3, 3, standardRules())
		w.keepLog = true
		if w.stabilize() == nil {
			t.Fatalf("seed %d: not stable", seed)
		}
		for _, newest := range []uint8{2, 1, 2} {
			for i, m := range w.nodes {
				m.maxFormat = newest
				silent = max(silent, w.restartGracefully(m))
				if updated := i + 1; !w.isWhole() || w.violation != "" {
					t.Fatalf("seed %d: not whole after %d updates %s\n%s", seed, updated, w.violation, w.tail())
				}
			}
			for _, m := range w.nodes {
				if got := m.core.format(); got != newest {
					t.Errorf("seed %d: %s speaks %d after the update to %d", seed, m.name, got, newest)
				}
			}
		}
	}
	if silent > 30*time.Millisecond {
		t.Errorf("silent for %s", silent)
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_format_update_silent_ms %d ms\n", silent.Milliseconds())
}

// restartGracefully stops an agent as the kubelet does, and starts it again.
func (w *world) restartGracefully(m *machine) (silent time.Duration) {
	m.facts.Leaving = true
	m.sendFacts()
	silent = w.watch(5 * time.Second)
	m.stop()
	m.start()
	return max(silent, w.watch(30*time.Second))
}

// TestFormatOfUnheard: a member that was never heard, and a node that is none, count for the version, too.
func TestFormatOfUnheard(t *testing.T) {
	e := member(t)
	e.MaxFormat = 3
	two := func(h *Heartbeat) { h.MaxFormat = 2 }
	if got := e.format(); got != 1 {
		t.Errorf("speaks %d before it has heard the others", got)
	}
	hear(e, "node-b", 1, two)
	hear(e, "node-c", 1, two)
	if got := e.format(); got != 2 {
		t.Errorf("speaks %d, want the newest that all understand", got)
	}
	e.handleReplaySuspect("node-c")
	if got := e.format(); got != 1 {
		t.Errorf("speaks %d to a node that has to prove that its heartbeats are new", got)
	}
	e.peers[IDOf("node-c")].replaySuspectAt = never
	hear(e, "node-x", 1, asIs)
	if got := e.format(); got != 1 {
		t.Errorf("speaks %d beside a node that does not understand it", got)
	}
}
