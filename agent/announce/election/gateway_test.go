package election

import (
	"fmt"
	"testing"
	"time"
)

// TestGatewayIsNotFlooded: a member that is silent and cannot be removed, because the gateway answers no node, makes
// the nodes ask it at most five times a second in all.
func TestGatewayIsNotFlooded(t *testing.T) {
	for _, nodes := range []int{3, 20} {
		w := newWorld(1, nodes, 1, standardRules())
		if nodes == 3 && w.stabilize() == nil {
			t.Fatal("not stable")
		}
		for _, m := range w.nodes {
			m.start()
		}
		for range 60 {
			if w.object.view == nil || len(w.object.view.Members) < nodes {
				w.run(time.Second)
			}
		}
		for _, m := range w.nodes {
			m.noGateway = true
		}
		w.nodes[0].stop()
		w.run(time.Minute)
		before := w.asked
		w.run(time.Minute)
		rate := float64(w.asked-before) / 60
		if rate > 5 || rate == 0 || !w.object.view.has(w.nodes[0].name) {
			t.Errorf("%d nodes ask %.1f times a second; want some, and at most 5; members %q", nodes, rate,
				w.object.view.Members)
		}
		_, _ = fmt.Fprintf(t.Output(), "figure announcer_gateway_asked_%d_nodes %.1f requests a second\n", nodes, rate)
	}
}
