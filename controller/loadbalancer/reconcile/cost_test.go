package reconcile_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// asked are the numbers of requests by operation since before, tokens aside.
func (w *world) asked(before map[string]map[int]int) map[string]int {
	asked := map[string]int{}
	for operation, counts := range w.sim.Counters() {
		if n := total(counts) - total(before[operation]); n > 0 && !strings.Contains(operation, "token") {
			asked[operation] = n
		}
	}
	return asked
}

// TestDedicatedServiceCostsFewCalls: against an API that does everything at once, nothing is polled, and
// what remains is what a purchase needs.
func TestDedicatedServiceCostsFewCalls(t *testing.T) {
	w := newWorld(t, func(config *pnapsim.Config, _ *pnapsim.AccountSeed, _ *reconcile.Config) {
		config.Latency = &pnapsim.Latency{}
	})
	w.service("warm")
	w.settle("warm") // the account has its tags now
	w.clock.Advance(time.Minute)
	before := w.sim.Counters()
	w.service("web")
	if took := w.settle("web"); took > 1500*time.Millisecond {
		t.Errorf("the controller added %s", took)
	}
	asked := w.asked(before)
	writes := 0
	for operation, n := range asked {
		if !strings.HasPrefix(operation, "GET") {
			writes += n
		}
	}
	if writes != 2 {
		t.Errorf("%d requests change the account, want a purchase and an assignment: %v", writes, asked)
	}
	sum := 0
	for _, n := range maps.All(asked) {
		sum += n
	}
	if sum > 11 {
		t.Errorf("%d requests: %v", sum, asked)
	}
	t.Logf("figure dedicated_service_requests %d requests", sum)
}

// TestManyServicesCostNoMoreThanOne: after a restart, and then every minute, one list and one network serve
// all Services; nothing is written.
//
//proves:known-bugs/needless-writes
func TestManyServicesCostNoMoreThanOne(t *testing.T) {
	w := newWorld(t, configured(func(c *reconcile.Config) {
		c.Allocation = contract.AllocationShared
		c.BlockSize = "/28"
	}))
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("web%02d", i))
		w.service(names[i])
	}
	w.settleAll(names...)
	w.wantDrifted() // what the last syncs left to be written, such as conditions, is noticed
	w.restart()
	w.clock.Advance(time.Minute)
	versions, before := w.versions, w.sim.Counters()
	for _, name := range names {
		if done, err := w.sync(name); !done {
			t.Errorf("Service %s is not settled after a restart: %v", name, err)
		}
	}
	if w.versions != versions {
		t.Errorf("%d writes after a restart", w.versions-versions)
	}
	for range 10 {
		w.wantDrifted()
	}
	for operation, n := range w.asked(before) {
		if n > 11 {
			t.Errorf("%s was asked %d times in ten minutes", operation, n)
		}
	}
	if operations := slices.Sorted(maps.Keys(w.asked(before))); len(operations) != 2 {
		t.Errorf("asked %v", operations)
	}
}
