package election

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// These tests look at one decision each. The model shows that no two nodes answer, but at few of its seeds does the
// safety depend on one of these decisions only.

var decided = netip.MustParseAddr("203.0.113.3")

// member is the Election of node-a at one second, with the view 10 of three members, which has changed last with 9.
func member(t *testing.T) *Election {
	t.Helper()
	e := New(Config{Node: "node-a", Boot: 5, First: 1000})
	e.Step(0, Facts{Link: true, Candidate: true, Known: true})
	e.Step(0, Read{Asked: true, Found: true, Version: "1", View: &View{Number: 10, Changed: 9, Joined: "node-c",
		Members: []string{"node-a", "node-b", "node-c"}, Owners: map[netip.Addr]Owner{}}})
	for now := 100 * time.Millisecond; now <= time.Second; now += 100 * time.Millisecond {
		e.Step(now, Tick{})
	}
	if e.view == nil || e.seen != 10 || e.now != time.Second {
		t.Fatalf("view %v, seen %d, at %s", e.view, e.seen, e.now)
	}
	return e
}

// hear has a node's heartbeat heard now.
func hear(e *Election, node string, sequence uint64, change func(*Heartbeat)) *peer {
	h := &Heartbeat{Node: node, Boot: 7, Sequence: sequence, Number: 10, Seen: 10, Flags: Candidate,
		Acks: []Ack{{Node: e.id, Sequence: 2}}}
	change(h)
	e.Step(e.now, Heard{h})
	return e.peers[IDOf(node)]
}

func asIs(*Heartbeat) {}

// TestPredecessorsAreKept: an address that moves on before anyone knows that its owner got it may be answered for by
// all owners before, not only by the last one.
func TestPredecessorsAreKept(t *testing.T) {
	shared := append(make([]string, 0, 4), "node-a")
	for name, tc := range map[string]struct {
		before Owner
		marks  []mark
		want   []string
	}{
		"moved on":              {Owner{Node: "node-b", Epoch: 9, Before: shared}, nil, []string{"node-a", "node-b"}},
		"moved back and on":     {Owner{Node: "node-a", Epoch: 9, Before: shared}, nil, []string{"node-a"}},
		"no owner":              {Owner{Epoch: 9, Before: shared}, nil, []string{"node-a"}},
		"nothing is known":      {Owner{Node: "node-b", Epoch: 9}, nil, nil},
		"a majority has seen":   {Owner{Node: "node-b", Epoch: 9, Before: shared}, []mark{{9, 0}}, []string{"node-b"}},
		"seen, but too shortly": {Owner{Node: "node-b", Epoch: 9}, []mark{{9, time.Second}}, nil},
	} {
		e := member(t)
		e.marks = tc.marks
		got := e.moved(tc.before, "node-c", 11)
		if diff := cmp.Diff(tc.want, got.Before); diff != "" || got.Node != "node-c" || got.Epoch != 11 {
			t.Errorf("%s: %+v (-want +got):\n%s", name, got, diff)
		}
	}
	if extended := shared[:2]; extended[1] != "" {
		t.Errorf("the list of another view has become %v", extended)
	}
}

// TestTheFirstView: a node in another location, which never hears the others, would be the only member for good.
func TestTheFirstView(t *testing.T) {
	for name, facts := range map[string]Facts{
		"a candidate": {Link: true, Candidate: true, Known: true}, "without a link": {Candidate: true, Known: true},
		"not in the network": {Link: true, Known: true}, "a witness": {Link: true, Witness: true, Known: true},
	} {
		e := New(Config{Node: "node-a", Boot: 5, First: 1000})
		e.Step(0, facts)
		e.Step(0, Read{Asked: true})
		if got := e.rebuilding(); (len(got) > 0) != (name == "a candidate") {
			t.Errorf("%s: %d changes", name, len(got))
		}
	}
}

// TestOwnKnowledgeCounts: a node that knows of a newer view than its own takes nothing over, counts no acknowledgement,
// and does not count as a witness by the view that it has not read.
func TestOwnKnowledgeCounts(t *testing.T) {
	for _, seen := range []uint64{10, 11} {
		e := member(t)
		current := seen == 10
		e.seen = seen
		e.sent[4] = sending{sequence: 4, at: e.now}
		if p := hear(e, "node-b", 1, func(h *Heartbeat) { h.Acks[0].Sequence = 4 }); (p.ackedAt == e.now) != current {
			t.Errorf("seen %d: acknowledged at %s", seen, p.ackedAt)
		}
		own := &ownership{address: decided, epoch: 10, predecessors: []string{"node-b"}}
		e.owned[decided] = own
		e.marks = []mark{{10, 0}}
		e.lease = e.now + time.Second
		e.stale = true
		if e.takeOver(); own.answering != current {
			t.Errorf("seen %d: answers %t", seen, own.answering)
		}
		if n := e.quorum(IDOf("node-c"), []ID{e.id}, 11, false); (n == 0) != current {
			t.Errorf("seen %d: %d witnesses by view 11", seen, n)
		}
	}
}

