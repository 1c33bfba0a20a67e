package plan_test

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// answeredAt is a Node whose agent reports that the address answers.
func answeredAt(address string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{
		contract.NodeReportedAddresses: `{"` + address + `":{"state":"Answered","since":"2026-03-01T12:00:00Z"}}`,
	}}}
}

// TestReleaseWaitsForTheAgents: the release plan waits for the agents to stop answering, for at most ten seconds since
// the Service is known to leave, and returns that time for the next decision. It depends on nothing but its values.
func TestReleaseWaitsForTheAgents(t *testing.T) {
	const wait = 10 * time.Second
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tc := range map[string]struct {
		wait             time.Duration
		leaving, deleted time.Time
		answering        bool
		remember         time.Time
	}{
		"not waited for":         {leaving: ago(time.Second)},
		"that it leaves is news": {wait: wait, answering: true, remember: now},
		"it has left for a moment": {wait, ago(9 * time.Second), time.Time{}, true,
			ago(9 * time.Second)},
		"it has left for too long": {wait, ago(10 * time.Second), time.Time{}, false,
			ago(10 * time.Second)},
		"it was deleted before": {wait, ago(time.Second), ago(10 * time.Second), false,
			ago(time.Second)},
		"it was deleted a moment ago": {wait, time.Time{}, ago(time.Second), true, now},
	} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "u",
			Annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.10"},
		}}
		if !tc.deleted.IsZero() {
			service.DeletionTimestamp = &metav1.Time{Time: tc.deleted}
		}
		observed := plan.Observed{
			Service: service, Owner: plan.OwnerOf(service, "cluster"), Holder: plan.HolderOf(service), Ours: true,
			Account: ipblock.Account{Network: network.Named{ID: "n"}, Now: now,
				Networks: map[string]network.Network{"n": {ID: "n", Status: network.StatusReady}}},
			Nodes: []*corev1.Node{answeredAt("203.0.113.10")}, Options: plan.Options{ReleaseWait: tc.wait},
			LeavingSince: tc.leaving,
		}
		for range 2 { // the same values lead to the same plan
			got := plan.PlanRelease(observed.Complete(), service)
			if got.Answering != tc.answering || !got.LeavingSince.Equal(tc.remember) {
				t.Errorf("%s: answering %t, leaving since %s", name, got.Answering, got.LeavingSince)
			}
		}
	}
}

// TestStaleAddressIsDueOnce: an address that answers though no Service has it is due once, when it has answered for
// long enough without a pause. What was remembered stays as it was.
func TestStaleAddressIsDueOnce(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	address := netip.MustParseAddr("203.0.113.10")
	var remembered map[netip.Addr]plan.StaleAddress
	for _, step := range []struct {
		after     time.Duration
		answering []netip.Addr
		due       int
	}{
		{0, []netip.Addr{address}, 0},
		{plan.WithdrawalAllowed - time.Second, []netip.Addr{address}, 0},
		{plan.WithdrawalAllowed, []netip.Addr{address}, 1},
		{2 * plan.WithdrawalAllowed, []netip.Addr{address}, 0},
		{3 * plan.WithdrawalAllowed, nil, 0},
		{4 * plan.WithdrawalAllowed, []netip.Addr{address}, 0},
		{5 * plan.WithdrawalAllowed, []netip.Addr{address}, 1},
	} {
		before := maps.Clone(remembered)
		due, next := plan.DueStale(remembered, step.answering, begin.Add(step.after))
		if len(due) != step.due {
			t.Errorf("after %s: %d due, want %d", step.after, len(due), step.due)
		}
		if !maps.Equal(before, remembered) {
			t.Errorf("after %s: what was remembered changed: %v", step.after, remembered)
		}
		remembered = next
	}
}
