package balancer

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// node is a Node; ready is the status of its condition, empty for a node without an agent, and vlan the
// interface that its agent reports, "-" for a report without one.
func node(network string, ready corev1.ConditionStatus, vlan string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		contract.NodePublicNetworkID: network, contract.NodePublicNetworkMember: fmt.Sprint(network != ""),
	}}}
	if ready != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: contract.ConditionVLANReady, Status: ready}}
	}
	switch vlan {
	case "":
	case "-":
		n.Annotations[contract.NodeReportedIdentity] = `{"hostname":"n"}`
	case "garbage":
		n.Annotations[contract.NodeReportedIdentity] = `{`
	default:
		n.Annotations[contract.NodeReportedIdentity] = `{"vlanInterface":"` + vlan + `"}`
	}
	return n
}

func TestAnyNodeReadyAndCommonInterface(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes []*corev1.Node
		ready bool
		vlan  string
	}{
		{"no node", nil, true, ""},
		{"no agent", []*corev1.Node{node("net1", "", ""), node("net1", "", "")}, true, ""},
		{"one of two ready", []*corev1.Node{node("net1", "False", "bond0.20"), node("net1", "True", "bond0.20")}, true, "bond0.20"},
		{"none ready", []*corev1.Node{node("net1", "False", "bond0.20"), node("net1", "Unknown", "bond0.20")}, false, "bond0.20"},
		{"ready node is no member", []*corev1.Node{node("", "True", "bond0.20")}, false, ""},
		{"ready node is in another network", []*corev1.Node{node("net2", "True", "bond0.21"), node("net1", "False", "bond0.20")}, false, "bond0.20"},
		{"agent on one node only, not ready", []*corev1.Node{node("net1", "False", "bond0.20"), node("net1", "", "")}, false, "bond0.20"},
		{"names differ", []*corev1.Node{node("net1", "True", "bond0.20"), node("net1", "True", "vlan20")}, true, ""},
		{"one reports none", []*corev1.Node{node("net1", "True", "bond0.20"), node("net1", "False", "-")}, true, ""},
		{"one reports garbage", []*corev1.Node{node("net1", "True", "bond0.20"), node("net1", "True", "garbage")}, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := anyNodeReady(test.nodes, "net1"); got != test.ready {
				t.Errorf("ready is %t, want %t", got, test.ready)
			}
			if got := commonInterface(test.nodes, "net1"); got != test.vlan {
				t.Errorf("interface is %q, want %q", got, test.vlan)
			}
		})
	}
}

func TestWakePacesItself(t *testing.T) {
	var last wake
	var at []time.Duration
	for passed := time.Duration(0); passed < 4*time.Minute; passed += time.Second {
		next, due := last.next(ipblock.UnassignmentDue, noon.Add(passed))
		last = next
		if due {
			at = append(at, passed)
		}
	}
	want := []time.Duration{
		0, 5 * time.Second, 15 * time.Second, 35 * time.Second, 75 * time.Second, 135 * time.Second, 195 * time.Second,
	}
	if diff := cmp.Diff(want, at); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if _, due := last.next(ipblock.DeletionDue, noon.Add(196*time.Second)); !due {
		t.Error("a block that moved on does not wake its Service at once")
	}
}

func TestRestsOfABlockInError(t *testing.T) {
	now := noon
	b := New(Config{Now: func() time.Time { return now }})
	stuck := ipblock.Step{Action: ipblock.Unassign, Block: ipblock.Block{ID: "a", Status: ipblock.ErrorUnassigning}}
	other := ipblock.Step{Action: ipblock.Unassign, Block: ipblock.Block{ID: "a", Status: ipblock.Assigned}}
	var tries []time.Duration
	for ; now.Sub(noon) < time.Hour; now = now.Add(30 * time.Second) {
		if !b.rests(stuck) {
			b.tried(stuck)
			tries = append(tries, now.Sub(noon))
		}
		if b.rests(other) {
			t.Fatal("a block that is not in error rests")
		}
	}
	want := []time.Duration{0, time.Minute, 3 * time.Minute, 7 * time.Minute, 15 * time.Minute, 31 * time.Minute, 47 * time.Minute}
	if diff := cmp.Diff(want, tries); diff != "" {
		t.Errorf("tries (-want +got):\n%s", diff)
	}
	b.tried(ipblock.Step{Action: ipblock.Delete, Block: ipblock.Block{ID: "a"}})
	if len(b.restsByID) != 0 {
		t.Errorf("a deleted block is remembered: %v", b.restsByID)
	}
}

