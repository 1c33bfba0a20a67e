package membership

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// disappear makes the API answer 404 for every block by its ID.
func (w *world) disappear() {
	w.t.Helper()
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodGet, Path: blocksPath + "/*", Action: pnapsim.FaultStatus,
		Status: http.StatusNotFound, Times: -1}); err != nil {
		w.t.Fatal(err)
	}
}

// While the network has the node block, or the index names one that was just bought, none is bought in its place and
// its purchase stays recorded, though neither the list nor its ID shows it. Servers go on joining when it can be read
// again.
func TestNoSecondNodeBlockWhileTheFirstExists(t *testing.T) {
	for name, until := range map[string]func(*world) bool{
		"in the network": func(w *world) bool { return w.member(0) == "203.0.113.2 assigned" },
		"in the index":   func(w *world) bool { return w.purchases() > 0 && w.recorded() != "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldOf(t, lagging(never), seedOf(2, "", ownedBy), nil)
			w.node(0, true)
			w.node(1, false)
			w.start()
			for !until(w) {
				again, _ := w.sync()
				w.sim.Advance(again)
			}
			bought := w.recorded()
			w.disappear()
			w.selectNode(1, true)
			w.run(30 * time.Minute)
			w.expectPurchases(1)
			if got := w.recorded(); got != bought {
				t.Errorf("block %q is recorded, was %s", got, bought)
			}
			w.sim.Disarm()
			w.run(10 * time.Minute)
			w.expectPurchases(1)
			w.expectMember(0, "203.0.113.2 assigned")
			w.expectMember(1, "203.0.113.3 assigned")
		})
	}
}

// The same holds when the record of the purchase is lost, and only a list, the index or the network names the block.
func TestNoSecondNodeBlockWithoutARecord(t *testing.T) {
	for name, lag := range map[string]time.Duration{"listed": 0, "not listed": never} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldOf(t, lagging(lag), seedOf(2, "", ownedBy), nil)
			w.node(0, true)
			w.node(1, false)
			w.start()
			w.run(10 * time.Minute)
			w.expectMember(0, "203.0.113.2 assigned")
			w.disappear()
			w.loseRecord()
			w.selectNode(1, true)
			w.run(30 * time.Minute)
			w.expectPurchases(1)
			w.sim.Disarm()
			w.run(10 * time.Minute)
			w.expectPurchases(1)
			w.expectMember(1, "203.0.113.3 assigned")
		})
	}
}

// A configured node block that only the network shows is not reported as missing. The address of a server that leaves
// stays allocated until its block can be read again.
func TestConfiguredNodeBlockOfTheNetworkIsNotGone(t *testing.T) {
	w := newWorldOf(t, lagging(never), seedOf(2, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.node(1, false)
	w.start()
	w.run(5 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	w.disappear()
	w.selectNode(1, true)
	w.selectNode(0, false)
	for range 30 { // what a pass cannot do it reports as an error
		_, _ = w.sync()
		w.sim.Advance(time.Minute)
	}
	if held := w.heldBy(serverID(0)); held != "203.0.113.2" {
		t.Errorf("the ledger gives %q to the server that left", held)
	}
	w.sim.Disarm()
	w.run(30 * time.Minute)
	w.expectMember(0, "none")
	w.expectMember(1, "203.0.113.3 assigned")
	if held := w.heldBy(serverID(0)); held != "" {
		t.Errorf("the ledger still gives %q to the server that left", held)
	}
	for len(w.events.Events) > 0 {
		if event := <-w.events.Events; strings.Contains(event, ReasonNodeBlockUnavailable) {
			t.Errorf("event %s", event)
		}
	}
}

// heldBy returns the address that the ledger of the configured block gives to a server.
func (w *world) heldBy(server string) string {
	w.t.Helper()
	ledger, err := w.manager.config.Ledgers.Get(w.t.Context(), simtest.NodeBlockID)
	if err != nil {
		w.t.Fatal(err)
	}
	for address, holder := range ledger.Held {
		if holder.Name == server {
			return address.String()
		}
	}
	return ""
}
