package reconcile_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

//proves:service-changes/delete
func TestServiceGetsAndReleasesItsBlock(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	took := w.settle("web")
	if took > 2*time.Minute {
		t.Errorf("published after %s", took)
	}
	w.wantBlocks("203.0.113.8/29 assigned")
	w.wantPurchases(1)

	service := w.get("web")
	wantAnnotations := map[string]string{
		contract.KubeVIPAddresses:       "203.0.113.10",
		contract.ServiceIPAddress:       "203.0.113.10",
		contract.ServiceIPBlockCIDR:     "203.0.113.8/29",
		contract.ServiceIPGateway:       "203.0.113.9",
		contract.ServiceIPBlockAssigned: "true",
		contract.ServiceIPOwner:         string(service.UID),
	}
	if diff := cmp.Diff(wantAnnotations, service.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if service.Spec.LoadBalancerIP != "203.0.113.10" {
		t.Errorf("spec.loadBalancerIP is %q", service.Spec.LoadBalancerIP)
	}
	mode := corev1.LoadBalancerIPModeVIP
	wantStatus := []corev1.LoadBalancerIngress{{IP: "203.0.113.10", IPMode: &mode, Ports: []corev1.PortStatus{
		{Port: 80, Protocol: corev1.ProtocolTCP}, {Port: 53, Protocol: corev1.ProtocolUDP},
	}}}
	if diff := cmp.Diff(wantStatus, service.Status.LoadBalancer.Ingress); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if c := w.condition("web"); c.Status != "True" || c.Reason != "BlockAssigned" {
		t.Errorf("condition is %s %s", c.Status, c.Reason)
	}

	w.delete("web")
	w.settle("web")
	w.wantBlocks()
	if w.get("web") != nil {
		t.Error("the Service is still there")
	}
	want := []string{"IPBlockBought", "IPBlockAssigning", "IPBlockAssigned", "IPBlockUnassigning", "IPBlockReleased"}
	if diff := cmp.Diff(want, w.eventReasons()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if leaks := w.sim.LeakCheck(clientID); len(leaks) != 0 {
		t.Errorf("blocks left: %v", leaks)
	}
}

// TestWaitingIsWordedAsWaiting: what the framework turns into events is constant for each state.
//
//proves:known-bugs/unstable-errors
func TestWaitingIsWordedAsWaiting(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	w.delete("web")
	w.settle("web")
	var states []string
	for i, said := range w.said {
		if i == 0 || w.said[i-1] != said {
			states = append(states, said)
		}
	}
	want := []string{
		"waiting for new tags to be usable",
		"waiting for IP block to be created",
		"waiting for IP block to be assigned to the public network",
		"waiting for IP block to be unassigned from its network",
	}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}

//proves:known-bugs/preset-load-balancer-ip
//proves:known-bugs/type-change-leftovers
//proves:service-changes/type-away
func TestTypeChangeReleasesAndCleansUp(t *testing.T) {
	w := newWorld(t)
	w.service("web", func(s *corev1.Service) { s.Annotations = map[string]string{"team": "a"} })
	w.settle("web")
	w.edit("web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	w.settle("web")
	w.wantBlocks()
	service := w.get("web")
	if diff := cmp.Diff(map[string]string{"team": "a"}, service.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if service.Spec.LoadBalancerIP != "" || len(service.Status.Conditions) != 0 || len(service.Finalizers) != 0 {
		t.Errorf("left behind: loadBalancerIP %q, conditions %v, finalizers %v", service.Spec.LoadBalancerIP,
			service.Status.Conditions, service.Finalizers)
	}
	w.edit("web", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
	})
	w.settle("web")
	w.wantBlocks("203.0.113.16/29 assigned") // the freed block is not sold again at once
}

func TestServiceThatNeverHadABlockIsDeletedWithoutAsking(t *testing.T) {
	w := newWorld(t)
	w.service("web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	w.settle("web")
	if reasons := w.eventReasons(); len(reasons) != 0 {
		t.Errorf("events %v", reasons)
	}
}

//proves:known-bugs/needless-writes
func TestSteadyStateChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	version := w.get("web").ResourceVersion
	before := w.sim.Counters()
	if done, err := w.ensure(w.lb, w.get("web")); err != nil || len(done.Ingress) != 1 {
		t.Fatalf("%v, %v", done, err)
	}
	if now := w.get("web").ResourceVersion; now != version {
		t.Errorf("the Service was written: version %s, then %s", version, now)
	}
	for operation, counts := range w.sim.Counters() {
		asked := total(counts) - total(before[operation])
		if operation[:3] != "GET" && asked != 0 || asked > 1 {
			t.Errorf("%s was asked %d times", operation, asked)
		}
	}
}

func total(counts map[int]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// TestTwoServicesTakeTurns: a network takes one change at a time.
//
//proves:known-bugs/busy-network
func TestTwoServicesTakeTurns(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.service("api")
	for range 60 {
		for _, name := range []string{"web", "api"} {
			_, _ = w.sync(name)
		}
		w.clock.Advance(interval)
	}
	w.wantBlocks("203.0.113.8/29 assigned", "203.0.113.16/29 assigned")
	if a, b := w.get("web").Spec.LoadBalancerIP, w.get("api").Spec.LoadBalancerIP; a == b || a == "" || b == "" {
		t.Errorf("addresses %q and %q", a, b)
	}
	if got := w.sim.Counters()["POST /networks/v1/public-networks/{networkId}/ip-blocks"][409]; got != 0 {
		t.Errorf("the network refused %d changes because it was busy", got)
	}
}
