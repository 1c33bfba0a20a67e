package election

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestIntervalUpdate: the agents are updated one after the other to another interval. They keep one view, in which all
// nodes are members, an address is silent no longer than in an update that changes nothing, and in the end they work by
// the new interval.
func TestIntervalUpdate(t *testing.T) {
	for name, tc := range map[string]struct{ before, after time.Duration }{
		"slower":        {100 * time.Millisecond, 200 * time.Millisecond},
		"faster":        {200 * time.Millisecond, 100 * time.Millisecond},
		"much slower":   {100 * time.Millisecond, time.Second},
		"much faster":   {time.Second, 50 * time.Millisecond},
		"as it was":     {100 * time.Millisecond, 100 * time.Millisecond},
		"slow as it is": {time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var silent time.Duration
			for seed := range uint64(6) {
				w := newWorld(seed, 3, 3, standardRules())
				w.keepLog = true
				for _, m := range w.nodes {
					m.interval = tc.before
					w.after(w.between(0, time.Second), m.start)
				}
				w.run(60 * time.Second)
				if !w.isWhole() || w.object.view.Interval != milliseconds(tc.before) {
					t.Fatalf("seed %d: not stable %s\n%s", seed, w.violation, w.tail())
				}
				silent = max(silent, w.updateAll(t, tc.after))
				v := w.object.view
				if w.violation != "" || v.Interval != milliseconds(tc.after) || v.Former != 0 || !w.isWhole() {
					t.Fatalf("seed %d: view %d with intervals of %d and %d ms after the update %s\n%s", seed, v.Number,
						v.Interval, v.Former, w.violation, w.tail())
				}
				writes := w.writes
				w.run(20 * time.Second)
				if w.writes != writes {
					t.Errorf("seed %d: %d writes after the update", seed, w.writes-writes)
				}
			}
			// A new owner begins when the old one has stopped, which takes them one or two ways through the switch.
			if silent > 30*time.Millisecond {
				t.Errorf("silent for %s", silent)
			}
			_, _ = fmt.Fprintf(t.Output(), "figure announcer_interval_update_%s_silent_ms %d ms\n",
				strings.ReplaceAll(name, " ", "_"), silent.Milliseconds())
		})
	}
}

// updateAll stops all agents one after the other, as the kubelet does, starts them again with another interval, and
// returns for how long an address was silent.
func (w *world) updateAll(t *testing.T, interval time.Duration) (silent time.Duration) {
	t.Helper()
	for _, m := range w.nodes {
		m.interval = interval // read at the start
		silent = max(silent, w.restartGracefully(m))
		for _, other := range w.nodes {
			if other.core.view == nil || other.core.view.Number != w.object.view.Number {
				t.Errorf("%s works with another view", other.name)
			}
		}
	}
	return max(silent, w.watch(30*time.Second))
}

// TestMixedIntervals: nodes that are configured differently for good work by the interval of the view, and write
// nothing.
func TestMixedIntervals(t *testing.T) {
	w := newWorld(1, 4, 4, standardRules())
	w.keepLog = true
	for i, m := range w.nodes {
		m.interval = time.Duration(i+1) * 100 * time.Millisecond
		w.after(w.between(0, time.Second), m.start)
	}
	w.run(40 * time.Second)
	if !w.isWhole() {
		t.Fatalf("not stable %s\n%s", w.violation, w.tail())
	}
	writes := w.writes
	silent := w.watch(time.Minute)
	if silent > 0 || w.writes != writes || w.violation != "" {
		t.Errorf("silent for %s, %d writes in a minute %s", silent, w.writes-writes, w.violation)
	}
	for _, m := range w.nodes {
		if m.core.pace != time.Duration(w.object.view.Interval)*time.Millisecond {
			t.Errorf("%s works by %s", m.name, m.core.pace)
		}
	}
}

// TestIntervalOfEarlierRelease: in a view without an interval, which agents of an earlier release wrote, nodes with
// another interval do not count, and the next writer sets the interval.
func TestIntervalOfEarlierRelease(t *testing.T) {
	for interval, counts := range map[uint16]bool{0: true, 100: true, 200: false} {
		e := member(t)
		hear(e, "node-b", 1, asIs)
		e.handleHeartbeat(&Heartbeat{Node: "node-b", Boot: 7, Sequence: 2, Number: e.view.Number, Seen: e.view.Number,
			Interval: interval})
		if got := e.peers[IDOf("node-b")].last.Sequence == 2; got != counts {
			t.Errorf("%d ms: counts %t", interval, got)
		}
		if next := e.propose(e.view.next()).view; next.Interval != 100 || next.Former != 0 {
			t.Errorf("the next view has intervals of %d and %d ms", next.Interval, next.Former)
		}
	}
	e := member(t)
	v := e.view.next()
	v.Interval = 200
	e.adopt(v, "2")
	v = v.next()
	v.Interval = 0 // an earlier release wrote it again
	e.adopt(v, "3")
	if e.pace != 200*time.Millisecond || e.rules.suspectTimeout != 600*time.Millisecond || e.repaced() == nil {
		t.Errorf("works by %s, want 200ms until the view has an interval again", e.pace)
	}
}
