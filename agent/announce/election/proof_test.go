package election

import (
	"net/netip"
	"testing"
	"time"
)

// These tests look at the proofs on which a takeover depends, one at a time.

// TestSettled: a view has settled when a majority has seen it for longer than a lease, also while the next one follows.
func TestSettled(t *testing.T) {
	e := member(t)
	hear(e, "node-b", 1, asIs)
	e.marks = []mark{{8, 0}, {9, 500 * time.Millisecond}, {10, 900 * time.Millisecond}}
	e.acknowledge()
	if got := e.stable(); got != 9 {
		t.Errorf("settled is view %d, want 9", got)
	}
	e.marks = []mark{{9, 900 * time.Millisecond}}
	if got := e.stable(); got != 0 {
		t.Errorf("settled is view %d, which a majority has just seen", got)
	}
}

// TestReportsOfTheDead: what a member reported before it became silent itself does not help to remove another one.
func TestReportsOfTheDead(t *testing.T) {
	for _, alive := range []bool{true, false} {
		e := member(t)
		c := IDOf("node-c")
		hear(e, "node-b", 1, func(h *Heartbeat) { h.Acks = append(h.Acks, Ack{c, Unheard}) })
		if !alive {
			e.now += e.rules.suspectTimeout
		}
		e.marks = []mark{{10, 0}}
		if got := e.removable("node-c"); got != alive {
			t.Errorf("node-b alive %t: removable %t", alive, got)
		}
	}
}

// TestAllPredecessors: a new owner waits for each node that may have answered, and forever for unknown ones.
func TestAllPredecessors(t *testing.T) {
	for name, tc := range map[string]struct {
		predecessors []string
		want         bool
	}{
		"unknown":             {nil, false},
		"stopped":             {[]string{"node-b"}, true},
		"itself":              {[]string{"node-a"}, true},
		"the first one":       {[]string{"node-b", "node-c"}, false},
		"the last one":        {[]string{"node-c", "node-b"}, false},
		"itself and the last": {[]string{"node-a", "node-c", "node-b"}, false},
	} {
		e := member(t)
		hear(e, "node-b", 1, asIs)
		if got := e.proven(&ownership{address: decided, epoch: 10, predecessors: tc.predecessors}); got != tc.want {
			t.Errorf("%s: proven %t, want %t", name, got, tc.want)
		}
	}
}

// TestStopped: a predecessor has stopped when it works by the view, hands over nothing, and says so after it saw the
// view; or when it has released the address, and has seen the view.
func TestStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Heartbeat)
		want   bool
	}{
		"works by the view": {asIs, true},
		"works by a later": {func(h *Heartbeat) {
			h.Number = 11
			h.Seen = 11
		}, true},
		"works by an earlier": {func(h *Heartbeat) { h.Number = 9 }, false},
		"hands over":          {func(h *Heartbeat) { h.Flags |= Handing }, false},
		"released it, and has seen the view": {func(h *Heartbeat) {
			h.Number = 9
			h.Released = []netip.Addr{decided}
		}, true},
		"released it, before it saw the view": {func(h *Heartbeat) {
			h.Number = 9
			h.Seen = 9
			h.Released = []netip.Addr{decided}
		}, false},
		"released another": {func(h *Heartbeat) {
			h.Number = 9
			h.Released = []netip.Addr{decided.Next()}
		}, false},
	} {
		e := member(t)
		hear(e, "node-b", 1, tc.change)
		if got := e.stopped("node-b", &ownership{address: decided, epoch: 10}); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
