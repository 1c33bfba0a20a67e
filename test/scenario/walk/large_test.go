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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
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

// maxInitCalls is how many calls of the API of phoenixNAP it takes to initialize all Nodes of a cluster in three public
// networks.
const maxInitCalls = 5

// TestNodesInThreeNetworksAreInitialised: servers are listed once for all Nodes, and each network is read once. That
// the blocks of the account are listed meanwhile, and their tags, is for Services.
func TestNodesInThreeNetworksAreInitialised(t *testing.T) {
	specs := simtest.Specs(t)
	synctest.Test(t, func(t *testing.T) {
		w := threeNetworks(t, specs)
		began := time.Now()
		time.Sleep(time.Second) // calls count that are later
		w.process = w.live(0)
		for time.Since(began) < time.Hour && !w.allInitialised() {
			time.Sleep(time.Second)
		}
		calls := slices.DeleteFunc(w.callsSince(began), func(call string) bool {
			return !strings.Contains(call, "/servers") && !strings.Contains(call, "/public-networks")
		})
		t.Logf("figure networks_init_calls %d calls # %d Nodes in %s", len(calls), largeNodes, time.Since(began))
		if len(calls) > maxInitCalls || !w.allInitialised() {
			t.Errorf("%d calls, at most %d are right: %v", len(calls), maxInitCalls, tally(calls))
		}
		w.process.bury()
		time.Sleep(10 * time.Minute) // for what sleeps where nothing can wake it
	})
}

// threeNetworks is a cluster of many new Nodes, of which each third is in one of three locations and public networks.
func threeNetworks(t *testing.T, specs *pnapsim.Specs) *world {
	t.Helper()
	w := emptyWorld(t, 1, &counts{})
	w.collect = false
	w.manages = false
	w.several = true
	w.crowded = true
	w.latencies = pnapsim.DefaultLatency()
	w.sim = pnapsim.New(pnapsim.Config{Clock: pnapsim.NewRealClock(1), Latency: &w.latencies, Specs: specs})
	all := []pnapsim.NetworkSeed{{ID: networkID, Name: "ash", Location: location, VLAN: 20},
		{ID: westID, Name: "phx", Location: "PHX", VLAN: 20},
		{ID: "60473c2509268bc77fd06d2c", Name: "chi", Location: "CHI", VLAN: 20}}
	seed := seedAccount(0)
	account := &seed.Accounts[0]
	account.Networks = all
	account.Blocks = nil
	account.Servers = nil
	for i := range largeNodes {
		network := all[i%len(all)]
		account.Servers = append(account.Servers, pnapsim.ServerSeed{
			ID: fmt.Sprintf("60473c2509268bc77fd1%04x", i), Hostname: nodeName(i), Location: network.Location,
			NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{fmt.Sprintf("10.1.%d.%d", i>>8, i&0xff)},
			Networks: []pnapsim.MembershipSeed{{Network: network.ID}},
		})
	}
	if err := w.sim.Seed(seed); err != nil {
		t.Fatal(err)
	}
	w.handler = w.sim.Handler()
	w.found()
	for _, name := range []string{broughtObject, "of-the-nodes"} { // whose blocks this account does not have
		if err := kubefake.Lose(t.Context(), w.ipBlocks, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range all[1:] {
		_, err := w.store.PublicNetworks().Create(t.Context(), &v1beta1.PublicNetwork{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name},
			Spec:       v1beta1.PublicNetworkSpec{ID: n.ID, Announcer: v1beta1.AnnouncerAgent},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range largeNodes {
		w.register(i)
	}
	return w
}

// allInitialised reports whether each Node has its server and lists the network of that.
func (w *world) allInitialised() bool {
	list, err := w.kube.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	return err == nil && !slices.ContainsFunc(list.Items, func(n corev1.Node) bool {
		networks, _, err := contract.ParsePublicNetworks(n.Annotations)
		return err != nil || len(networks) != 1 || !networks[0].Member || n.Spec.ProviderID == "" ||
			n.Labels[corev1.LabelTopologyZone] == ""
	})
}
