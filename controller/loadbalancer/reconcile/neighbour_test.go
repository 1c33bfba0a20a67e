package reconcile_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// schedule syncs the Services of a cluster as the service controller does, the drift pass included.
type schedule struct {
	*world
	names    []string
	due      map[string]time.Time
	failures map[string]int
	drift    time.Time
}

func newSchedule(w *world, names ...string) *schedule {
	return &schedule{world: w, names: names, due: map[string]time.Time{}, failures: map[string]int{},
		drift: w.clock.Now().Add(time.Minute)}
}

// run syncs what is due now.
func (s *schedule) run() {
	now := s.clock.Now()
	if !now.Before(s.drift) {
		s.drift = now.Add(time.Minute)
		drifted, err := s.lb.Drifted(s.ctx)
		if err != nil {
			s.t.Fatalf("the drift pass failed: %v", err)
		}
		for _, service := range drifted {
			s.due[service.Name] = now
		}
	}
	for _, name := range s.names {
		if now.Before(s.due[name]) {
			continue
		}
		done, err := s.sync(name)
		s.world.failures = s.failures[name]
		switch {
		case done:
			s.due[name] = now.Add(24 * time.Hour)
		default:
			s.said = append(s.said, err.Error())
			s.due[name] = now.Add(s.pauseAfter(err))
		}
		s.failures[name] = s.world.failures
	}
}

// unplaced counts the blocks of each cluster that are bought and on no network.
func (w *world) unplaced() map[string]int {
	found := map[string]int{}
	for _, b := range w.accountBlocks() {
		if b.Status == network.Creating || b.Status == network.Unassigned {
			found[b.Tags[contract.TagCluster]]++
		}
	}
	return found
}

// accountBlocks are the bought blocks of the account as they are, however far its lists lag.
func (w *world) accountBlocks() []network.Block {
	w.t.Helper()
	var bought []network.Block
	for _, b := range w.sim.State(accountID).Blocks {
		raw, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		var seen struct {
			Status string                         `json:"status"`
			Tags   []struct{ Name, Value string } `json:"tags"`
		}
		if err := json.Unmarshal(raw, &seen); err != nil {
			w.t.Fatal(err)
		}
		block := network.Block{Status: network.BlockStatus(seen.Status), Tags: map[string]string{}}
		for _, tag := range seen.Tags {
			block.Tags[tag.Name] = tag.Value
		}
		if block.Tags[contract.TagUsage] == contract.TagUsageAuto {
			bought = append(bought, block)
		}
	}
	return bought
}

// TestTwoClustersOnOneNetwork: the network has places for nine more blocks, and two clusters want eight each. Whoever
// comes first gets the places; no cluster ever pays for more than one block without a place, and that one only until
// it is certain that there is none.
func TestTwoClustersOnOneNetwork(t *testing.T) {
	for name, lag := range map[string]time.Duration{"": 0, ", lists lag by half an hour": 30 * time.Minute} {
		for kind, ask := range map[string][]string{"dedicated": nil,
			"shared /30": {contract.ServiceIPAllocation, contract.AllocationShared}} {
			t.Run(kind+name, func(t *testing.T) {
				w := newWorld(t, slow(func(l *pnapsim.Latency) {
					l.ListLag = pnapsim.Duration(lag)
					l.Assign = pnapsim.Duration(20 * time.Second)
				}), configured(func(c *reconcile.Config) {
					if ask != nil {
						c.BlockSize = "/30"
					}
				}))
				clusters := []*world{w, w.neighbour()}
				clusters[1].config.BlockSize = w.config.BlockSize
				clusters[1].restart()
				crowded(t, kind+name, lag, clusters, ask)
			})
		}
	}
}

func crowded(t *testing.T, name string, lag time.Duration, clusters []*world, ask []string) {
	t.Helper()
	var schedules []*schedule
	for i, w := range clusters {
		var names []string
		for j := range 8 {
			names = append(names, fmt.Sprintf("web%d%d", i, j))
			w.service(names[j], annotated(ask...))
		}
		schedules = append(schedules, newSchedule(w, names...))
	}
	w := clusters[0]
	most := 0
	for end := w.clock.Now().Add(25 * time.Minute); w.clock.Now().Before(end); w.clock.Advance(firstLook) {
		for _, s := range schedules {
			s.run()
		}
		for _, n := range w.unplaced() {
			most = max(most, n)
		}
	}
	assigned := 0
	for _, b := range w.accountBlocks() {
		if b.Status == network.Assigned {
			assigned++
		}
	}
	if assigned != 9 {
		t.Errorf("%d blocks are assigned, want the nine for which there was room: %s", assigned, w.blocks())
	}
	unused := 0
	for _, n := range w.unplaced() {
		unused += n
	}
	bought := w.sim.Money(accountID).Purchases
	t.Logf("%s: %d bought, %d assigned", name, bought, assigned)
	t.Logf("figure blocks_paid_without_use %d blocks", unused)
	t.Logf("figure blocks_unassigned_at_once %d blocks", most)
	if unused != 0 || most > 1 || bought > 11 {
		t.Errorf("%d blocks without use after all, at most %d of a cluster at once, %d bought", unused, most, bought)
	}
	for _, s := range schedules {
		for _, name := range s.names {
			said := s.condition(name)
			if s.address(name) == "" && (said.Reason != string(ipblock.NetworkFull) ||
				lag == 0 && !strings.Contains(said.Message, "1 by others") ||
				lag == 0 && !strings.Contains(said.Message, "by this cluster")) {
				t.Errorf("Service %s without an address says %+v", name, said)
			}
		}
	}
}
