package reconcile_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// modes are the ways in which a Service gets its address: what it asks for, the world that it needs and
// what is left when it is gone.
func modes() map[string]struct {
	ask    func(*corev1.Service)
	option option
	buys   int
	left   []string
} {
	type mode = struct {
		ask    func(*corev1.Service)
		option option
		buys   int
		left   []string
	}
	return map[string]mode{
		"dedicated": {ask: annotated(), option: withBlocks(), buys: 1},
		"shared":    {ask: inPool(), option: withBlocks(), buys: 1},
		"retained": {ask: annotated(contract.ServiceIPRetain, "true"), option: withBlocks(), buys: 1,
			left: []string{"203.0.113.8/29 unassigned"}},
		"brought": {ask: inBlock(broughtID), option: broughtBlock("", ofCluster()),
			left: []string{"203.0.113.64/29 unassigned"}},
	}
}

// TestRandomWalk lets Services of all kinds come, change and go under random switches, latencies, faults,
// crashes and edits in the portal. Nothing may leak, be bought twice, or be given to two.
func TestRandomWalk(t *testing.T) {
	count := seeds.Count(t, 12)
	for seed := range uint64(count) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			walk(t, seed)
		})
	}
}

func walk(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	w := newWorld(t, func(config *pnapsim.Config, _ *pnapsim.AccountSeed, _ *reconcile.Config) {
		config.Switches = pnapsim.RandomSwitches(rng)
		config.Latency = randomLatency(rng)
	}, broughtBlock("", ofCluster()))
	kinds := slices.Sorted(maps.Keys(modes()))
	var names []string
	for i := range 1 + rng.IntN(4) {
		name := fmt.Sprint(kinds[rng.IntN(len(kinds))], i)
		names = append(names, name)
		w.service(name, modes()[strings.TrimRight(name, "0123456789")].ask)
	}
	portal := newPortal(w)
	w.troubled(rng, portal, names, 10+rng.IntN(40*len(names)))
	portal.undo()
	if sound := portal.sound(names); len(sound) > 0 {
		w.troubled(rng, nil, sound, 10*len(names))
	}
	w.wantAddressesOnce(portal.sound(names)...)
	if bought := w.sim.Money(accountID).Purchases; bought > len(names)+portal.taken {
		t.Errorf("%d blocks were bought for %d Services; people took %d away", bought, len(names), portal.taken)
	}
	for _, name := range names {
		if w.get(name) != nil {
			w.edit(name, func(s *corev1.Service) { delete(s.Annotations, contract.ServiceIPRetain) })
			w.delete(name)
		}
	}
	w.troubled(rng, nil, names, 20*len(names))
	w.sim.Disarm()
	w.crashAt = 0
	w.clock.Advance(20 * time.Minute)
	for _, name := range names {
		w.settleIfThere(name)
	}
	w.sweep()
	w.wantBlocks("203.0.113.64/29 unassigned")
	w.sim.LeakCheck(clientID)
}

// troubled syncs one or the other of the Services, so many times, amid faults and crashes, and edits blocks if
// there is a portal.
func (w *world) troubled(rng *rand.Rand, portal *portal, names []string, times int) {
	for range times {
		if rng.IntN(6) == 0 {
			w.arm(randomFault(rng))
		}
		if rng.IntN(12) == 0 {
			w.crashAt = w.step + 1 + rng.IntN(10)
		}
		if rng.IntN(25) == 0 && portal != nil {
			portal.edit(rng, names)
		}
		name := names[rng.IntN(len(names))]
		done, err := w.syncOrCrash(name)
		pause := firstLook
		if !done {
			w.said = append(w.said, err.Error())
			pause = w.pauseAfter(err)
		}
		if portal == nil {
			w.wantAddressesOnce(names...)
		} else {
			w.wantAddressesOnce(portal.sound(names)...)
		}
		w.clock.Advance(pause)
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
	latency.BlockCreate = upTo(10 * time.Second)
	latency.Assign = upTo(5 * time.Minute)
	latency.Unassign = upTo(5 * time.Minute)
	latency.TagPropagation = upTo(30 * time.Second)
	latency.ListLag = upTo(10 * time.Second)
	return &latency
}

func randomFault(rng *rand.Rand) pnapsim.Fault {
	places := []pnapsim.Fault{
		{Method: http.MethodPost, Path: blocksPath}, {Method: http.MethodGet, Path: blocksPath},
		{Method: http.MethodGet, Path: blockPath},
		{Method: http.MethodDelete, Path: blockPath}, {Method: http.MethodPost, Path: assignPath},
		{Method: http.MethodDelete, Path: unassignPath},
		{Method: http.MethodGet, Path: "/networks/v1/public-networks/*"}, {Path: "/tag-manager/v1/tags"},
	}
	actions := []pnapsim.Fault{
		{Action: pnapsim.FaultStatus, Status: 500}, {Action: pnapsim.FaultStatus, Status: 503},
		{Action: pnapsim.FaultStatus, Status: 409},
		{Action: pnapsim.FaultStatus, Status: 401}, {Action: pnapsim.FaultStatus, Status: 429, RetryAfter: 11},
		{Action: pnapsim.FaultHTML},
		{Action: pnapsim.FaultReset}, {Action: pnapsim.FaultLost}, {Action: pnapsim.FaultEmpty},
		{Action: pnapsim.FaultTruncate},
		{Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeError},
		{Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeLate, Delay: pnapsim.Duration(2 * time.Minute)},
	}
	f := places[rng.IntN(len(places))]
	action := actions[rng.IntN(len(actions))]
	f.Action = action.Action
	f.Status = action.Status
	f.RetryAfter = action.RetryAfter
	f.Outcome = action.Outcome
	f.Delay = action.Delay
	f.Times = 1 + rng.IntN(3)
	return f
}