// TestFenced: an address that another node wants by a newer view is given up, and neither taken again nor wanted.
func TestFenced(t *testing.T) {
	e := member(t)
	own := &ownership{address: decided, epoch: 9, answering: true}
	e.owned[decided] = own
	e.yieldTo(&Heartbeat{Node: "node-b", Number: 11, Seen: 11, Wants: []netip.Addr{decided}})
	if own.answering || !own.fenced || len(e.events) != 1 || e.events[0].Kind != LostOwnership {
		t.Fatalf("%+v, events %v", own, e.events)
	}
	e.marks = []mark{{10, 0}}
	e.lease = e.now + time.Second
	if e.takeOver(); own.answering {
		t.Error("it is answered for again by the older view")
	}
	wants, released := e.wantedAndReleased()
	if len(wants) != 0 || len(released) != 1 || released[0] != decided {
		t.Errorf("wants %v, released %v", wants, released)
	}
}

// TestBlockedOnlyWhenSettled: members that do not support a node block it only if it is known who the members of its
// older view are.
func TestBlockedOnlyWhenSettled(t *testing.T) {
	for _, settled := range []bool{true, false} {
		e := member(t)
		hear(e, "node-b", 1, func(h *Heartbeat) { h.Acks = []Ack{{Node: IDOf("node-c"), Sequence: Unheard}} })
		if e.marks = nil; settled {
			e.marks = []mark{{9, 0}}
		}
		if got := e.blocked(IDOf("node-c"), 10); got != settled {
			t.Errorf("settled %t: blocked %t", settled, got)
		}
	}
}

// TestSequences: two runs of an agent do not start with the same number, and none ever stands for something else.
func TestSequences(t *testing.T) {
	starts := map[uint64]uint64{}
	for boot := range uint64(1000) {
		start := New(Config{Node: "node-a", Boot: boot}).sequence
		if other, taken := starts[start]; taken || uint32(start) <= Refused {
			t.Errorf("run %d starts with %d, as run %d", boot, start, other)
		}
		starts[start] = boot
	}
	e := member(t)
	e.sequence = 1<<32 - 2
	for range 4 {
		e.now += time.Second
		h := e.heartbeat()
		if h == nil || uint32(h.Sequence) <= Refused || e.sent[uint32(h.Sequence)%uint32(len(e.sent))].at != e.now {
			t.Fatalf("heartbeat %+v", h)
		}
	}
}

// TestRebuilding: a view is made from nothing only after a time, and not while a node is heard that knows one.
func TestRebuilding(t *testing.T) {
	e := New(Config{Node: "node-a", Boot: 5, First: 1000})
	e.Step(0, Facts{Link: true, Candidate: true, Known: true})
	e.Step(0, Read{Asked: true})
	if all := e.changes(); len(all) != 1 || all[0].subject != "rebuild" || all[0].after < e.rules.cold {
		t.Fatalf("%+v, want one change after %s", all, e.rules.cold)
	}
	hear(e, "node-b", 1, asIs)
	if all := e.changes(); len(all) != 0 {
		t.Errorf("%+v although node-b knows a view", all)
	}
}

// TestOvertaken: an older heartbeat changes nothing, that of a later run does.
func TestOvertaken(t *testing.T) {
	for name, tc := range map[string]struct {
		boot, sequence uint64
		taken          bool
	}{"overtaken": {7, 4, false}, "twice": {7, 5, false}, "an earlier run": {6, 9, false}, "the next": {7, 6, true},
		"a later run": {8, 1, true}} {
		e := member(t)
		hear(e, "node-b", 5, asIs)
		p := hear(e, "node-b", tc.sequence, func(h *Heartbeat) {
			h.Boot = tc.boot
			h.Flags = Witness
		})
		if taken := p.last.Flags == Witness; taken != tc.taken {
			t.Errorf("%s: taken %t", name, taken)
		}
	}
}

// TestBehind: a member that works with an older view for a second gets no addresses, as it would not know of them.
func TestBehind(t *testing.T) {
	e := member(t)
	older := func(h *Heartbeat) { h.Number = 9 }
	hear(e, "node-b", 1, older)
	hear(e, "node-c", 1, asIs)
	if n := len(e.placer(e.view).candidates); n != 3 {
		t.Fatalf("%d candidates at first, want 3", n)
	}
	e.Step(e.now+e.rules.behind, Tick{})
	hear(e, "node-b", 2, older)
	hear(e, "node-c", 2, asIs)
	for _, c := range e.placer(e.view).candidates {
		if c.name == "node-b" {
			t.Error("node-b, which works with an older view, may get addresses")
		}
	}
	if hear(e, "node-b", 3, asIs); len(e.placer(e.view).candidates) != 3 {
		t.Error("node-b, which has caught up, gets no addresses")
	}
}

// TestRejoin: a node that was removed asks to join again only after a pause, which grows.
func TestRejoin(t *testing.T) {
	e := member(t)
	last := time.Duration(0)
	for number := uint64(11); number < 15; number += 2 {
		e.adopt(&View{Number: number, Changed: number, Removed: "node-a", Members: []string{"node-b", "node-c"}}, "2")
		pause := e.holdDown.joinAt - e.now
		if e.flags().Has(Asking) || pause < e.rules.rejoinDelay || pause <= last {
			t.Errorf("view %d: asks %t, pause %s after one of %s", number, e.flags().Has(Asking), pause, last)
		}
		if e.now += pause; !e.flags().Has(Asking) {
			t.Errorf("view %d: does not ask after %s", number, pause)
		}
		last = pause
		e.adopt(&View{Number: number + 1, Changed: number + 1, Joined: "node-a",
			Members: []string{"node-a", "node-b", "node-c"}}, "3")
	}
}
