package election

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// quarrels are reasons to change the view again and again. They are called every 50 ms.
var quarrels = map[string]func(w *world, i int){
	// One node does not find an address among the Services that the others find, neither in its own list nor when it
	// asks the API server.
	"nodes contradict each other": func(w *world, _ int) {
		m := w.nodes[0]
		m.blind = map[netip.Addr]bool{address(0): true}
		if m.outdated == nil {
			m.outdated = map[netip.Addr]bool{}
			m.sendFacts()
		}
	},
	"a link goes up and down": func(w *world, i int) {
		m := w.nodes[0]
		if i%10 == 0 {
			m.facts.Link = i%20 == 0
			w.isolate(m, !m.facts.Link)
			m.sendFacts()
		}
	},
	"all nodes take turns at being unable": func(w *world, i int) {
		for j, m := range w.nodes {
			m.facts.Candidate = i/8%len(w.nodes) == j
			m.sendFacts()
		}
	},
	"someone deletes the view again and again": func(w *world, _ int) {
		if w.object.exists {
			w.store(object{false, w.object.version + 1, nil})
		}
	},
	"someone replaces it by an older one": func(w *world, _ int) {
		if w.object.view != nil {
			w.edit(func(v *View) { v.Number = max(1, v.Number-1) })
		}
	},
	"someone writes owners that are no members": func(w *world, _ int) {
		w.edit(func(v *View) {
			v.Number++
			v.Owners = map[netip.Addr]Owner{address(0): {Node: "ghost", Epoch: v.Number}}
		})
	},
	"heartbeats report ever newer views": func(w *world, _ int) {
		w.forge(w.nodes[0], func(h *Heartbeat) { h.Seen += 2 })
	},
}

// TestChangesHaveABudget: whatever the reason is, the nodes change the view together at most as often as they have a
// budget for, and a node that fails meanwhile is replaced.
func TestChangesHaveABudget(t *testing.T) {
	most := 0
	for name, quarrel := range quarrels {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1, 3, 4, standardRules())
			w.keepLog = true
			w.keepLeases()
			if w.stabilize() == nil {
				t.Fatal("not stable")
			}
			w.run(5 * time.Minute)
			minute := func() int {
				before := w.writes
				for i := range 1200 {
					quarrel(w, i)
					w.run(50 * time.Millisecond)
				}
				return w.writes - before
			}
			first := minute()
			for range 3 {
				minute()
			}
			later := minute()
			most = max(most, later)
			t.Logf("%d writes in the first minute, %d in the fifth", first, later)
			const n = 2*(budgetBase+budgetEach*3) + int(time.Minute/(3*time.Second))
			if first > n+n/4 || later > 25 || w.violation != "" {
				t.Errorf("%d writes in the first minute and %d in the fifth, want at most %d and 25 %s\n%s", first,
					later, n+n/4, w.violation, w.tail())
			}
		})
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_quarrel_writes_minute %d writes\n", most)
}

// TestBudgetLeavesRoomForFailures: while nodes contradict each other, a node that dies is replaced as fast as ever.
func TestBudgetLeavesRoomForFailures(t *testing.T) {
	for seed := range uint64(5) {
		w := newWorld(seed, 4, 4, standardRules())
		w.keepLog = true
		if w.stabilize() == nil {
			t.Fatal("not stable")
		}
		quarrel := quarrels["nodes contradict each other"]
		for i := range 2400 {
			quarrel(w, i)
			w.run(50 * time.Millisecond)
		}
		delete(w.wanted, address(0)) // the one about which they quarrel
		w.nodes[3].stop()
		if took := w.silentFor(10 * time.Second); took > time.Second || w.violation != "" {
			t.Errorf("seed %d: silent for %s %s\n%s", seed, took, w.violation, w.tail())
		}
	}
}

// TestOtherClusterIsReportedOnce: that another cluster has the same key is reported once an hour, however many
// heartbeats of it come.
func TestOtherClusterIsReportedOnce(t *testing.T) {
	e := member(t)
	reported := 0
	for range 2*60 + 30 {
		for _, event := range e.Step(e.now+time.Minute, Foreign{Node: "node-x"}).Events {
			if event == (Event{Kind: OtherCluster, Node: "node-x"}) {
				reported++
			}
		}
	}
	if reported != 3 {
		t.Errorf("reported %d times in two and a half hours, want 3", reported)
	}
}
