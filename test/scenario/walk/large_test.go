package walk

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	largeNodes = 1000
	// maxAssignedWrites is how often the API server may be written to because a block is assigned.
	maxAssignedWrites = 5
)

// TestABlockInALargeCluster: what a block costs the API server once it is assigned does not depend on the number of
// Nodes. Agents learn of it by their watches.
func TestABlockInALargeCluster(t *testing.T) {
	specs := simtest.Specs(t)
	for _, allocation := range []string{contract.AllocationDedicated, contract.AllocationShared} {
		synctest.Test(t, func(t *testing.T) {
			w := largeWorld(t, specs)
			written := w.countWrites()
			w.publishSteady("web", allocation, nil)
			w.served("web")
			time.Sleep(5 * time.Minute)
			all := written()
			t.Logf("figure block_assigned_writes %d writes # %s, %d Nodes", len(all), allocation, largeNodes)
			if len(all) == 0 || len(all) > maxAssignedWrites {
				t.Errorf("%d writes, want 1 to %d:\n%s", len(all), maxAssignedWrites, strings.Join(all, "\n"))
			}
			w.process.bury()
			time.Sleep(10 * time.Minute) // for what sleeps where nothing can wake it
		})
	}
}

// countWrites returns what returns the writes of Kubernetes objects since a block of ours is assigned. One that is
// refused, because the watch has not shown the latest version yet, changes nothing and reaches no other watch.
func (w *world) countWrites() func() []string {
	var mu sync.Mutex
	var all []string
	w.answered = func(request *http.Request, response *http.Response) {
		mu.Lock()
		defer mu.Unlock()
		written := request.Method != http.MethodGet && response.StatusCode < http.StatusBadRequest
		if written && slices.ContainsFunc(w.ours(), block.isAssigned) {
			all = append(all, request.Method+" "+request.URL.Path)
		}
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func (b block) isAssigned() bool { return b.status == "assigned" }

// largeWorld is a cluster of many Nodes of which two are members of the network.
func largeWorld(t *testing.T, specs *pnapsim.Specs) *world {
	t.Helper()
	w := emptyWorld(t, 1, &counts{})
	w.nodes = 2
	w.collect = false
	w.manages = false
	w.crowded = true
	w.latencies = pnapsim.DefaultLatency()
	w.sim = pnapsim.New(pnapsim.Config{Clock: pnapsim.NewRealClock(1), Latency: &w.latencies, Specs: specs})
	seed := seedAccount(w.nodes)
	for i := w.nodes; i < largeNodes; i++ {
		seed.Accounts[0].Servers = append(seed.Accounts[0].Servers, pnapsim.ServerSeed{
			ID: fmt.Sprintf("60473c2509268bc77fd1%04x", i), Hostname: nodeName(i), Location: location,
			NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{fmt.Sprintf("10.1.%d.%d", i>>8, i&0xff)},
		})
	}
	if err := w.sim.Seed(seed); err != nil {
		t.Fatal(err)
	}
	w.handler = w.sim.Handler()
	w.found()
	for i := range largeNodes {
		w.register(i)
	}
	w.process = w.live(0)
	time.Sleep(30 * time.Minute)
	return w
}
