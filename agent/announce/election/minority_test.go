package election

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// minorities are faults that leave fewer than a majority of the members.
var minorities = map[string]struct {
	nodes int
	fault func(w *world)
}{
	"two of three at once":         {3, func(w *world) { w.powerOffAll(w.nodes[1:]) }},
	"three of five at once":        {5, func(w *world) { w.powerOffAll(w.nodes[2:]) }},
	"all but one of seven at once": {7, func(w *world) { w.powerOffAll(w.nodes[1:]) }},
	"most of 26 at once":           {26, func(w *world) { w.powerOffAll(w.nodes[5:]) }},
	"two of three at once, and one of them only lost its agent": {3, func(w *world) {
		w.powerOffAll(w.nodes[1:])
		w.nodes[1].noKubelet = false
	}},
	"two of three one by one": {3, func(w *world) {
		w.nodes[1].powerOff()
		w.run(200 * time.Millisecond)
		w.nodes[2].powerOff()
	}},
	"all of three, and one back": {3, func(w *world) {
		w.powerOffAll(w.nodes)
		w.run(2 * time.Minute)
		w.nodes[0].powerOn()
	}},
	"all of five, and two back": {5, func(w *world) {
		w.powerOffAll(w.nodes)
		w.run(2 * time.Minute)
		w.nodes[0].powerOn()
		w.nodes[4].powerOn()
	}},
}

func (w *world) powerOffAll(some []*machine) {
	for _, m := range some {
		m.powerOff()
	}
}

// together starts all nodes, and waits until they are members, and all addresses are answered for.
func (w *world) together() bool {
	w.keepLeases()
	for _, m := range w.nodes {
		w.after(w.between(0, time.Second), m.start)
	}
	for range 120 {
		w.run(500 * time.Millisecond)
		if w.object.view != nil && len(w.object.view.Members) == len(w.nodes) && len(w.unanswered()) == 0 {
			w.run(5 * time.Second)
			return true
		}
	}
	return false
}

// gathered returns a world in which all nodes are members, and all addresses are answered for.
func gathered(t *testing.T, seed uint64, nodes int) *world {
	t.Helper()
	w := newWorld(seed, nodes, 4, standardRules())
	w.keepLog = true
	if !w.together() {
		t.Fatalf("seed %d: not stable\n%s", seed, w.tail())
	}
	return w
}

// TestMinority: after a majority has lost its power, the rest answers for all addresses within a minute.
func TestMinority(t *testing.T) {
	longest := time.Duration(0)
	for name, tc := range minorities {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(seeds.Count(t, max(1, 4-tc.nodes/5))) {
				w := gathered(t, seed, tc.nodes)
				tc.fault(w)
				took := w.silentFor(5 * time.Minute)
				longest = max(longest, took)
				if took > time.Minute || w.violation != "" {
					t.Fatalf("seed %d: silent for %s %s\n%s", seed, took, w.violation, w.tail())
				}
				for _, m := range w.nodes {
					m.powerOn()
				}
				w.run(time.Minute)
				if members := w.object.view.Members; len(members) != tc.nodes || w.violation != "" {
					t.Fatalf("seed %d: %q are members after all are back %s\n%s", seed, members, w.violation, w.tail())
				}
			}
		})
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_minority_silent_max %.1f s\n", longest.Seconds())
}

// silentFor runs the world until all addresses are answered for, and returns how long that takes.
func (w *world) silentFor(limit time.Duration) time.Duration {
	began := w.now
	for len(w.unanswered()) > 0 && w.now-began < limit && w.violation == "" {
		w.run(20 * time.Millisecond)
	}
	return w.now - began
}

// TestNodeTraps runs each of them.
func TestNodeTraps(t *testing.T) {
	for name, trap := range nodeTraps {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(seeds.Count(t, 8)) {
				w := newWorld(seed, 3, 4, standardRules())
				w.keepLog = true
				if wrong := trap(w); wrong != "" {
					t.Fatalf("seed %d: %s\n%s", seed, wrong, w.tail())
				}
			}
		})
	}
}

// suspendMajority suspends a majority for longer than the Leases of its kubelets are valid, and the rest takes over.
// When the suspended nodes continue, at the same moment, they are a majority by a view that is no longer the newest,
// and for a while they do not hear the rest.
func (w *world) suspendMajority(cut bool) string {
	if !w.together() {
		return "not stable"
	}
	for _, m := range w.nodes[1:] {
		m.suspend()
	}
	w.run(w.between(w.rules.nodeLease, 2*w.rules.nodeLease))
	w.isolate(w.nodes[0], cut)
	for _, m := range w.nodes[1:] {
		w.after(w.between(0, 100*time.Millisecond), m.revive)
	}
	w.run(5 * time.Second)
	w.isolate(w.nodes[0], false)
	w.run(20 * time.Second)
	switch {
	case w.violation != "":
		return w.violation
	case len(w.unanswered()) > 0:
		return "no node answers after all continued"
	}
	return ""
}

