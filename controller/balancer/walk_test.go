package balancer_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/balancer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/seeds"
)

// TestCrashAnywhere kills the process before and after every single thing that leaves it, once each,
// during the whole life of a Service, with lists that lag.
func TestCrashAnywhere(t *testing.T) {
	places := liveWithCrash(t, 0)
	if places < 60 {
		t.Fatalf("only %d places to crash at; the test does not see them all", places)
	}
	for at := range places {
		t.Run(fmt.Sprint("at ", at+1), func(t *testing.T) {
			t.Parallel()
			if steps := liveWithCrash(t, at+1); steps <= at {
				t.Errorf("ended after %d steps, without a crash", steps)
			}
		})
	}
}

// liveWithCrash lets a Service live and die and returns how many places there were to crash at.
func liveWithCrash(t *testing.T, at int) (places int) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.ListLag = pnapsim.Duration(8 * time.Second) }))
	w.crashAt = at
	w.service("web")
	w.toEnd("web")
	w.wantPurchases(1)
	w.wantBlocks("203.0.113.8/29 assigned")
	if got := w.get("web").Spec.LoadBalancerIP; got != "203.0.113.10" {
		t.Errorf("address is %q", got)
	}
	w.delete("web")
	w.toEnd("web")
	w.wantBlocks()
	return w.step
}

// toEnd is settle with crashes.
func (w *world) toEnd(name string) {
	w.t.Helper()
	start := w.clock.Now()
	for w.clock.Now().Sub(start) < 6*time.Hour {
		done, err := w.syncOrCrash(name)
		if done {
			return
		}
		w.said = append(w.said, err.Error())
		w.clock.Advance(w.pauseAfter(err))
	}
	w.t.Fatalf("Service %s is not settled; it said %q and the account holds %s", name, w.said[max(0, len(w.said)-3):], w.blocks())
}

// TestRandomTrouble lets a Service live under random switches, latencies, faults and crashes, and
// deletes it at a random moment.
func TestRandomTrouble(t *testing.T) {
	for seed := range uint64(seeds.Count(t, 40)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 11))
			w := newWorld(t, func(config *pnapsim.Config, _ *pnapsim.AccountSeed, _ *balancer.Config) {
				config.Switches, config.Latency = pnapsim.RandomSwitches(rng), randomLatency(rng)
			})
			w.service("web")
			patience := 5 + rng.IntN(60)
			w.troubled(rng, "web", func() bool { patience--; return patience < 0 })
			if bought := w.sim.Money(accountID).Purchases; bought > 1 {
				t.Errorf("%d blocks were bought", bought)
			}
			w.delete("web")
			w.troubled(rng, "web", func() bool { return false })
			w.sim.Disarm()
			w.crashAt = 0
			w.clock.Advance(20 * time.Minute)
			w.settleIfThere("web")
			w.wantBlocks()
			w.sim.LeakCheck(clientID)
		})
	}
}

// troubled syncs amid faults and crashes until it is done, until enough or for some time.
func (w *world) troubled(rng *rand.Rand, name string, enough func() bool) {
	for range 80 {
		if rng.IntN(4) == 0 {
			w.arm(randomFault(rng))
		}
		if rng.IntN(8) == 0 {
			w.crashAt = w.step + 1 + rng.IntN(10)
		}
		done, err := w.syncOrCrash(name)
		if done {
			return
		}
		w.said = append(w.said, err.Error())
		w.clock.Advance(w.pauseAfter(err))
		if enough() {
			return
		}
	}
}

func (w *world) settleIfThere(name string) {
	if w.get(name) != nil {
		w.settle(name)
	}
}

func randomLatency(rng *rand.Rand) *pnapsim.Latency {
	latency := pnapsim.DefaultLatency()
	upTo := func(limit time.Duration) pnapsim.Duration { return pnapsim.Duration(rng.Int64N(int64(limit))) }
	latency.BlockCreate, latency.Assign, latency.Unassign = upTo(10*time.Second), upTo(5*time.Minute), upTo(5*time.Minute)
	latency.TagPropagation, latency.ListLag = upTo(30*time.Second), upTo(10*time.Second)
	return &latency
}

func randomFault(rng *rand.Rand) pnapsim.Fault {
	places := []pnapsim.Fault{
		{Method: http.MethodPost, Path: blocksPath}, {Method: http.MethodGet, Path: blocksPath}, {Method: http.MethodGet, Path: blockPath},
		{Method: http.MethodDelete, Path: blockPath}, {Method: http.MethodPost, Path: assignPath}, {Method: http.MethodDelete, Path: unassignPath},
		{Method: http.MethodGet, Path: "/networks/v1/public-networks/*"}, {Path: "/tag-manager/v1/tags"},
	}
	actions := []pnapsim.Fault{
		{Action: pnapsim.FaultStatus, Status: 500}, {Action: pnapsim.FaultStatus, Status: 503}, {Action: pnapsim.FaultStatus, Status: 409},
		{Action: pnapsim.FaultStatus, Status: 401}, {Action: pnapsim.FaultStatus, Status: 429, RetryAfter: 11}, {Action: pnapsim.FaultHTML},
		{Action: pnapsim.FaultReset}, {Action: pnapsim.FaultLost}, {Action: pnapsim.FaultEmpty}, {Action: pnapsim.FaultTruncate},
		{Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeError}, {Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeLate, Delay: pnapsim.Duration(2 * time.Minute)},
	}
	f, action := places[rng.IntN(len(places))], actions[rng.IntN(len(actions))]
	f.Action, f.Status, f.RetryAfter, f.Outcome, f.Delay = action.Action, action.Status, action.RetryAfter, action.Outcome, action.Delay
	f.Times = 1 + rng.IntN(3)
	return f
}
