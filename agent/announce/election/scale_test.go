package election

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// TestScale counts the writes to the API server with many nodes and 500 addresses: 20 nodes in every run, 100 in a
// very long one.
func TestScale(t *testing.T) {
	const addresses = 500
	nodes := 20
	if seeds.Count(t, 1) >= 100 {
		nodes = 100
	}
	w := newWorld(1, nodes, addresses, standardRules())
	for _, m := range w.nodes {
		w.after(w.between(0, time.Second), m.start)
	}
	for w.object.view == nil || len(w.object.view.Members) < nodes {
		w.run(100 * time.Millisecond)
		if w.violation != "" || w.now > 3*time.Minute {
			t.Fatalf("%d members after %s %s", len(w.object.view.Members), w.now, w.violation)
		}
	}
	started := w.writes
	took := w.now
	w.run(time.Second)
	before := w.writes
	w.run(2 * time.Second)
	steady := w.writes - before
	holder := w.holder(address(0))
	lost := len(holder.grant.Addresses)
	before = w.writes
	holder.stop()
	died := w.now
	for len(w.unanswered()) > 0 && w.now-died < 5*time.Second {
		w.run(5 * time.Millisecond)
	}
	outage := w.now - died
	death := w.writes - before
	raw, err := w.object.view.Encode()
	if err != nil || w.violation != "" || len(w.unanswered()) > 0 {
		t.Fatal(err, w.violation, w.unanswered())
	}
	if started > 2*nodes || steady > 0 || death != 1 {
		t.Errorf("%d writes at the start, %d without a fault, %d for a death; want at most %d, none and one",
			started, steady, death, 2*nodes)
	}
	_, _ = fmt.Fprintf(t.Output(),
		"figure announcer_nodes %d nodes\nfigure announcer_api_writes_start %d writes\nfigure announcer_start %.1f "+
			"s\nfigure announcer_api_writes_steady_minute %d writes\nfigure announcer_api_writes_node_dead %d "+
			"writes\nfigure announcer_addresses_moved_node_dead %d addresses\nfigure "+
			"announcer_outage_node_dead_at_scale %d ms\nfigure announcer_view_size %d bytes\n", nodes, started,
		took.Seconds(), 30*steady, death, lost, outage.Milliseconds(), len(raw))
}

// BenchmarkStep handles a heartbeat in a view of 100 members and 500 addresses.
func BenchmarkStep(b *testing.B) {
	const nodes, addresses = 100, 500
	c := New(Config{Node: "node-0", Boot: 1, First: 1})
	v := &View{Number: 1, Changed: 1, Members: names(nodes), Owners: owners(nodes, addresses)}
	random := rand.New(rand.NewPCG(1, 1))
	acks := make([]Ack, 0, nodes)
	for i := range nodes {
		acks = append(acks, Ack{IDOf(v.Members[i]), 7})
	}
	slices.SortFunc(acks, func(a, b Ack) int { return cmp.Compare(a.Node, b.Node) })
	c.Step(0, Facts{Link: true, Candidate: true})
	c.Step(0, Read{Found: true, View: v, Version: "1", Asked: true})
	now := time.Duration(0)
	sequence := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		now += time.Millisecond
		sequence++
		from := v.Members[1+random.IntN(nodes-1)]
		c.Step(now, Heard{&Heartbeat{Node: from, Boot: 1, Sequence: sequence, Number: 1, Seen: 1, Flags: Candidate,
			Acks: acks}})
	}
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("node-%03d", i))
	}
	all[0] = "node-0"
	return all
}

func owners(nodes, addresses int) map[netip.Addr]Owner {
	all := names(nodes)
	of := map[netip.Addr]Owner{}
	for i := range addresses {
		of[address(i)] = Owner{Node: all[i%nodes], Epoch: 1}
	}
	return of
}
