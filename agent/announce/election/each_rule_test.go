package election

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestPromisesOutliveAgents: what a node has seen counts on after its agent was started again.
func TestPromisesOutliveAgents(t *testing.T) {
	e := member(t)
	hear(e, "node-b", 1, asIs)
	p := hear(e, "node-b", 1, func(h *Heartbeat) {
		h.Boot = 8
		h.Number = 0
		h.Seen = 0
	})
	if p.last.Boot != 8 || p.seen != 10 {
		t.Errorf("run %d has seen view %d, want run 8 and what the one before had seen", p.last.Boot, p.seen)
	}
}

// TestAfterAStandstill: a process that stood still does not know that others were silent.
func TestAfterAStandstill(t *testing.T) {
	e := member(t)
	b := IDOf("node-b")
	hear(e, "node-b", 1, asIs)
	e.Step(e.now+time.Minute, Tick{})
	if e.silent(b) {
		t.Error("node-b counts as silent, because this process stood still")
	}
	for range 4 {
		e.Step(e.now+100*time.Millisecond, Tick{})
	}
	if !e.silent(b) {
		t.Error("node-b does not count as silent, and was not heard for longer than the suspect timeout since then")
	}
}

// TestOldAcknowledgements: only one of the last heartbeats can be acknowledged, not another one in the same place.
func TestOldAcknowledgements(t *testing.T) {
	for age, counts := range map[uint32]bool{0: true, 5: true, 32: false, 64: false} {
		e := member(t)
		newest := uint32(e.sequence)
		p := hear(e, "node-b", 1, func(h *Heartbeat) { h.Acks = []Ack{{e.id, newest - age}} })
		if got := p.ackedAt != never; got != counts {
			t.Errorf("an acknowledgement of the heartbeat %d before the newest counts: %t, want %t", age, got, counts)
		}
	}
}

// give adopts a view that gives the address to a node.
func give(e *Election, number uint64, owner Owner) {
	next := *e.view
	next.Number = number
	next.Owners = map[netip.Addr]Owner{decided: owner}
	e.adopt(&next, "2")
}

// TestAddressThatCameBack: a node that did not see that its address was given to another one and back waits like any
// other new owner.
func TestAddressThatCameBack(t *testing.T) {
	for epoch, keeps := range map[uint64]bool{11: true, 13: false} {
		e := member(t)
		give(e, 11, Owner{Node: "node-a", Epoch: 11})
		e.owned[decided].answering = true
		give(e, 13, Owner{Node: "node-a", Epoch: epoch, Before: []string{"node-b"}})
		if got := e.owned[decided].answering; got != keeps {
			t.Errorf("given by view %d: answers %t, want %t", epoch, got, keeps)
		}
	}
}

// handing is a node that answers for an address until its successor asks.
func handing(t *testing.T) *Election {
	t.Helper()
	e := member(t)
	e.lease = e.now + 290*time.Millisecond
	e.draining[decided] = draining{until: e.now + 100*time.Millisecond, successor: "node-b"}
	e.view.Owners[decided] = Owner{Node: "node-b", Epoch: 10}
	e.stale = true
	return e
}

// TestHandedOverAddresses: an address that is handed over is answered for no longer than until the successor asks, the
// lease of the old view ends or a later agent of this node begins.
func TestHandedOverAddresses(t *testing.T) {
	e := handing(t)
	if g := e.grant(); !slices.Contains(g.Addresses, decided) || g.Until != e.now+100*time.Millisecond {
		t.Errorf("answers for %s until %s, want %s for 100 ms", g.Addresses, g.Until-e.now, decided)
	}
	e.duplicateAt = e.now
	if g := e.grant(); g.Until > e.now {
		t.Errorf("answers for %s beside a later agent of the same name", g.Addresses)
	}
	e = handing(t)
	hear(e, "node-b", 1, func(h *Heartbeat) { h.Wants = []netip.Addr{decided} })
	_, released := e.wantedAndReleased()
	if _, kept := e.draining[decided]; kept || !slices.Contains(released, decided) {
		t.Errorf("after the successor has asked: kept %t, released %s", kept, released)
	}
}

