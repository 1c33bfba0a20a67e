package reconcile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
)

// oneQuarantined fills the first block of the pool, releases one of its addresses, which is quarantined for a while:
// nothing is reported by agents. It returns how long the first Service of the pool took from its purchase to its
// address.
func (w *world) oneQuarantined(during time.Duration) (bought time.Duration) {
	w.t.Helper()
	w.service("gone", inPool())
	bought = w.settle("gone")
	for i := range 4 {
		name := fmt.Sprint("web", i)
		w.service(name, inPool())
		w.settle(name)
	}
	w.delete("gone")
	w.settle("gone")
	w.clock.Advance(during)
	w.refresh()
	return bought
}

// TestBuysRatherThanWaitForARestingAddress: while a block may be bought, an address in quarantine delays a Service by
// half a minute at the most, which is for agents to report that it is silent.
func TestBuysRatherThanWaitForARestingAddress(t *testing.T) {
	for _, rested := range []time.Duration{0, time.Minute, 5 * time.Minute, 9 * time.Minute} {
		t.Run(rested.String(), func(t *testing.T) {
			w := newWorld(t)
			bought := w.oneQuarantined(rested)
			before := w.sim.Counters()
			w.service("new", inPool())
			took := w.settle("new")
			if limit := 30*time.Second + 2*bought; took > limit {
				t.Errorf("it took %s, want at most %s", took, limit)
			}
			w.wantPurchases(2)
			t.Logf("figure shared_service_wait %.1f s, %v", took.Seconds(), w.asked(before))
		})
	}
}

// TestTheEndOfAQuarantineIsSeenSoon: nothing is bought when the quarantine ends within half a minute.
func TestTheEndOfAQuarantineIsSeenSoon(t *testing.T) {
	w := newWorld(t)
	w.oneQuarantined(ipblock.Quarantine - 25*time.Second)
	w.service("new", inPool())
	if took := w.settle("new"); took > 27*time.Second {
		t.Errorf("it took %s", took)
	}
	w.wantPurchases(1)
}

// TestWaitsForTheQuarantineWhereNothingMayBeBought: the pause lasts as long as the quarantine, costs next to nothing,
// and the condition names its end.
func TestWaitsForTheQuarantineWhereNothingMayBeBought(t *testing.T) {
	w := newWorld(t, configured(func(c *reconcile.Config) { c.MaxBlocks = 1 }))
	began := w.clock.Now()
	w.oneQuarantined(time.Minute)
	var ends time.Time
	for _, rest := range w.ledgers()[0].Quarantined {
		ends = rest.Since.Add(ipblock.Quarantine)
	}
	if ends.Before(began) {
		t.Fatal("no address is quarantined")
	}
	before := w.sim.Counters()
	w.service("new", inPool())
	_, err := w.sync("new")
	var again *api.RetryError
	if !errors.As(err, &again) || !w.clock.Now().Add(again.RetryAfter()).Equal(ends) {
		t.Fatalf("said %v; the quarantine ends in %s", err, ends.Sub(w.clock.Now()))
	}
	if c := w.condition("new"); c.Reason != string(ipblock.AddressQuarantined) ||
		!strings.Contains(c.Message, ends.UTC().Format(time.RFC3339)) {
		t.Errorf("the condition is %s: %s; the quarantine ends at %s", c.Reason, c.Message, ends)
	}
	w.settle("new")
	if late := w.clock.Now().Sub(ends); late > time.Second {
		t.Errorf("published %s after the end of the quarantine", late)
	}
	w.wantPurchases(1)
	sum := 0
	for _, n := range w.asked(before) {
		sum += n
	}
	if sum > 12 {
		t.Errorf("%d requests while it waited: %v", sum, w.asked(before))
	}
	t.Logf("figure resting_service_requests %d requests", sum)
}
