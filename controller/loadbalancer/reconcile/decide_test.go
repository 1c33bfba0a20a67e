package reconcile

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestBackoffsOfABlockInError(t *testing.T) {
	now := noon
	r := newBackoffs(func() time.Time { return now })
	stuck := ipblock.Step{Action: ipblock.Unassign, Block: network.Block{ID: "a", Status: network.ErrorUnassigning}}
	other := ipblock.Step{Action: ipblock.Unassign, Block: network.Block{ID: "a", Status: network.Assigned}}
	var tries []time.Duration
	for ; now.Sub(noon) < time.Hour; now = now.Add(30 * time.Second) {
		if !r.inError(stuck) {
			r.tried(stuck)
			tries = append(tries, now.Sub(noon))
		}
		if r.inError(other) {
			t.Fatal("a block that is not in error is quarantined")
		}
	}
	want := []time.Duration{0, time.Minute, 3 * time.Minute, 7 * time.Minute, 15 * time.Minute, 31 * time.Minute,
		47 * time.Minute}
	if diff := cmp.Diff(want, tries); diff != "" {
		t.Errorf("tries (-want +got):\n%s", diff)
	}
	r.tried(ipblock.Step{Action: ipblock.Delete, Block: network.Block{ID: "a"}})
	if len(r.errors) != 0 {
		t.Errorf("a deleted block is remembered: %v", r.errors)
	}
}

func TestConflictIsBackedOff(t *testing.T) {
	now := noon
	r := newBackoffs(func() time.Time { return now })
	step := ipblock.Step{Action: ipblock.Assign, Reason: ipblock.AssignmentDue, Block: network.Block{ID: "a"}}
	r.refused(step)
	for _, test := range []struct {
		after time.Duration
		want  ipblock.Reason
	}{{0, ipblock.NetworkChanging}, {time.Second, ipblock.NetworkChanging}, {conflictBackoff, ipblock.AssignmentDue}} {
		now = noon.Add(test.after)
		if got := r.reasonFor(step); got != test.want {
			t.Errorf("%s after a conflict the block stands at %s, want %s", test.after, got, test.want)
		}
	}
}

// checksOf are when a wait is checked, in seconds since its begin, within that time.
func checksOf(p *pace, w waiting, within time.Duration) (checks []float64) {
	for now := noon; len(checks) < 20; {
		if now = now.Add(p.next("a", now, w)); now.Sub(noon) > within {
			return checks
		}
		checks = append(checks, now.Sub(noon).Round(100*time.Millisecond).Seconds())
	}
	return checks
}

func TestPaceGrowsWithTheWait(t *testing.T) {
	p := newPace()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: "a", ResourceVersion: "1"}}
	if !p.freshness(service, noon).IsZero() {
		t.Error("who waits for nothing wants a fresh picture")
	}
	pause := p.next("a", noon, waiting{reason: ipblock.PurchaseUnanswered})
	if fresh := p.freshness(service, noon); noon.Sub(fresh) != pause/2 {
		t.Errorf("waiting %s wants a picture %s old", pause, noon.Sub(fresh))
	}
	p.done("a")
	if !p.freshness(service, noon).IsZero() {
		t.Error("who has arrived wants a fresh picture")
	}
	p.recordVersion("a", service.ResourceVersion)
	if fresh := p.freshness(service, noon); noon.Sub(fresh) != account.PeriodicMaxAge {
		t.Errorf("who has arrived and did not change wants a picture %s old", noon.Sub(fresh))
	}
	service.ResourceVersion = "2"
	if !p.freshness(service, noon).IsZero() {
		t.Error("who was changed by a user does not want a picture of the last half minute")
	}
	checks := checksOf(p, waiting{reason: ipblock.PurchaseUnanswered}, 3*time.Minute)
	if checks[0] != 0.3 || checks[len(checks)-1]-checks[len(checks)-2] != lastPause.Seconds() || len(checks) > 13 {
		t.Errorf("the account is read after %v s", checks)
	}
}

// TestChecksOfABlock: soon at first, later not much before what the account took the last time, and after a minute
// seldom: then the check for drift shows the end.
func TestChecksOfABlock(t *testing.T) {
	for usual, want := range map[time.Duration][]float64{
		0:                {1, 3.2, 8, 18.7, 42.1, 72.1},
		time.Second:      {1, 2, 4.2, 9, 19.7, 43.1, 73.1},
		20 * time.Second: {20, 22.5, 28, 40.1, 70.1},
		time.Minute:      {60, 67.5, 84},
		5 * time.Minute:  {60},
	} {
		p := newPace()
		w := waiting{reason: ipblock.BlockAssigning, block: "block", network: "network"}
		p.recordDuration(waiting{reason: ipblock.BlockUnassigning, since: noon.Add(-usual), checks: 1}, noon)
		if usual == 0 {
			p = newPace()
		}
		if got := checksOf(p, w, 90*time.Second); !slices.Equal(got, want) {
			t.Errorf("after %s the last time it is checked after %v s, want %v", usual, got, want)
		}
	}
}

// TestTheNetworkIsNotReadWhileAnotherServiceChangesIt: the end of that change is checked by the other one.
func TestTheNetworkIsNotReadWhileAnotherServiceChangesIt(t *testing.T) {
	p := newPace()
	due := p.next("a", noon, waiting{reason: ipblock.BlockAssigning, block: "block", network: "network"})
	waits := waiting{reason: ipblock.NetworkChanging, network: "network"}
	if got := p.next("b", noon, waits); got != due+behind {
		t.Errorf("it waits %s, the other one %s", got, due)
	}
	if !p.blocked("network", "b", noon.Add(due)) || p.blocked("another", "b", noon) || p.blocked("network", "a", noon) {
		t.Error("another network, or the change itself, is taken for that of another Service")
	}
	if p.blocked("network", "b", noon.Add(due+behind)) {
		t.Error("a wait that no Service continues keeps the others waiting")
	}
}