// TestBegin: an agent that stood by does not use what the members promised before it began: it may have been to
// another.
func TestBegin(t *testing.T) {
	e := member(t)
	e.facts.Standby = true
	e.marks = []mark{{10, 0}}
	hear(e, "node-b", 1, asIs)
	e.Step(e.now, Facts{Link: true, Candidate: true, Known: true})
	if got := e.stable(); got != 0 {
		t.Errorf("view %d has settled, although this agent has just begun", got)
	}
}

// TestEqualIDs: a node whose name has the ID of a member is no node for the others, whichever was heard first.
func TestEqualIDs(t *testing.T) {
	const known, other = "liquid", "costarring"
	if IDOf(known) != IDOf(other) {
		t.Fatal("the IDs differ")
	}
	for name, heard := range map[string]string{"the member first": known, "the other first": other, "none": ""} {
		e := member(t)
		if heard != "" {
			hear(e, heard, 1, asIs)
		}
		next := *e.view
		next.Number = 11
		next.Members = []string{known, "node-a"}
		e.adopt(&next, "2")
		if p := hear(e, other, 2, asIs); p != nil && p.name == other {
			t.Errorf("heard %s: %s counts as %s", name, other, known)
		}
		if p := hear(e, known, 2, asIs); p == nil || p.name != known {
			t.Errorf("heard %s: the member does not count: %+v", name, p)
		}
	}
}

// TestMutual: a node joins only if a majority of the members hears it, and it hears them.
func TestMutual(t *testing.T) {
	d := IDOf("node-d")
	for name, tc := range map[string]struct {
		byB, byC, hears bool
		want            bool
	}{
		"by all":              {true, true, true, true},
		"by a majority":       {false, true, true, true},
		"by this one":         {false, false, true, false},
		"it hears no other":   {true, true, false, false},
		"by no one, and none": {false, false, false, false},
	} {
		e := member(t)
		acknowledge := func(is bool) func(h *Heartbeat) {
			return func(h *Heartbeat) {
				if is {
					h.Acks = append(h.Acks, Ack{d, 9})
				}
			}
		}
		hear(e, "node-b", 1, sorted(acknowledge(tc.byB)))
		hear(e, "node-c", 1, sorted(acknowledge(tc.byC)))
		p := hear(e, "node-d", 1, sorted(func(h *Heartbeat) {
			if tc.hears {
				h.Acks = append(h.Acks, Ack{IDOf("node-b"), 9}, Ack{IDOf("node-c"), 9})
			}
		}))
		if got := e.mutual(p); got != tc.want {
			t.Errorf("heard %s: %t, want %t", name, got, tc.want)
		}
	}
}

// sorted sorts what a heartbeat acknowledges after a change.
func sorted(change func(*Heartbeat)) func(*Heartbeat) {
	return func(h *Heartbeat) {
		change(h)
		slices.SortFunc(h.Acks, func(a, b Ack) int { return int(int64(a.Node) - int64(b.Node)) })
	}
}

// TestNoEvenLoadsInHoldDown: an address is not moved for even loads to a node that has failed lately.
func TestNoEvenLoadsInHoldDown(t *testing.T) {
	for _, inHoldDown := range []bool{false, true} {
		e := member(t)
		for i := range 4 {
			e.view.Owners[address(i)] = Owner{Node: "node-a", Epoch: 10}
		}
		e.addresses = e.view.addresses()
		for _, name := range []string{"node-b", "node-c"} {
			hear(e, name, 1, func(h *Heartbeat) {
				if inHoldDown {
					h.Flags |= HoldDown
				}
			})
		}
		if _, _, ok := e.rebalancing(); ok == inHoldDown {
			t.Errorf("in hold-down %t: an address is moved: %t", inHoldDown, ok)
		}
	}
}

// TestListsOlderThanTheView: a list of the addresses that was requested before the view changed decides nothing.
func TestListsOlderThanTheView(t *testing.T) {
	for asOf, want := range map[time.Duration]bool{
		500 * time.Millisecond: false, 700 * time.Millisecond: true, 900 * time.Millisecond: true,
	} {
		e := member(t)
		e.listing.asOf = asOf
		e.balance.changedAt = 600 * time.Millisecond
		if got := e.isListed(never); got != want {
			t.Errorf("a list of %s may be used: %t, want %t", asOf, got, want)
		}
	}
}
