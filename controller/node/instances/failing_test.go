package instances

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const lookupFailed = "Warning ServerLookupFailed"

// TestWaitingNodesSayHowTheAPIFails: Nodes that wait for their initialization, and Nodes that are not ready, get an
// event with the words of the API and the remedy, seldom; Nodes that need nothing get none.
func TestWaitingNodesSayHowTheAPIFails(t *testing.T) {
	for name, failing := range map[string]struct {
		fault pnapsim.Fault
		says  []string
	}{
		"401": {pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusUnauthorized},
			[]string{"401", "check the client ID and the client secret"}},
		"403": {pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusForbidden, Path: "/bmc/v1/*"},
			[]string{"list servers", "403", "scopes"}},
		"429": {pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusTooManyRequests, RetryAfter: 60,
			Path: "/bmc/v1/*"}, []string{"list servers", "429", "--api-requests-per-second"}},
		"500": {pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusInternalServerError, Path: "/bmc/v1/*"},
			[]string{"list servers", "500", "tries again"}},
		"half an answer": {pnapsim.Fault{Action: pnapsim.FaultTruncate, Path: "/bmc/v1/*"},
			[]string{"list servers", "invalid answer", "tries again"}},
		"reset": {pnapsim.Fault{Action: pnapsim.FaultReset, Path: "/bmc/v1/*"},
			[]string{"list servers", "no answer", "DNS, proxy, firewall"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, simtest.Seed())
			fault := failing.fault
			fault.Times = -1
			w.arm(fault)
			waiting := w.node("waiting", "")
			notReady := w.node("not-ready", simtest.Server1ID)
			initialized := w.node("initialized", simtest.Server2ID)
			tainted := w.node("tainted", simtest.Server2ID)
			tainted.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}}
			for range 30 { // five minutes
				for _, node := range []*corev1.Node{waiting, tainted, initialized} {
					_, _ = w.InstanceMetadata(t.Context(), node)
				}
				_, _ = w.InstanceExists(t.Context(), notReady)
				w.sim.Advance(10 * time.Second)
			}
			w.checkLookupEvents(failing.says)
		})
	}
}

// checkLookupEvents demands an event about each Node that needs its server, and few of them.
func (w *world) checkLookupEvents(says []string) {
	w.t.Helper()
	count := map[string]int{}
	said := map[string]bool{}
	for len(w.events.Events) > 0 {
		event := <-w.events.Events
		if !strings.HasPrefix(event, lookupFailed) {
			w.t.Errorf("unexpected event %s", event)
			continue
		}
		_, node, _ := strings.Cut(event, " of Node ")
		node, _, _ = strings.Cut(node, " ")
		count[node]++
		all := true
		for _, part := range says {
			all = all && strings.Contains(event, part)
		}
		said[node] = said[node] || all
		if secrets := w.sim.FindSecrets(event); len(secrets) > 0 || len(event) > text.MessageLimit {
			w.t.Errorf("the event has %d bytes and contains %s: %s", len(event), secrets, event)
		}
	}
	for _, node := range []string{"waiting", "tainted", "not-ready"} {
		if !said[node] || count[node] > 2 {
			w.t.Errorf("Node %s has %d events, with the words and the remedy: %t", node, count[node], said[node])
		}
	}
	if count["initialized"] > 0 {
		w.t.Errorf("a Node that needs nothing has %d events", count["initialized"])
	}
	w.t.Logf("figure waiting_node_events %d events in five minutes", count["waiting"])
}

// TestEmptyListIsReported: credentials of an account without servers list nothing.
func TestEmptyListIsReported(t *testing.T) {
	seed, ids := twoAccounts(1, 0)
	sim, url := simtest.New(t, pnapsim.Config{}, seed)
	w := newWorldAt(t, sim, url, time.Minute)
	w.api.Client = newClient(t, sim, url, time.Minute, strangerID)
	if _, err := w.InstanceExists(t.Context(), w.node("n0", ids[0])); err == nil {
		t.Error("an empty list says that the server exists or is gone")
	}
	w.expectEvent(lookupFailed, "Node n0", "the list of servers is empty", "credentials")
}
