package election

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// recovery bounds the time after the end of all faults until every address is answered for again, where that is
// possible.
const recovery = 4 * time.Second

// recovers returns what is wrong some time after the faults ended: first with the dead nodes dead, then with all
// alive.
func (w *walk) recovers() string {
	able := w.able()
	w.run(recovery)
	// A request that timed out before and was carried out meanwhile is a fault that ended then.
	for len(w.unanswered()) > 0 && w.now < w.lateAt+recovery && w.violation == "" {
		w.run(w.lateAt + recovery - w.now)
	}
	if w.violation != "" {
		return w.violation
	}
	if silent := w.silent(); able && w.able() && len(silent) > 0 {
		return fmt.Sprintf("no node answers for %v, %s after the faults ended", silent, recovery)
	}
	if w.minorityIsAble() {
		w.run(w.rules.nodeLease + 2*recovery)
		if silent := w.silent(); w.violation == "" && w.minorityIsAble() && len(silent) > 0 {
			return fmt.Sprintf("no node answers for %v, although the dead ones can be known to be dead", silent)
		}
	}
	for _, m := range w.nodes {
		m.facts.Leaving = false
		m.powerOn()
		m.sendFacts()
	}
	w.note("all alive")
	for range 10 {
		w.run(recovery)
		if w.violation != "" {
			return w.violation
		}
		if len(w.unanswered()) == 0 {
			return ""
		}
	}
	return fmt.Sprintf("no node answers for %v long after all nodes were started", w.unanswered())
}

// silent lists the addresses for which no node answers for longer than a hand-over takes: a move that makes the loads
// even is no fault.
func (w *walk) silent() []netip.Addr {
	before := w.unanswered()
	if len(before) > 0 && w.rules.rebalance > 0 {
		w.run(100 * time.Millisecond)
	}
	return slices.DeleteFunc(w.unanswered(), func(a netip.Addr) bool { return !slices.Contains(before, a) })
}

// able reports whether a majority of the members is alive, and one of them can take addresses.
func (w *walk) able() bool {
	if w.object.view == nil {
		return false
	}
	voices := 0
	able := false
	for _, m := range w.nodes {
		if m.alive && w.object.view.has(m.name) {
			voices++
			able = able || m.facts.Candidate && !m.facts.Leaving
		}
	}
	return able && voices >= majority(len(w.object.view.Members))
}

// stabilizes returns what is wrong after the recovery: all members must be together again, nothing may be written but
// to make the loads more even, and no address may have moved more often than faults were injected.
func (w *walk) stabilizes() string {
	w.run(20 * time.Second)
	writes := w.writes - w.evened
	w.run(5 * time.Second)
	switch {
	case w.violation != "":
		return w.violation
	case w.writes-w.evened > 3*len(w.nodes)+3*w.faults:
		return fmt.Sprintf("%d writes by %d nodes for %d faults", w.writes, len(w.nodes), w.faults)
	case w.writes-w.evened != writes:
		return fmt.Sprintf("%d writes in five seconds without a fault", w.writes-w.evened-writes)
	case len(w.silent()) > 0:
		return fmt.Sprintf("no node answers for %v after the recovery", w.unanswered())
	}
	for a, n := range w.moves {
		if n > 2*w.faults+2 {
			return fmt.Sprintf("%s moved %d times for %d faults", a, n, w.faults)
		}
	}
	return ""
}

// defaultSeeds is the number of random starts in every run of the tests.
const defaultSeeds = 200

// TestModel walks through many courses of events.
func TestModel(t *testing.T) {
	const parts = 8
	n := seeds.Count(t, defaultSeeds)
	var violations atomic.Int64
	t.Run("parts", func(t *testing.T) {
		for part := range parts {
			t.Run(strconv.Itoa(part), func(t *testing.T) {
				t.Parallel()
				for seed := part; seed < n && violations.Load() < parts; seed += parts {
					wrong := anyWalk(uint64(seed), standardRules()).play()
					if wrong == "" {
						continue
					}
					t.Errorf("seed %d: %s", seed, wrong)
					if violations.Add(1) == 1 {
						replay(t, uint64(seed))
					}
				}
			})
		}
	})
	_, _ = fmt.Fprintf(t.Output(),
		"figure announcer_model_seeds %d seeds\nfigure announcer_model_violations %d violations\n", n,
		violations.Load())
}

// replay runs a seed again and logs what happens.
func replay(t *testing.T, seed uint64) {
	t.Helper()
	w := anyWalk(seed, standardRules())
	w.keepLog = true
	if wrong := w.play(); wrong != "" {
		t.Errorf("seed %d: %s", seed, wrong)
	}
	for _, line := range w.log[max(0, len(w.log)-120):] {
		t.Log(line)
	}
}
