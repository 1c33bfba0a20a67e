package election

import (
	"fmt"
	"testing"
	"time"
)

// examined is node-a after it learned something about node-b at each of some times.
func examined(t *testing.T, at []time.Duration, evidence func(i int) Evidence) *Election {
	t.Helper()
	e := member(t)
	for i, when := range at {
		for e.now < when {
			e.Step(e.now+100*time.Millisecond, Tick{})
		}
		e.examinations.askedAt = e.now
		e.Step(e.now, Examined{"node-b": evidence(i)})
	}
	return e
}

// TestOff: a member counts as off when someone says so, or when for 40 s everything says so.
func TestOff(t *testing.T) {
	often := []time.Duration{5 * time.Second, 20 * time.Second, 35 * time.Second, 46 * time.Second}
	dead := func(int) Evidence { return Evidence{Renewal: "1"} }
	for name, tc := range map[string]struct {
		at       []time.Duration
		evidence func(i int) Evidence
		later    func(e *Election)
		want     bool
	}{
		"declared":                   {often[:1], func(int) Evidence { return Evidence{Off: true} }, nil, true},
		"not for long enough":        {often[:3], dead, nil, false},
		"for long enough":            {often, dead, nil, true},
		"examined once":              {often[3:], dead, nil, false},
		"the Lease was renewed":      {often, func(i int) Evidence { return Evidence{Renewal: string(rune('1' + i/2))} }, nil, false},
		"the Lease is valid longer":  {often, func(int) Evidence { return Evidence{Renewal: "1", Duration: time.Minute} }, nil, false},
		"the Lease is valid shorter": {often[:3], func(int) Evidence { return Evidence{Renewal: "1", Duration: time.Second} }, nil, false},
		"there is no Lease":          {often, func(int) Evidence { return Evidence{} }, nil, false},
		"an address is claimed":      {often, func(i int) Evidence { return Evidence{Renewal: "1", Claimed: i == 1} }, nil, false},
		"it was heard":               {often, dead, func(e *Election) { hear(e, "node-b", 1, asIs) }, false},
		"it was heard a while ago": {often, dead, func(e *Election) {
			p := hear(e, "node-b", 1, asIs)
			p.at -= 30 * time.Second
		}, false},
		"an old heartbeat was dropped": {often, dead, func(e *Election) {
			p := hear(e, "node-b", 1, asIs)
			p.at = never
			p.replaySuspectAt = e.now - time.Second
		}, false},
		"the evidence is old":      {often, dead, func(e *Election) { e.now += 20 * time.Second }, false},
		"this process stood still": {often, dead, func(e *Election) { e.resumed = e.now - 10*time.Second }, false},
	} {
		e := examined(t, tc.at, tc.evidence)
		if tc.later != nil {
			tc.later(e)
		}
		if got := e.off(IDOf("node-b")); got != tc.want {
			t.Errorf("%s: off %t, want %t", name, got, tc.want)
		}
	}
}

// TestExaminers: a member is examined when it has been silent for a while, again and again, more and more rarely, and
// by few nodes.
func TestExaminers(t *testing.T) {
	e := member(t)
	asked := []time.Duration{}
	for e.now < 4*time.Minute {
		out := e.Step(e.now+100*time.Millisecond, Tick{})
		if out.Examine == nil {
			continue
		}
		if _, found := out.Examine["node-b"]; !found || len(out.Examine) != 2 {
			t.Fatalf("asks about %v, want the two silent members", out.Examine)
		}
		asked = append(asked, e.now)
		e.Step(e.now, Examined{})
	}
	if len(asked) < 30 || len(asked) > 50 || asked[0] > 3*time.Second {
		t.Errorf("asked %d times, first after %s", len(asked), asked[0])
	}
	if last := asked[len(asked)-1] - asked[len(asked)-2]; last != e.rules.examineEveryMax {
		t.Errorf("in the end it asks every %s, want %s", last, e.rules.examineEveryMax)
	}
}

// TestExaminationsAreBounded: of many silent members a node examines some at a time, each as often as the others, and
// none while the gateway does not answer.
func TestExaminationsAreBounded(t *testing.T) {
	for _, connected := range []bool{true, false} {
		e := member(t)
		next := *e.view
		next.Number = 11
		next.Members = []string{"node-a"}
		for i := range 60 {
			next.Members = append(next.Members, fmt.Sprintf("node-b%02d", i))
		}
		e.adopt(&next, "2")
		e.facts.HasGateway = true
		times := map[string]int{}
		for e.now < 15*time.Second {
			if connected {
				e.Step(e.now, Gateway{})
			}
			out := e.Step(e.now+100*time.Millisecond, Tick{})
			if len(out.Examine) > maxExamined {
				t.Fatalf("%d members are examined at once", len(out.Examine))
			}
			if out.Examine == nil {
				continue
			}
			answer := Examined{}
			for name := range out.Examine {
				times[name]++
				answer[name] = Evidence{Renewal: "1"}
			}
			e.Step(e.now, answer)
		}
		most := 0
		for _, n := range times {
			most = max(most, n)
		}
		if all := len(times) == 60; all != connected || most > 2 {
			t.Errorf("connected %t: %d of 60 members were examined, up to %d times", connected, len(times), most)
		}
	}
}