// suspendUnaware suspends a majority which does not know the newest view, and does not hear the rest when it continues.
// What it learns first is an event of its watch that was under way all the time.
func (w *world) suspendUnaware() string {
	if !w.together() {
		return "not stable"
	}
	late := *w.object.view
	late.Number++
	w.store(object{true, w.object.version + 1, &late})
	for _, m := range w.nodes[1:] {
		m.suspend()
	}
	w.run(2 * w.rules.nodeLease)
	w.isolate(w.nodes[0], true)
	for _, m := range w.nodes[1:] {
		m.setKubelet(true)
		m.onServer((*machine).resume)
		m.noAPI = true // its next request fails
		w.after(500*time.Millisecond, func() {
			m.step(Read{Found: true, View: &late, Version: "late"})
		})
		w.after(5*time.Second, func() {
			m.noAPI = false
			w.relist(m)
		})
	}
	w.run(10 * time.Second)
	w.isolate(w.nodes[0], false)
	w.run(20 * time.Second)
	switch {
	case w.violation != "":
		return w.violation
	case len(w.unanswered()) > 0:
		return "no node answers after all continued"
	}
	return ""
}

// splits are faults of the VLAN and the API server that last for longer than Leases of Nodes are valid. The two sides
// are the first node and the rest.
var splits = map[string]struct {
	vlan, api, kubelets, gateway, two bool
}{
	"of the VLAN": {vlan: true},
	"of the VLAN, and the kubelets of the rest end":                       {vlan: true, kubelets: true},
	"of the VLAN, the rest has no gateway":                                {vlan: true, gateway: true},
	"of the VLAN, and the kubelets of the rest end, which has no gateway": {vlan: true, kubelets: true, gateway: true},
	"of the API server": {api: true},
	"of the VLAN and the API server at the same time": {vlan: true, api: true, two: true},
}

// TestSplits: two nodes answer for an address only when the VLAN and the way to the API server are split at the same
// time, each side of the VLAN has a gateway, and the smaller one reaches the API server.
func TestSplits(t *testing.T) {
	for name, tc := range splits {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(seeds.Count(t, 3)) {
				w := gathered(t, seed, 3)
				w.isolate(w.nodes[0], tc.vlan)
				for _, m := range w.nodes[1:] {
					m.noAPI = tc.api
					m.noKubelet = tc.kubelets
					m.noGateway = tc.gateway
				}
				w.run(3 * w.rules.nodeLease)
				if two := w.violation != ""; two != tc.two {
					t.Errorf("seed %d: two nodes answer: %t, want %t %s\n%s", seed, two, tc.two, w.violation, w.tail())
					return
				}
			}
		})
	}
}

// TestAllCutWithoutAPI: the VLAN fails for long while no node reaches the API server. When it is whole again, all nodes
// hear each other, so they need not ask whether the view has changed.
func TestAllCutWithoutAPI(t *testing.T) {
	for seed := range uint64(seeds.Count(t, 5)) {
		w := gathered(t, seed, 3)
		w.apiDown = true
		for _, m := range w.nodes {
			w.isolate(m, true)
		}
		w.run(2 * time.Minute)
		for _, m := range w.nodes {
			w.isolate(m, false)
		}
		if took := w.silentFor(time.Minute); took > 2*time.Second || w.violation != "" {
			t.Errorf("seed %d: silent for %s after the VLAN was whole again %s\n%s", seed, took, w.violation, w.tail())
			return
		}
	}
}

// TestDeclaredOff: when someone declares dead nodes off, the rest does not wait for their Leases.
func TestDeclaredOff(t *testing.T) {
	for seed := range uint64(seeds.Count(t, 5)) {
		w := gathered(t, seed, 3)
		w.declareOff(w.nodes[1:])
		if took := w.silentFor(time.Minute); took > 10*time.Second || w.violation != "" {
			t.Errorf("seed %d: silent for %s %s\n%s", seed, took, w.violation, w.tail())
			return
		}
	}
}

// TestSuccessor: a node that was never a member takes over from the only one when someone declares that off, not
// before.
func TestSuccessor(t *testing.T) {
	for seed := range uint64(seeds.Count(t, 5)) {
		w := newWorld(seed, 2, 4, standardRules())
		w.keepLog = true
		w.keepLeases()
		only := w.nodes[0]
		only.start()
		w.run(10 * time.Second)
		only.powerOff()
		w.nodes[1].start()
		w.run(2 * time.Minute)
		if len(w.unanswered()) == 0 {
			t.Fatalf("seed %d: it took over from a node that may stand still\n%s", seed, w.tail())
		}
		w.declareOff(w.nodes[:1])
		if took := w.silentFor(time.Minute); took > 15*time.Second || w.violation != "" {
			t.Errorf("seed %d: silent for %s %s\n%s", seed, took, w.violation, w.tail())
			return
		}
	}
}

// declareOff ends nodes, and has someone declare that.
func (w *world) declareOff(some []*machine) {
	w.powerOffAll(some)
	for _, m := range some {
		w.declared[m.name] = true
	}
}