func TestConditionChangesOnlyWhenSomethingElseIsSaid(t *testing.T) {
	service := &corev1.Service{}
	waiting := func(now time.Time, reason ipblock.Reason) bool {
		condition, changed := nextCondition(service, reason, words(reason), now)
		if changed {
			service.Status.Conditions = []metav1.Condition{condition}
		}
		return changed
	}
	if !waiting(noon, ipblock.BlockCreating) || waiting(noon.Add(time.Minute), ipblock.BlockCreating) {
		t.Error("the first condition is no change, or the same one is")
	}
	if !waiting(noon.Add(2*time.Minute), ipblock.BlockAssigning) || !service.Status.Conditions[0].LastTransitionTime.Time.Equal(noon) {
		t.Errorf("another reason: %+v; the time of transition is that of the status", service.Status.Conditions[0])
	}
	if !waiting(noon.Add(3*time.Minute), ipblock.BlockAssigned) || !service.Status.Conditions[0].LastTransitionTime.Time.Equal(noon.Add(3*time.Minute)) {
		t.Errorf("assigned: %+v", service.Status.Conditions[0])
	}
}

// TestEveryReasonHasWords: a state without words of its own would look like another.
func TestEveryReasonHasWords(t *testing.T) {
	for _, reason := range []ipblock.Reason{
		ipblock.PurchaseDue, ipblock.PurchaseUnanswered, ipblock.BlockCreating, ipblock.BlockInvisible, ipblock.AssignmentDue,
		ipblock.BlockAssigning, ipblock.BlockAssigned, ipblock.UnassignmentDue, ipblock.BlockUnassigning, ipblock.DeletionDue,
		ipblock.DeletionUnverified, ipblock.NoBlock, ipblock.NetworkChanging, ipblock.NetworkUnreadable, reasonLookupFailed,
		reasonReleaseFailed, reasonNoNodeReady, reasonTagsFresh, reasonOutdated, reasonResting, reasonPaused,
	} {
		if words(reason) == words("") {
			t.Errorf("reason %s has no words", reason)
		}
	}
}

func TestWithdrawalLeavesWhatUsersChose(t *testing.T) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			contract.ServiceIPAddress: "203.0.113.10", contract.KubeVIPAddresses: "192.0.2.1", contract.KubeVIPInterface: "eth9", "team": "a",
		}},
		Spec: corev1.ServiceSpec{LoadBalancerIP: "192.0.2.1"},
	}
	want := patch{annotations: map[string]any{contract.ServiceIPAddress: nil}}
	if diff := cmp.Diff(want, withdrawal(service, "bond0.20"), cmp.AllowUnexported(patch{})); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	service.Annotations[contract.KubeVIPAddresses], service.Annotations[contract.KubeVIPInterface] = "203.0.113.10", "bond0.20"
	service.Spec.LoadBalancerIP = "203.0.113.10"
	want = patch{
		annotations: map[string]any{contract.ServiceIPAddress: nil, contract.KubeVIPAddresses: nil, contract.KubeVIPInterface: nil},
		spec:        map[string]any{"loadBalancerIP": nil},
	}
	if diff := cmp.Diff(want, withdrawal(service, "bond0.20"), cmp.AllowUnexported(patch{})); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}