// lapsed is a member that had no majority for long, and now hears the others.
func lapsed(t *testing.T) *Election {
	t.Helper()
	e := member(t)
	for e.now < 30*time.Second {
		e.Step(e.now+100*time.Millisecond, Tick{})
	}
	if !e.lapse.is || !e.flags().Has(Lapsed) {
		t.Fatal("no majority was heard for 30 s, and nothing has lapsed")
	}
	return e
}

// answer has a node acknowledge the newest heartbeat of this one.
func answer(e *Election) func(*Heartbeat) {
	return func(h *Heartbeat) { h.Acks = []Ack{{e.id, uint32(e.sequence)}} }
}

// TestLapse: a node that had no majority for long supports no node, itself included, before it has read the view, or
// all members have answered it.
func TestLapse(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(e *Election)
		want bool // lapsed
	}{
		"nothing":            {func(*Election) {}, true},
		"one member answers": {func(e *Election) { hear(e, "node-b", 2, answer(e)) }, true},
		"all members answer": {func(e *Election) { hear(e, "node-b", 2, answer(e)); hear(e, "node-c", 2, answer(e)) }, false},
		"of old heartbeats":  {func(e *Election) { hear(e, "node-b", 2, asIs); hear(e, "node-c", 2, asIs) }, true},
		"one knows an older one": {func(e *Election) {
			hear(e, "node-b", 2, answer(e))
			hear(e, "node-c", 2, func(h *Heartbeat) { answer(e)(h); h.Number = 9 })
		}, true},
		"a watch shows a newer view": {func(e *Election) {
			next := *e.view
			next.Number++
			e.Step(e.now, Read{Found: true, View: &next, Version: "3"})
		}, true},
		"it has written the view": {func(e *Election) {
			next := *e.view
			next.Number++
			e.api.requestedAt = e.now
			e.Step(e.now, Wrote{View: &next, Version: "3"})
		}, false},
		"it has read the view":        {func(e *Election) { e.api.knownAt = e.now; e.Step(e.now, Tick{}) }, false},
		"it has read the view before": {func(e *Election) { e.api.knownAt = e.now - time.Second; e.Step(e.now, Tick{}) }, true},
	} {
		e := lapsed(t)
		hear(e, "node-b", 1, asIs)
		hear(e, "node-c", 1, asIs)
		e.Step(e.now+100*time.Millisecond, Tick{})
		tc.then(e)
		if e.lapse.is != tc.want {
			t.Errorf("%s: lapsed %t, want %t", name, e.lapse.is, tc.want)
		}
		if e.lapse.is && (e.lease > e.now || !e.api.readWanted && !e.api.inFlight) {
			t.Errorf("%s: it answers until %s, or does not ask for the view", name, e.lease)
		}
	}
}

// TestLapsedSupporters: what a node acknowledges that had no majority for long gives no lease.
func TestLapsedSupporters(t *testing.T) {
	for _, is := range []bool{false, true} {
		e := member(t)
		p := hear(e, "node-b", 1, func(h *Heartbeat) {
			answer(e)(h)
			if is {
				h.Flags |= Lapsed
			}
		})
		if supports := p.ackedAt != never; supports == is {
			t.Errorf("lapsed %t: supports %t", is, supports)
		}
	}
}

