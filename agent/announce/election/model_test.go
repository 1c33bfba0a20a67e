package election

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/seeds"
)

// recovery bounds the time after the end of all faults in which every address is answered for again, where that can be.
const recovery = 4 * time.Second

// recovers tells what is wrong some time after the faults ended: first with the dead dead, then with all alive.
func (w *walk) recovers() string {
	able := w.able()
	w.run(recovery)
	// A request that was given up before, and carried out meanwhile, is a fault that ended then.
	for len(w.silentNow()) > 0 && w.now < w.lateAt+recovery && w.violation == "" {
		w.run(w.lateAt + recovery - w.now)
	}
	if w.violation != "" {
		return w.violation
	}
	if silent := w.silentNow(); able && w.able() && len(silent) > 0 {
		return fmt.Sprintf("nobody answers for %v, %s after the faults ended", silent, recovery)
	}
	for _, m := range w.nodes {
		m.facts.Leaving = false
		m.start()
		m.tell()
	}
	w.note("all alive")
	for range 10 {
		w.run(recovery)
		if w.violation != "" {
			return w.violation
		}
		if len(w.silentNow()) == 0 {
			return ""
		}
	}
	return fmt.Sprintf("nobody answers for %v long after all nodes were started", w.silentNow())
}

// able tells whether a majority of the members is alive, and one of them can take addresses.
func (w *walk) able() bool {
	if w.object.view == nil {
		return false
	}
	voices, able := 0, false
	for _, m := range w.nodes {
		if m.alive && w.object.view.has(m.name) {
			voices++
			able = able || m.facts.Candidate && !m.facts.Leaving
		}
	}
	return able && voices >= majority(len(w.object.view.Members))
}

// rests tells what is wrong in the calm: all members are together again, nothing is written, and no address moved more
// often than something went wrong.
func (w *walk) rests() string {
	w.run(20 * time.Second)
	writes := w.writes
	w.run(5 * time.Second)
	switch {
	case w.violation != "":
		return w.violation
	case w.writes != writes:
		return fmt.Sprintf("%d writes in five calm seconds", w.writes-writes)
	case len(w.silentNow()) > 0:
		return fmt.Sprintf("nobody answers for %v in the calm", w.silentNow())
	}
	for a, n := range w.moves {
		if n > 2*w.faults+2 {
			return fmt.Sprintf("%s moved %d times for %d faults", a, n, w.faults)
		}
	}
	return ""
}

// usual is the number of random starts in every run of the tests.
const usual = 200

// TestModel walks through many courses of events.
func TestModel(t *testing.T) {
	const parts = 8
	n := seeds.Count(t, usual)
	var violations atomic.Int64
	t.Run("parts", func(t *testing.T) {
		for part := range parts {
			t.Run(strconv.Itoa(part), func(t *testing.T) {
				t.Parallel()
				for seed := part; seed < n && violations.Load() < parts; seed += parts {
					wrong := newWalk(uint64(seed), standardRules()).play() //nolint:gosec // not negative
					if wrong == "" {
						continue
					}
					t.Errorf("seed %d: %s", seed, wrong)
					if violations.Add(1) == 1 {
						explain(t, uint64(seed)) //nolint:gosec // not negative
					}
				}
			})
		}
	})
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_model_seeds %d seeds\nfigure announcer_model_violations %d violations\n", n, violations.Load())
}

// explain walks a seed again and tells what happens.
func explain(t *testing.T, seed uint64) {
	t.Helper()
	w := newWalk(seed, standardRules())
	w.keepLog = true
	if wrong := w.play(); wrong != "" {
		t.Errorf("seed %d: %s", seed, wrong)
	}
	for _, line := range w.log[max(0, len(w.log)-120):] {
		t.Log(line)
	}
}
