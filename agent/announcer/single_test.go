package announcer

import (
	"fmt"
	"testing"
	"time"
)

// TestOneFault lets one thing go wrong in a world at rest and measures for how long an address is silent.
func TestOneFault(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes int
		fault func(w *world, holder *machine)
		most  time.Duration
	}{
		"killed of two":    {2, func(_ *world, h *machine) { h.stop() }, 500 * time.Millisecond},
		"killed of three":  {3, func(_ *world, h *machine) { h.stop() }, 500 * time.Millisecond},
		"killed of seven":  {7, func(_ *world, h *machine) { h.stop() }, 500 * time.Millisecond},
		"stopped of three": {3, func(_ *world, h *machine) { h.pause() }, 500 * time.Millisecond},
		"cut of three":     {3, func(w *world, h *machine) { w.isolate(h, true); h.noGateway = true }, 500 * time.Millisecond},
		"cut of two":       {2, func(w *world, h *machine) { w.isolate(h, true); h.noGateway = true }, 500 * time.Millisecond},
		"deaf of three":    {3, func(w *world, h *machine) { w.deafen(h, true); h.noGateway = true }, 1200 * time.Millisecond},
		"deaf of two":      {2, func(w *world, h *machine) { w.deafen(h, true); h.noGateway = true }, 1200 * time.Millisecond},
		"mute of three":    {3, func(w *world, h *machine) { w.silence(h, true) }, 500 * time.Millisecond},
		"leaves":           {3, func(_ *world, h *machine) { h.facts.Leaving = true; h.tell() }, 30 * time.Millisecond},
		"unready":          {2, func(_ *world, h *machine) { h.facts.Candidate = false; h.tell() }, 30 * time.Millisecond},
		"API lost":         {3, func(w *world, _ *machine) { w.apiDown = true }, 0},
		"holder without API": {3, func(_ *world, h *machine) {
			h.noAPI = true
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var longest time.Duration
			defer func() { t.Logf("%s: silent for %s at most", name, longest) }()
			for seed := range uint64(20) {
				w := newWorld(seed, tc.nodes, 1, standardRules())
				w.keepLog = true
				outage := w.outageOf(t, tc.fault)
				longest = max(longest, outage)
				if w.violation != "" || outage > tc.most {
					t.Fatalf("seed %d: silent for %s, want at most %s; %s\n%s", seed, outage, tc.most, w.violation, w.tail())
				}
			}
		})
	}
}

// outageOf starts a world, lets something go wrong and returns for how long the address was silent after that.
func (w *world) outageOf(t *testing.T, fault func(w *world, holder *machine)) time.Duration {
	t.Helper()
	for _, m := range w.nodes {
		w.after(w.between(0, 500*time.Millisecond), m.start)
	}
	w.run(20 * time.Second)
	w.run(w.between(0, 100*time.Millisecond))
	var holder *machine
	for _, m := range w.nodes {
		if m.answers(address(0)) {
			holder = m
		}
	}
	if holder == nil || len(w.object.view.Members) != len(w.nodes) {
		t.Fatalf("not at rest after 20 s: %s %s", w.violation, w.tail())
	}
	w.note("fault at %s", holder.name)
	fault(w, holder)
	return w.watch(5 * time.Second)
}

// watch lets time pass and returns the longest time for which an address was silent.
func (w *world) watch(d time.Duration) (longest time.Duration) {
	var silent time.Duration
	for end := w.now + d; w.now < end; {
		w.run(time.Millisecond)
		if len(w.silentNow()) == 0 {
			silent = 0
			continue
		}
		silent += time.Millisecond
		longest = max(longest, silent)
	}
	return longest
}

func (w *world) tail() string {
	s := ""
	for _, line := range w.log[max(0, len(w.log)-60):] {
		s += line + "\n"
	}
	return s
}

// isolate cuts a machine off the VLAN, both ways.
func (w *world) isolate(m *machine, cut bool) {
	w.deafen(m, cut)
	w.silence(m, cut)
}

// deafen lets a machine hear nobody.
func (w *world) deafen(m *machine, cut bool) {
	for i := range m.deaf {
		m.deaf[i] = cut
	}
}

// silence lets nobody hear a machine.
func (w *world) silence(m *machine, cut bool) {
	for _, other := range w.nodes {
		other.deaf[m.index] = cut
	}
}

var _ = fmt.Sprint