// TestMajorityOff: without a majority by the view, and by the one before, members that are off are removed at once.
func TestMajorityOff(t *testing.T) {
	off := func(e *Election, names ...string) {
		for _, name := range names {
			e.examinations.members[IDOf(name)] = examination{off: true, asOf: e.now}
		}
	}
	remove := func(e *Election) {
		e.view.Members = []string{"node-a", "node-b"}
		e.members = []ID{e.id, IDOf("node-b")}
		e.view.Joined = ""
		e.view.Removed = "node-c"
		e.seen = 0
	}
	join := func(e *Election) {
		e.view.Members = append(e.view.Members, "node-d")
		e.view.Joined = "node-d"
		e.members = append(e.members, IDOf("node-d"))
	}
	for name, tc := range map[string]struct {
		change func(e *Election)
		want   bool
	}{
		"none is off": {func(*Election) {}, false},
		"one is off":  {func(e *Election) { off(e, "node-b") }, false},
		"two are off": {func(e *Election) { off(e, "node-b", "node-c") }, true},
		"a majority of those before may not know of the last one": {func(e *Election) {
			join(e)
			off(e, "node-c", "node-d")
			e.seen = 0
		}, false},
		"this one knows of the last one": {func(e *Election) {
			join(e)
			off(e, "node-c", "node-d")
		}, true},
		"one that was removed last may support another": {func(e *Election) {
			remove(e)
			off(e, "node-b")
		}, false},
		"the one that was removed last is off, too": {func(e *Election) {
			remove(e)
			off(e, "node-b", "node-c")
		}, true},
	} {
		e := member(t)
		for e.now < 5*time.Second {
			e.Step(e.now+100*time.Millisecond, Tick{})
		}
		tc.change(e)
		if got := e.majorityOff(); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// TestSuccession: a node that is no member takes over only from members that someone has declared off.
func TestSuccession(t *testing.T) {
	for name, tc := range map[string]struct {
		of   map[string]examination
		want bool
	}{
		"nothing is known":     {nil, false},
		"all are declared off": {map[string]examination{"node-b": {off: true}, "node-c": {off: true}}, true},
		"one is declared off":  {map[string]examination{"node-b": {off: true}}, false},
		"all seem to be off": {map[string]examination{
			"node-b": {renewal: "1", since: -time.Hour}, "node-c": {renewal: "1", since: -time.Hour}}, false},
	} {
		e := member(t)
		next := *e.view
		next.Number = 11
		next.Members = []string{"node-b", "node-c"}
		e.adopt(&next, "2")
		for e.now < 5*time.Second {
			e.Step(e.now+100*time.Millisecond, Tick{})
		}
		for name, x := range tc.of {
			x.asOf = e.now
			e.examinations.members[IDOf(name)] = x
		}
		if got := len(e.succession()) > 0; got != tc.want {
			t.Errorf("%s: takes over %t, want %t", name, got, tc.want)
		}
	}
}

// TestLateEvidence: evidence is as old as the question, and a Lease may have been renewed just before the first answer.
func TestLateEvidence(t *testing.T) {
	e := member(t)
	for _, asked := range []time.Duration{5 * time.Second, 45 * time.Second} {
		for e.now < asked+4*time.Second {
			e.Step(e.now+100*time.Millisecond, Tick{})
		}
		e.examinations.askedAt = asked
		e.Step(e.now, Examined{"node-b": {Renewal: "1"}})
	}
	if e.off(IDOf("node-b")) {
		t.Error("node-b counts as off, and its Lease is known to be old only for 36 s")
	}
}

// TestFewExaminers: however many nodes there are, few of them examine a silent member.
func TestFewExaminers(t *testing.T) {
	w := newWorld(1, 9, 4, standardRules())
	if !w.together() {
		t.Fatal("not stable")
	}
	for _, m := range w.nodes[4:] {
		m.stop() // the kubelets live, so that no agent is removed
	}
	w.run(30 * time.Second) // until no node is in hold-down because it has just started
	for _, m := range w.nodes {
		m.examined = nil
	}
	w.run(30 * time.Second)
	n := 0
	for _, m := range w.nodes {
		if m.examined[w.nodes[8].name] > 0 {
			n++
		}
	}
	if n == 0 || n > examiners {
		t.Errorf("%d nodes examine the silent member, want 1 to %d", n, examiners)
	}
}

// TestSingleLapse: the only member asks whether others have taken over while it stood still for long.
func TestSingleLapse(t *testing.T) {
	e := member(t)
	next := *e.view
	next.Number = 11
	next.Members = []string{"node-a"}
	e.adopt(&next, "2")
	e.api.inFlight = false // an earlier change, which was made
	e.Step(e.now+100*time.Millisecond, Tick{})
	if e.lease <= e.now {
		t.Fatal("the only member does not support itself")
	}
	out := e.Step(e.now+time.Minute, Tick{})
	if !out.Read || out.Grant.Until > e.now {
		t.Errorf("reads the view: %t, answers until %s; want to read first", out.Read, out.Grant.Until-e.now)
	}
	e.Step(e.now+10*time.Millisecond, Read{Asked: true, Found: true, Version: "2", View: &next})
	if out := e.Step(e.now+10*time.Millisecond, Tick{}); out.Grant.Until <= e.now {
		t.Error("does not answer after it has read that the view is still its own")
	}
}

// TestSupportedNodesDoNotLapse: a node that a majority supports does not ask for the view.
func TestSupportedNodesDoNotLapse(t *testing.T) {
	w := newWorld(1, 3, 4, standardRules())
	if !w.together() {
		t.Fatal("not stable")
	}
	for range 60 {
		w.run(time.Second)
		for _, m := range w.nodes {
			if since := m.core.now - m.core.lapse.at; m.core.lapse.is || since > time.Second {
				t.Fatalf("%s has been without a majority for %s", m.name, since)
			}
		}
	}
}

// TestManyTurns: where many members are silent, evidence about one of them counts until its next turn.
func TestManyTurns(t *testing.T) {
	for silent, want := range map[int]bool{2: false, 20: true} {
		e := member(t)
		for e.now < time.Minute {
			e.Step(e.now+100*time.Millisecond, Tick{})
		}
		e.examinations.silent = silent
		e.examinations.members[IDOf("node-b")] = examination{off: true, asOf: e.now - 20*time.Second}
		if got := e.off(IDOf("node-b")); got != want {
			t.Errorf("%d members are silent: evidence of 20 s ago counts %t, want %t", silent, got, want)
		}
	}
}
