package walk

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	// steadyNodes is how many Nodes the cluster has in which nothing happens.
	steadyNodes = 8
	// steadyFor is how long the calls of the API are counted.
	steadyFor = 30 * time.Minute
	// maxSteadyCalls is how many calls a minute an endpoint may get. The guide promises two.
	maxSteadyCalls = 1.7
)

// TestSteadyStateCostsFewCalls: when nothing happens, no endpoint gets as many as two calls a minute, whatever the
// state of the Nodes, which the framework checks every five seconds while they are not ready.
func TestSteadyStateCostsFewCalls(t *testing.T) {
	refuse := pnapsim.Fault{Method: http.MethodGet, Path: "/bmc/v1/servers/*", Action: pnapsim.FaultStatus,
		Status: http.StatusForbidden, Times: -1}
	omit := pnapsim.Fault{Method: http.MethodGet, Path: "/bmc/v1/servers", Action: pnapsim.FaultDropField,
		Field: "id", Element: 1, Times: -1}
	for name, test := range map[string]struct {
		// silent are how many Nodes are not ready, missing how many of them have no server.
		silent, missing int
		// more are Services beside those that find room in the network.
		more   int
		faults []pnapsim.Fault
	}{
		"all Nodes ready":                      {},
		"more Services than blocks":            {more: 20},
		"Nodes not ready, with servers":        {silent: 5},
		"too many servers missing":             {silent: 7, missing: 6},
		"one server missing, IDs are refused":  {silent: 3, missing: 1, faults: []pnapsim.Fault{refuse}},
		"one server missing from the list":     {silent: 3, faults: []pnapsim.Fault{omit}},
		"all servers missing, IDs are refused": {silent: 8, missing: 8, faults: []pnapsim.Fault{refuse}},
	} {
		t.Run(name, func(t *testing.T) {
			specs := simtest.Specs(t)
			synctest.Test(t, func(t *testing.T) {
				w := steadyWorld(t, specs)
				for i := range test.more {
					w.publishSteady(fmt.Sprintf("more-%d", i), contract.AllocationDedicated, nil)
					time.Sleep(time.Second)
				}
				for i := range test.silent {
					if i < test.missing {
						w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: serverID(i)})
					}
					w.silence(i)
				}
				for _, fault := range test.faults {
					w.arm(fault)
				}
				time.Sleep(steadyFor) // what is missing is looked for closely at first
				w.countSteady(name)
				w.process.bury()
				time.Sleep(10 * time.Minute) // for what sleeps where nothing can wake it
			})
		})
	}
}

// steadyWorld is a cluster whose Services have their addresses, whose servers are members of the network, and that pays
// for a block that no one uses.
func steadyWorld(t *testing.T, specs *pnapsim.Specs) *world {
	t.Helper()
	w := newWorld(t, 4, &counts{}, specs)
	for seed := uint64(16); w.nodes != steadyNodes; seed += 12 { // of those without lags and skews
		w = newWorld(t, seed, &counts{}, specs)
	}
	w.collect = false
	w.manages = true
	for i := range w.nodes {
		w.register(i)
	}
	w.process = w.live(0)
	class := contract.LoadBalancerClass
	for name, class := range map[string]*string{"a": nil, "b": &class} {
		for _, allocation := range []string{contract.AllocationDedicated, contract.AllocationShared} {
			w.publishSteady(name+"-"+allocation, allocation, class)
		}
	}
	w.portal(pnapsim.Edit{Kind: pnapsim.EditAddBlock, Network: networkID, Tags: map[string]string{
		contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: w.uid,
		contract.TagService: contract.ServiceTag(namespace, "forgotten"),
	}})
	time.Sleep(time.Hour)
	for _, service := range w.services() {
		if address := addressOf(&service); !w.isServed(address) {
			t.Fatalf("Service %s has address %q: %v", service.Name, address, service.Status.Conditions)
		}
	}
	if !w.events.has("OrphanedIPBlock") || !w.events.has("PublicNetworkJoined") {
		t.Fatalf("no orphan or no membership: %v", w.events.reasons)
	}
	return w
}

// publishSteady creates a Service. One of the class, which no kube-vip takes up, is checked again and again.
func (w *world) publishSteady(name, allocation string, class *string) {
	w.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Annotations: map[string]string{contract.ServiceIPAllocation: allocation}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: class,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
	if _, err := w.kube.CoreV1().Services(namespace).Create(w.t.Context(), service,
		metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// countSteady counts the calls of each endpoint for a while in which no Node is deleted.
func (w *world) countSteady(name string) {
	w.t.Helper()
	began := time.Now()
	time.Sleep(steadyFor)
	synctest.Wait()
	calls := map[string][]time.Time{}
	for _, entry := range w.sim.Log(0) {
		if entry.Time.After(began) && !strings.Contains(entry.Operation, "token") {
			calls[entry.Operation] = append(calls[entry.Operation], entry.Time)
		}
	}
	highest := 0.0
	for _, operation := range slices.Sorted(maps.Keys(calls)) {
		perMinute := float64(len(calls[operation])) / steadyFor.Minutes()
		highest = max(highest, perMinute)
		most := busiestMinute(calls[operation])
		w.t.Logf("%.2f calls/min of %s, at most %d", perMinute, operation, most)
		if perMinute > maxSteadyCalls || most > 2 || !strings.HasPrefix(operation, http.MethodGet) {
			w.t.Errorf("%s: %.2f calls/min of %s, and %d in a minute; %.1f and 2 are right, of those that read", name,
				perMinute, operation, most, maxSteadyCalls)
		}
	}
	_, _ = fmt.Fprintf(w.t.Output(), "figure steady_calls_per_minute %.2f calls/min, %s\n", highest, name)
	for i := range w.nodes {
		if _, err := w.store.Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", nodeName(i)); err != nil {
			w.t.Errorf("Node %s: %v", nodeName(i), err)
		}
	}
}

// busiestMinute returns how many of the times are in any minute.
func busiestMinute(times []time.Time) int {
	most := 0
	for first := range times {
		end, _ := slices.BinarySearchFunc(times, times[first].Add(time.Minute), time.Time.Compare)
		most = max(most, end-first)
	}
	return most
}