func TestConditionChangesOnlyWhenSomethingElseIsSaid(t *testing.T) {
	now := noon
	b := &Balancer{config: Config{Now: func() time.Time { return now }}}
	d := NewDraft(nil, &corev1.Service{})
	waiting := func(at time.Time, reason ipblock.Reason) bool {
		now = at
		return b.setConditions(d, blockCondition(reason, words(reason)))
	}
	if !waiting(noon, ipblock.BlockCreating) || waiting(noon.Add(time.Minute), ipblock.BlockCreating) {
		t.Error("the first condition is no change, or the same one is")
	}
	if !waiting(noon.Add(2*time.Minute), ipblock.BlockAssigning) ||
		!d.Service.Status.Conditions[0].LastTransitionTime.Time.Equal(noon) {
		t.Errorf("another reason: %+v; the time of transition is that of the status", d.Service.Status.Conditions[0])
	}
	if !waiting(noon.Add(3*time.Minute), ipblock.BlockAssigned) ||
		!d.Service.Status.Conditions[0].LastTransitionTime.Time.Equal(noon.Add(3*time.Minute)) {
		t.Errorf("assigned: %+v", d.Service.Status.Conditions[0])
	}
}

// TestEveryReasonHasWords: a state without words of its own would look like another.
func TestEveryReasonHasWords(t *testing.T) {
	for _, reason := range []ipblock.Reason{
		ipblock.PurchaseDue, ipblock.PurchaseUnanswered, ipblock.BlockCreating, ipblock.BlockInvisible,
		ipblock.AssignmentDue,
		ipblock.BlockAssigning, ipblock.BlockAssigned, ipblock.UnassignmentDue, ipblock.BlockUnassigning,
		ipblock.DeletionDue, ipblock.DeletionUnverified, ipblock.NetworkChanging, ipblock.NetworkUnreadable,
		reasonLookupFailed, reasonReleaseFailed, ipblock.NoNodeReady, purchase.TagsFresh, waitOutdated,
		reasonBackingOff, purchase.APIPaused, ipblock.AddressQuarantined, waitLedger, waitSurplus, reasonRetagging,
		reasonAnnounced,
	} {
		if words(reason) == words("") {
			t.Errorf("reason %s has no words", reason)
		}
	}
}

func TestWithdrawalLeavesWhatUsersChose(t *testing.T) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			contract.ServiceIPAddress: "203.0.113.10", contract.KubeVIPAddresses: "192.0.2.1",
			contract.KubeVIPInterface: "eth9", "team": "a",
		}},
		Spec: corev1.ServiceSpec{LoadBalancerIP: "192.0.2.1"},
	}
	b := &Balancer{announcer: announcer.For(contract.AnnouncerKubeVIP,
		announcer.Deps{Network: network.Named{ID: "net1"}})}
	nodes := []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Annotations: nodenet.Member("net1")}}}
	nodes[0].Annotations[contract.NodeReportedIdentity] = `{"vlanInterfaces":{"net1":{"name":"bond0.20"}}}`
	want := fields{annotations: map[string]any{contract.ServiceIPAddress: nil}}
	if diff := cmp.Diff(want, b.withdrawal(service, nodes), cmp.AllowUnexported(fields{})); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	service.Annotations[contract.KubeVIPAddresses] = "203.0.113.10"
	service.Annotations[contract.KubeVIPInterface] = "bond0.20"
	service.Spec.LoadBalancerIP = "203.0.113.10"
	want = fields{
		annotations: map[string]any{contract.ServiceIPAddress: nil, contract.KubeVIPAddresses: nil,
			contract.KubeVIPInterface: nil},
		respec: true,
	}
	if diff := cmp.Diff(want, b.withdrawal(service, nodes), cmp.AllowUnexported(fields{})); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

// TestEditsHaveABudget: a look costs only if someone else has written the Service, and nothing is due, or the author
// wants something else by now.
func TestEditsHaveABudget(t *testing.T) {
	l := newLooks()
	take := func(version int, wanted wants, at time.Time) time.Duration {
		return l.take(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web",
			ResourceVersion: strconv.Itoa(version)}}, wanted, at)
	}
	address := wants{address: true}
	for version := range looksAtOnce {
		if wait := take(version, address, noon); wait != 0 {
			t.Errorf("edit %d waits %s", version, wait)
		}
	}
	due := noon.Add(time.Second)
	l.served(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "100"}}, address, due)
	for _, test := range []struct {
		name    string
		version int
		wanted  wants
		at      time.Time
		want    time.Duration
	}{
		{"what the last sync left", 100, address, noon, 0},
		{"one edit too many", 101, address, noon, betweenLooks},
		{"what is due", 101, address, due, 0},
		{"what is due, and something else is wanted", 101, wants{}, due, betweenLooks - time.Second},
		{"an edit when a look may be had once more", 101, wants{}, noon.Add(betweenLooks), 0},
	} {
		if wait := take(test.version, test.wanted, test.at); wait.Round(time.Millisecond) != test.want {
			t.Errorf("%s waits %s, want %s", test.name, wait, test.want)
		}
	}
	if l.forget(noon.Add(time.Hour)); len(l.byName) != 0 {
		t.Errorf("after an hour, %d Services are remembered", len(l.byName))
	}
}
