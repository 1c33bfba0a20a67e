package reconcile_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// TestChangesOfAServiceWait: who changes a Service again and again has the account read nine times, and then
// seldom; the last change is served.
func TestChangesOfAServiceWait(t *testing.T) {
	w := newWorld(t)
	w.service("web", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.7" })
	_ = w.refused("web", time.Minute)
	w.clock.Advance(time.Hour)
	mark := len(w.sim.Log(0))
	held := 0
	for n := range 60 {
		w.edit("web", func(s *corev1.Service) { s.Annotations = map[string]string{"n": strconv.Itoa(n)} })
		if _, err := w.sync("web"); strings.Contains(err.Error(), "many times") {
			held++
		}
		w.clock.Advance(time.Second)
	}
	if calls := len(w.sim.Log(0)) - mark; calls > 3*9+4 || held < 49 {
		t.Errorf("60 changes made %d calls, %d changes waited", calls, held)
	}
	w.edit("web", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "" })
	if took := w.settle("web"); took > 4*time.Minute {
		t.Errorf("published after %v", took)
	}
}

// TestOnlyEditsAreCharged: while phoenixNAP refuses a tag that is fresh, its change is tried again and again. No edit
// has caused that, so the next edits do not wait.
func TestOnlyEditsAreCharged(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.TagPropagation = pnapsim.Duration(time.Minute) }))
	w.service("web", annotated(contract.ServiceIPRetain, "true"))
	w.syncFor("web", 5*time.Minute)
	for _, retain := range []string{"false", "true"} {
		w.edit("web", func(s *corev1.Service) { s.Annotations[contract.ServiceIPRetain] = retain })
		if _, err := w.sync("web"); err != nil && strings.Contains(err.Error(), "many times") {
			t.Errorf("retain=%s waits: %v", retain, err)
		}
		w.clock.Advance(10 * time.Second)
	}
}

// TestAFreshTagIsNotSentWithEachEdit: while phoenixNAP refuses a tag that is fresh, an author who edits the Service
// does not cause a request for each edit.
func TestAFreshTagIsNotSentWithEachEdit(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.TagPropagation = pnapsim.Duration(time.Minute) }))
	w.service("web")
	w.settle("web")
	mark := len(w.sim.Log(0))
	for n := range 6 {
		w.edit("web", func(s *corev1.Service) {
			s.Annotations[contract.ServiceIPRetain] = "true"
			s.Annotations["n"] = strconv.Itoa(n)
		})
		_, _ = w.sync("web")
		w.clock.Advance(100 * time.Millisecond)
	}
	sent := 0
	for _, entry := range w.sim.Log(0)[mark:] {
		if strings.HasPrefix(entry.Operation, "PUT") && strings.HasSuffix(entry.Operation, "/tags") {
			sent++
		}
	}
	if sent != 1 {
		t.Errorf("%d requests changed the tags in 600 ms, want 1", sent)
	}
}

// TestALongWaitHasPauses: a block that is being assigned for an hour is not read without pause.
func TestALongWaitHasPauses(t *testing.T) {
	w := newWorld(t, func(c *pnapsim.Config, _ *pnapsim.AccountSeed, _ *reconcile.Config) {
		latency := pnapsim.DefaultLatency()
		latency.Assign = pnapsim.Duration(2 * time.Hour)
		c.Latency = &latency
	})
	w.service("web")
	syncs := 0
	for start := w.clock.Now(); w.clock.Now().Sub(start) < time.Hour; syncs++ {
		_, err := w.sync("web")
		w.clock.Advance(max(w.pauseAfter(err), 50*time.Millisecond))
	}
	if syncs > 200 {
		t.Errorf("%d syncs in an hour", syncs)
	}
}
