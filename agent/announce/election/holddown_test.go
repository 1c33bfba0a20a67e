package election

import (
	"testing"
	"time"
)

// TestHoldDown: a node whose agent has just started takes only what no other can, unless the agent before had handed
// over its addresses. After a while that is no excuse for not having been ready.
func TestHoldDown(t *testing.T) {
	for name, before := range map[string]Flags{"failed": Candidate, "left": Leaving} {
		e := member(t)
		left := before.Has(Leaving)
		hear(e, "node-b", 1, func(h *Heartbeat) { h.Flags = before })
		p := hear(e, "node-b", 2, func(h *Heartbeat) {
			h.Boot++
			h.Flags = Candidate | HoldDown
		})
		if e.peerInHoldDown(p) == left {
			t.Errorf("%s: in hold-down %t when its agent has just started", name, e.peerInHoldDown(p))
		}
		e.now += e.rules.holdDown
		if !e.peerInHoldDown(p) {
			t.Errorf("%s: it is not ready again and again, and not in hold-down", name)
		}
	}
}

// TestNodesInHoldDownDecideLast: a node in hold-down leaves changes to the others, and the others do not wait for it.
func TestNodesInHoldDownDecideLast(t *testing.T) {
	for _, subject := range []string{"tend", "add", "remove/node-d", "rebalance"} {
		e := member(t)
		e.holdDown.until = 0
		hear(e, "node-b", 1, func(h *Heartbeat) { h.Flags |= HoldDown })
		hear(e, "node-c", 1, func(h *Heartbeat) { h.Flags |= HoldDown })
		if n := e.rank(subject); n != 0 {
			t.Errorf("%s: %d nodes in hold-down come before one that is not", subject, n)
		}
		e.holdDown.until = e.now + 1
		hear(e, "node-b", 2, asIs)
		hear(e, "node-c", 2, asIs)
		if n := e.rank(subject); n != 2 {
			t.Errorf("%s: %d nodes come before one in hold-down, want both", subject, n)
		}
	}
}

// TestCordonedNodes: kubectl cordon and kubectl drain move no address. A cordoned node gets none while another node can
// have it, neither a new one nor one of a node that failed, nor for even loads.
func TestCordonedNodes(t *testing.T) {
	r := standardRules()
	r.rebalance = time.Second
	r.calm = 500 * time.Millisecond
	w := newWorld(1, 3, 6, r)
	if w.stabilize() == nil {
		t.Fatal("not stable")
	}
	w.run(30 * time.Second)
	a := w.nodes[0]
	b := w.nodes[1]
	c := w.nodes[2]
	has := func(m *machine, want int) {
		t.Helper()
		n := 0
		for _, owner := range w.object.view.Owners {
			if owner.Node == m.name {
				n++
			}
		}
		if silent := w.unanswered(); n != want || len(silent) > 0 {
			t.Errorf("%s has %d addresses, want %d; silent are %v", m.name, n, want, silent)
		}
	}
	cordon := func(m *machine, is bool) {
		m.facts.Cordoned = is
		m.sendFacts()
		w.run(30 * time.Second)
	}
	before := w.movesNow()
	cordon(a, true)
	w.addresses = 12
	for i := range w.addresses {
		w.wanted[address(i)] = true
	}
	for _, m := range w.nodes {
		m.sendFacts()
	}
	w.run(30 * time.Second)
	has(a, 2)
	if moved, _ := w.movedSince(before); moved > 0 {
		t.Errorf("%d addresses moved", moved)
	}
	b.stop()
	w.run(30 * time.Second)
	has(a, 2)
	has(c, 10)
	cordon(c, true) // all that are left
	c.facts.Candidate = false
	c.sendFacts()
	w.run(30 * time.Second)
	has(a, 12)
	c.facts.Candidate = true
	cordon(c, false)
	w.run(30 * time.Second)
	has(c, 6)
}