// TestNoNodeIsOff: a node that is not heard, but whose kubelet renews its Lease, or one of whose addresses is claimed,
// does not count as off; nor does anything show that while the gateway does not answer.
func TestNoNodeIsOff(t *testing.T) {
	for name, spoil := range map[string]func(w *world){
		"the kubelets renew their Leases": func(w *world) { w.nodes[1].noKubelet = false; w.nodes[2].noKubelet = false },
		"the gateway does not answer":     func(w *world) { w.nodes[0].noGateway = true },
		"the API server does not answer":  func(w *world) { w.apiDown = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := gathered(t, 1, 3)
			w.powerOffAll(w.nodes[1:])
			spoil(w)
			w.run(5 * time.Minute)
			if len(w.object.view.Members) != 3 {
				t.Errorf("%q are members, want all three\n%s", w.object.view.Members, w.tail())
			}
		})
	}
}

// nodeTraps are courses of events in which whole servers stop and continue. They return what is wrong.
var nodeTraps = map[string]func(w *world) string{
	"a suspended majority":             func(w *world) string { return w.suspendMajority(false) },
	"a suspended majority and a split": func(w *world) string { return w.suspendMajority(true) },
	"late events for a majority":       (*world).suspendUnaware,
}

// anyWalk returns one walk of four in which majorities fail.
func anyWalk(seed uint64, r rules) *walk {
	if seed%4 == 3 {
		return newMajorityWalk(seed, r)
	}
	return newWalk(seed, r)
}

// newMajorityWalk returns a walk in which many nodes may fail at once, and the Leases of Nodes are valid for a tenth of
// the usual time. Either the VLAN may be split or the nodes may lose the API server, see TestSplits.
func newMajorityWalk(seed uint64, r rules) *walk {
	r.nodeLease = 4 * time.Second
	r.lapse = 2 * time.Second
	r.examineAfter = 400 * time.Millisecond
	r.examineEvery = 500 * time.Millisecond
	r.examineEveryMax = time.Second
	r.examinedFor = 2 * time.Second
	w := newWorld(seed, 0, 0, r)
	w = newWorld(seed, 2+w.random.IntN(6), 1+w.random.IntN(4), r)
	w.clockBack = 0.15
	w.keepLeases()
	w.kinds = []fault{w.powerOffSome, w.powerOffSome, w.powerOffSome, w.crash, w.leave, w.updateOne, w.unready,
		w.dropService}
	if w.chance(0.5) {
		w.kinds = append(w.kinds, w.killKubelet, w.killKubelet, w.freeze, w.cutPair, w.cutNode, w.split, w.split,
			w.lose, w.slow,
			w.loseGateway)
	} else {
		w.kinds = append(w.kinds, w.suspendSome, w.suspendSome, w.suspendSome, w.isolateOne, w.isolateOne,
			w.killKubelet, w.killKubelet, w.loseAPI, w.loseAPIForAll, w.slowAPI)
	}
	return &walk{w}
}

// some returns up to all nodes, mostly more than half.
func (w *world) some() []*machine {
	all := slices.Clone(w.nodes)
	w.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	n := 1 + w.random.IntN(len(all))
	w.faults += n
	return all[:max(n, w.random.IntN(len(all)))]
}

func (w *world) powerOffSome(_ *machine, d time.Duration) string {
	declares := w.chance(0.3)
	for _, m := range w.some() {
		w.after(w.between(0, 300*time.Millisecond), func() {
			if !w.healed {
				w.note("%s has no power", m.name)
				m.powerOff()
				w.declared[m.name] = declares
			}
		})
		if w.chance(0.4) {
			w.after(4*d+300*time.Millisecond, func() {
				if !w.healed {
					m.powerOn()
				}
			})
		}
	}
	return "no power for some near"
}

func (w *world) suspendSome(_ *machine, d time.Duration) string {
	for _, m := range w.some() {
		w.after(w.between(0, 300*time.Millisecond), func() {
			if !w.healed && m.alive {
				w.note("%s is suspended", m.name)
				m.suspend()
				w.after(4*d, m.revive)
			}
		})
	}
	return "some are suspended near"
}

func (w *world) killKubelet(m *machine, d time.Duration) string {
	m.setKubelet(false)
	w.after(4*d, func() {
		if m.alive {
			m.setKubelet(true)
		}
	})
	return "no kubelet on"
}

func (w *world) isolateOne(m *machine, d time.Duration) string {
	w.isolate(m, true)
	m.noGateway = true
	w.after(2*d, func() {
		w.isolate(m, false)
		m.noGateway = false
	})
	return "cut off"
}

// minorityIsAble reports whether nodes remain that can take over although they are no majority: all other members have
// no power.
func (w *walk) minorityIsAble() bool {
	if w.renewals == nil || w.object.view == nil {
		return false
	}
	able := false
	for _, m := range w.nodes {
		if !w.object.view.has(m.name) {
			continue
		}
		if !m.alive && !m.noKubelet || m.facts.Leaving {
			return false
		}
		able = able || m.alive && m.facts.Candidate
	}
	return able
}
