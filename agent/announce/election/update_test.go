package election

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// update starts an agent beside that of a machine, as an update of the DaemonSet does, and later ends the earlier one.
func (w *world) update(m *machine, warm time.Duration) *machine {
	next := &machine{w: w, index: m.index, name: m.name, offset: m.offset, rate: m.rate, facts: m.facts, deaf: m.deaf,
		noGateway: m.noGateway, noAPI: m.noAPI, noKubelet: m.noKubelet, outdated: m.outdated}
	next.facts.Standby = true
	next.start()
	w.nodes = append(slices.Clip(w.nodes), next)
	w.after(warm, func() {
		if next.facts.Standby {
			w.replace(m, next)
		}
	})
	return next
}

// finishUpdates ends the agents beside which another one stands by.
func (w *world) finishUpdates() {
	for _, next := range w.nodes {
		for _, m := range w.nodes {
			if next.facts.Standby && m != next && m.index == next.index {
				w.replace(m, next)
			}
		}
	}
}

// replace ends an agent beside which another one stands by. One that cannot end in time is killed.
func (w *world) replace(m, next *machine) {
	w.note("%s is replaced", m.name)
	m.facts.Replaced = true
	if m.alive && !m.paused {
		m.sendFacts()
	}
	if !m.alive || m.paused {
		m.stop()
	}
	next.facts.Standby = false
	if next.alive {
		next.sendFacts()
	}
}

// remove removes an agent that was replaced.
func (w *world) remove(m *machine) {
	m.gone = true
	w.nodes = slices.DeleteFunc(slices.Clone(w.nodes), func(other *machine) bool { return other == m })
}

// moved returns how many addresses moved since a state of the moves, and the most that one of them did.
func (w *world) movedSince(before map[string]int) (moves, most int) {
	for a, n := range w.moves {
		n -= before[a.String()]
		moves += n
		most = max(most, n)
	}
	return moves, most
}

func (w *world) movesNow() map[string]int {
	now := map[string]int{}
	for a, n := range w.moves {
		now[a.String()] = n
	}
	return now
}

// loads returns how many addresses the nodes have, the most first.
func (w *world) loads() []int {
	by := map[string]int{}
	for _, m := range w.nodes {
		by[m.name] = 0
	}
	for _, owner := range w.object.view.Owners {
		by[owner.Node]++
	}
	loads := slices.Sorted(maps.Values(by))
	slices.Reverse(loads)
	return loads
}

// TestUpdate: an update of the agents of all nodes, one after the other, moves no address and writes nothing. While the
// lease of the earlier agent ends and that of the next begins, an address is silent for a moment.
func TestUpdate(t *testing.T) {
	const addresses = 30
	moves := 0
	writes := 0
	var silent time.Duration
	for _, nodes := range []int{1, 2, 3, 5} {
		for seed := range uint64(5) {
			w := newWorld(seed, nodes, addresses, standardRules())
			w.keepLog = true
			if w.stabilize() == nil {
				t.Fatalf("%d nodes, seed %d: not stable", nodes, seed)
			}
			w.run(10 * time.Second)
			before := w.movesNow()
			wrote := w.writes
			for i := range nodes {
				w.update(w.nodes[slices.IndexFunc(w.nodes, func(m *machine) bool { return m.index == i })],
					w.between(2*time.Second, 20*time.Second))
				silent = max(silent, w.watch(25*time.Second))
			}
			moved, _ := w.movedSince(before)
			moves += moved
			writes += w.writes - wrote
			if w.violation != "" || len(w.nodes) != nodes {
				t.Fatalf("%d nodes, seed %d: %d agents %s\n%s", nodes, seed, len(w.nodes), w.violation, w.tail())
			}
		}
	}
	if moves > 0 || writes > 0 || silent > 50*time.Millisecond {
		t.Errorf("%d moves, %d writes, silent for %s; want none, none, and at most 50 ms", moves, writes, silent)
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_update_moves %d moves\nfigure announcer_update_writes %d writes\n"+
		"figure announcer_update_silent %d ms\n", moves, writes, silent.Milliseconds())
}

// TestRebalancing: which address is moved, and to which node, when the loads differ by more than one.
func TestRebalancing(t *testing.T) {
	for name, tc := range map[string]struct {
		owners string // of the addresses in order, by the last letter of the node
		hear   map[string]func(*Heartbeat)
		want   string // the address by its number, and the node
	}{
		"even":                         {owners: "abc", want: ""},
		"a difference of one":          {owners: "aabc", want: ""},
		"to the node with the fewest":  {owners: "aaab", want: "2 node-c"},
		"from the node with the most":  {owners: "aabbb", want: "4 node-c"},
		"the one that was moved last":  {owners: "aaa", want: "2 node-b"},
		"not to one in hold-down":      {owners: "aaab", hear: flagged("node-c", Candidate|HoldDown), want: "2 node-b"},
		"not to a witness":             {owners: "aaabb", hear: flagged("node-c", Witness), want: ""},
		"not to one that hands over":   {owners: "aaa", hear: flagged("node-c", Candidate|Leaving), want: "2 node-b"},
		"not what the node cannot do":  {owners: "aaa", hear: unfit("node-b,node-c", 0b100), want: "1 node-b"},
		"nothing that any node can do": {owners: "aaa", hear: unfit("node-b,node-c", 0b111), want: ""},
	} {
		e := member(t)
		v := e.view.next()
		for i, letter := range tc.owners {
			v.Owners[address(i)] = Owner{Node: "node-" + string(letter), Epoch: uint64(i)}
		}
		e.adopt(v, "2")
		e.holdDown.until = 0
		for _, node := range []string{"node-b", "node-c"} {
			hear(e, node, 1, func(h *Heartbeat) {
				h.Number = v.Number
				h.Seen = v.Number
				if change := tc.hear[node]; change != nil {
					change(h)
				}
			})
		}
		got := ""
		if a, to, ok := e.rebalancing(); ok {
			got = fmt.Sprintf("%d %s", slices.Index(e.addresses, a), to)
		}
		if got != tc.want {
			t.Errorf("%s: moves %q, want %q", name, got, tc.want)
		}
	}
}

