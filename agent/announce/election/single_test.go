package election

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// scenario is one fault in a stable world.
type scenario struct {
	nodes int
	fault func(w *world, holder *machine)
	// most is the maximum time for which the address may be silent.
	most time.Duration
	// stays requires that the holder stays the holder.
	stays bool
}

var scenarios = map[string]scenario{
	"killed of two":    {nodes: 2, fault: func(_ *world, h *machine) { h.stop() }, most: 400 * time.Millisecond},
	"killed of three":  {nodes: 3, fault: func(_ *world, h *machine) { h.stop() }, most: 400 * time.Millisecond},
	"killed of seven":  {nodes: 7, fault: func(_ *world, h *machine) { h.stop() }, most: 400 * time.Millisecond},
	"stopped of three": {nodes: 3, fault: func(_ *world, h *machine) { h.pause() }, most: 400 * time.Millisecond},
	"cut of three": {nodes: 3, fault: func(w *world, h *machine) {
		w.isolate(h, true)
		h.noGateway = true
		w.cutOff = h
	}, most: 400 * time.Millisecond},
	"cut of two": {nodes: 2, fault: func(w *world, h *machine) {
		w.isolate(h, true)
		h.noGateway = true
		w.cutOff = h
	}, most: 400 * time.Millisecond},
	"deaf of three": {nodes: 3, fault: func(w *world, h *machine) {
		w.deafen(h, true)
		h.noGateway = true
		w.cutOff = h
	}, most: 1000 * time.Millisecond},
	"deaf of two": {nodes: 2, fault: func(w *world, h *machine) {
		w.deafen(h, true)
		h.noGateway = true
		w.cutOff = h
	}, most: 1000 * time.Millisecond},
	"mute of three": {nodes: 3, fault: func(w *world, h *machine) { w.mute(h, true); w.cutOff = h },
		most: 400 * time.Millisecond},
	"leaves": {nodes: 3, fault: func(_ *world, h *machine) { h.facts.Leaving = true; h.sendFacts() },
		most: 30 * time.Millisecond},
	"unready": {nodes: 2, fault: func(_ *world, h *machine) { h.facts.Candidate = false; h.sendFacts() },
		most: 30 * time.Millisecond},
	"API lost": {nodes: 3, fault: func(w *world, _ *machine) { w.apiDown = true }, stays: true},
	"API lost, one dead": {nodes: 3, fault: func(w *world, h *machine) { w.apiDown = true; w.other(h).stop() },
		stays: true},
	"single without API": {nodes: 1, fault: func(w *world, _ *machine) { w.apiDown = true }, stays: true},
	"holder without API": {nodes: 3, fault: func(_ *world, h *machine) { h.noAPI = true }, stays: true},
	"one does not hear the holder": {nodes: 5, stays: true, fault: func(w *world, h *machine) {
		o := w.other(h)
		o.deaf[h.index] = true
		h.deaf[o.index] = true
	}},
	"an unknown view number": {nodes: 3, most: 1500 * time.Millisecond, fault: func(w *world, h *machine) {
		w.other(h).core.seen += 1000
	}},
	"another one dies": {nodes: 3, fault: func(w *world, h *machine) { w.other(h).stop() }, stays: true},
	"a node comes": {nodes: 3, fault: func(w *world, h *machine) { o := w.other(h); o.stop(); o.start() },
		stays: true},
}

// other is a machine that is not the holder.
func (w *world) other(than *machine) *machine { return w.nodes[(than.index+1)%len(w.nodes)] }

// run runs a scenario and returns what is wrong.
func (s scenario) run(seed uint64, r rules) (w *world, outage time.Duration, wrong string) {
	w = newWorld(seed, s.nodes, 1, r)
	w.keepLog = true
	holder := w.stabilize()
	if holder == nil {
		return w, 0, "not stable after 20 s " + w.violation
	}
	w.note("fault at %s", holder.name)
	s.fault(w, holder)
	outage = w.watch(5 * time.Second)
	switch {
	case w.violation != "":
		return w, outage, w.violation
	case outage > s.most:
		return w, outage, fmt.Sprintf("silent for %s, want at most %s", outage, s.most)
	case s.stays && !holder.answers(address(0)):
		return w, outage, "the holder lost the address"
	}
	return w, outage, ""
}

// stabilize starts all nodes and returns the holder of the address when all are members.
func (w *world) stabilize() *machine {
	for _, m := range w.nodes {
		w.after(w.between(0, 500*time.Millisecond), m.start)
	}
	w.run(8 * time.Second)
	w.run(w.between(0, 100*time.Millisecond))
	if w.object.view == nil || len(w.object.view.Members) != len(w.nodes) {
		return nil
	}
	return w.holder(address(0))
}

func (w *world) holder(a netip.Addr) *machine {
	for _, m := range w.nodes {
		if m.answers(a) {
			return m
		}
	}
	return nil
}

// TestOneFault injects one fault into a stable world and measures for how long an address is silent.
//
//proves:service-changes/node-dies
//proves:service-changes/vlan-lost
func TestOneFault(t *testing.T) {
	var longest time.Duration
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			var most time.Duration
			for seed := range uint64(min(seeds.Count(t, 5), 100)) {
				w, outage, wrong := s.run(seed, standardRules())
				if most = max(most, outage); wrong != "" {
					t.Fatalf("seed %d: %s\n%s", seed, wrong, w.tail())
				}
			}
			longest = max(longest, most)
			_, _ = fmt.Fprintf(t.Output(), "figure announcer_model_outage_%s %d ms\n",
				strings.NewReplacer(" ", "_", ",", "").Replace(name), most.Milliseconds())
		})
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_model_outage_one_fault_max %d ms\n", longest.Milliseconds())
}

// watch lets time pass and returns the longest time for which an address was silent.
func (w *world) watch(d time.Duration) (longest time.Duration) {
	var silent time.Duration
	for end := w.now + d; w.now < end; {
		w.run(time.Millisecond)
		if len(w.unanswered()) == 0 {
			silent = 0
			continue
		}
		silent += time.Millisecond
		longest = max(longest, silent)
	}
	return longest
}

func (w *world) tail() string { return strings.Join(w.log[max(0, len(w.log)-60):], "\n") }

// isolate cuts a machine off the VLAN, in both directions.
func (w *world) isolate(m *machine, cut bool) {
	w.deafen(m, cut)
	w.mute(m, cut)
}

// deafen drops all frames to a machine.
func (w *world) deafen(m *machine, cut bool) {
	for i := range m.deaf {
		m.deaf[i] = cut
	}
}

// mute drops all frames from a machine.
func (w *world) mute(m *machine, cut bool) {
	for _, other := range w.nodes {
		other.deaf[m.index] = cut
	}
}
