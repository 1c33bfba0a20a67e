package election

import "testing"

// TestHeld: a node whose agent has just started takes only what no other can, unless the agent before had handed over
// its addresses. After a while that is no excuse for not having been ready.
func TestHeld(t *testing.T) {
	for name, before := range map[string]Flags{"failed": Candidate, "left": Leaving} {
		e := member(t)
		left := before.Has(Leaving)
		hear(e, "node-b", 1, func(h *Heartbeat) { h.Flags = before })
		p := hear(e, "node-b", 2, func(h *Heartbeat) {
			h.Boot++
			h.Flags = Candidate | Held
		})
		if e.held(p) == left {
			t.Errorf("%s: held %t when its agent has just started", name, e.held(p))
		}
		e.now += e.rules.holdDown
		if !e.held(p) {
			t.Errorf("%s: it is not ready again and again, and not held", name)
		}
	}
}

// TestHeldNodesDecideLast: a node that is held leaves changes to the others, and the others do not wait for it.
func TestHeldNodesDecideLast(t *testing.T) {
	for _, subject := range []string{"tend", "add", "remove/node-d", "rebalance"} {
		e := member(t)
		e.holdDown.until = 0
		hear(e, "node-b", 1, func(h *Heartbeat) { h.Flags |= Held })
		hear(e, "node-c", 1, func(h *Heartbeat) { h.Flags |= Held })
		if n := e.rank(subject); n != 0 {
			t.Errorf("%s: %d held nodes come before one that is not", subject, n)
		}
		e.holdDown.until = e.now + 1
		hear(e, "node-b", 2, asIs)
		hear(e, "node-c", 2, asIs)
		if n := e.rank(subject); n != 2 {
			t.Errorf("%s: %d nodes come before one that is held, want both", subject, n)
		}
	}
}