func flagged(node string, flags Flags) map[string]func(*Heartbeat) {
	return map[string]func(*Heartbeat){node: func(h *Heartbeat) { h.Flags = flags }}
}

func unfit(nodes string, bitmap byte) map[string]func(*Heartbeat) {
	all := map[string]func(*Heartbeat){}
	for node := range strings.SplitSeq(nodes, ",") {
		all[node] = func(h *Heartbeat) { h.Unfit = []byte{bitmap} }
	}
	return all
}

// TestCalm: an address is moved only a while after the last move and the last change, when all members work with the
// view and nothing is wrong, and never where this is switched off.
func TestCalm(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Election)
		want   bool
	}{
		"calm":                   {func(*Election) {}, true},
		"off":                    {func(e *Election) { e.rules.rebalance = 0 }, false},
		"moved lately":           {func(e *Election) { e.balance.movedAt = e.now - time.Minute + 1 }, false},
		"changed lately":         {func(e *Election) { e.balance.changedAt = e.now - e.rules.calm + 1 }, false},
		"nothing found lately":   {func(e *Election) { e.balance.after = e.now + 1 }, false},
		"a member is silent":     {func(e *Election) { delete(e.peers, IDOf("node-b")) }, false},
		"a member is leaving":    {func(e *Election) { hear(e, "node-b", 9, func(h *Heartbeat) { h.Flags |= Leaving }) }, false},
		"a member has no API":    {func(e *Election) { hear(e, "node-b", 9, func(h *Heartbeat) { h.Flags |= NoAPI }) }, false},
		"a member is behind":     {func(e *Election) { hear(e, "node-b", 9, func(h *Heartbeat) { h.Number = 9 }) }, false},
		"not seen by all so far": {func(e *Election) { e.marks = nil }, false},
	} {
		e := member(t)
		e.rules.rebalance = time.Minute
		e.now = 2 * time.Minute
		for _, node := range []string{"node-b", "node-c"} {
			hear(e, node, 1, asIs)
		}
		e.marks = []mark{{10, 0}}
		tc.change(e)
		if got := e.isCalm(); got != tc.want {
			t.Errorf("%s: calm %t, want %t", name, got, tc.want)
		}
	}
}

// TestRollingReboot: in a rolling reboot each reboot moves each address of the node once. Afterwards the loads become
// even within ten minutes, by at most one move in a minute, and stay as they are.
func TestRollingReboot(t *testing.T) {
	const nodes, addresses = 3, 30
	most := 0
	total := 0
	uneven := 0
	rate := 0
	rules := standardRules()
	rules.rebalance = time.Minute
	for seed := range uint64(10) {
		down := time.Minute
		up := 15 * time.Second
		if seed%2 == 1 { // the next node reboots when the last one has just come back
			down = 4 * time.Second
			up = 5 * time.Second
		}
		w := newWorld(seed, nodes, addresses, rules)
		w.keepLog = true
		if w.stabilize() == nil {
			t.Fatalf("seed %d: not stable", seed)
		}
		w.run(10 * time.Second)
		start := w.movesNow()
		for _, m := range w.nodes {
			before := w.movesNow()
			m.facts.Leaving = true
			m.sendFacts()
			w.run(down)
			m.start()
			w.run(up)
			_, once := w.movedSince(before)
			most = max(most, once)
		}
		moved, _ := w.movedSince(start)
		total = max(total, moved)
		t.Logf("seed %d: %d moves, loads %v", seed, moved, w.loads())
		for range 10 {
			before := w.movesNow()
			w.run(time.Minute - up/10) // the last node came back a moment ago
			inMinute, _ := w.movedSince(before)
			rate = max(rate, inMinute)
		}
		loads := w.loads()
		uneven = max(uneven, loads[0]-loads[nodes-1])
		start = w.movesNow()
		w.run(10 * time.Minute)
		if more, _ := w.movedSince(start); more > 0 {
			t.Errorf("seed %d: %d moves though the loads were %v", seed, more, loads)
		}
		if silent := w.unanswered(); w.violation != "" || len(silent) > 0 {
			t.Fatalf("seed %d: %s, silent %v", seed, w.violation, silent)
		}
	}
	if most != 1 || uneven > 1 || rate > 1 {
		t.Errorf("an address moved %d times in one reboot, %d addresses in one minute of the calm, and after ten the "+
			"loads differ by %d; want 1, 1 and at most 1", most, rate, uneven)
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_reboot_moves_per_address %d moves\n"+
		"figure announcer_rolling_reboot_moves %d moves\nfigure announcer_loads_after_calm_difference %d addresses\n"+
		"figure announcer_calm_moves_per_minute %d moves\n", most, total, uneven, rate)
}
