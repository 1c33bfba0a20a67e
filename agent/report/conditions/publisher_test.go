package conditions

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// harness is a publisher at work on a Node of a fake API server.
type harness struct {
	*Publisher
	client *fake.Clientset

	mu          sync.Mutex
	written     []map[string]any
	transitions []Transition
	refuse      bool
}

func kubeletCondition() corev1.NodeCondition {
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}
}

// run runs test inside a bubble with a publisher that has seen a Node with the given conditions.
func run(t *testing.T, conditions []corev1.NodeCondition, test func(t *testing.T, b *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a", UID: "u1"},
			Status: corev1.NodeStatus{Conditions: conditions}}
		b := &harness{client: fake.NewClientset(node)}
		b.client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			patch, ok := action.(clienttesting.PatchAction)
			if !ok || action.GetSubresource() != "status" {
				t.Errorf("wrote %s %s/%s, want a patch of nodes/status", action.GetVerb(),
					action.GetResource().Resource, action.GetSubresource())
				return false, nil, nil
			}
			var content map[string]any
			if err := json.Unmarshal(patch.GetPatch(), &content); err != nil {
				t.Error(err)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.written = append(b.written, content)
			if b.refuse {
				return true, nil, errors.New("the API server is away")
			}
			return false, nil, nil
		})
		b.Publisher = New(b.client.CoreV1().Nodes(), "srv-a", func(_ *corev1.Node, tr Transition) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.transitions = append(b.transitions, tr)
		}, func(error) {})
		b.Observe(node)
		ctx, cancel := context.WithCancel(testlog.Context(t))
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		synctest.Wait()
		test(t, b)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended, want nil", err)
		}
	})
}

func (h *harness) patches() []map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.written)
}

func (h *harness) recorded() []Transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.transitions)
}

func (h *harness) setRefuse(refuse bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse = refuse
}

func (h *harness) condition(t *testing.T) *corev1.NodeCondition {
	t.Helper()
	node, err := h.client.CoreV1().Nodes().Get(t.Context(), "srv-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return contract.FindNodeCondition(node, contract.ConditionVLANReady)
}

func vlan(status corev1.ConditionStatus, reason string) Condition {
	return Condition{Type: contract.ConditionVLANReady, Status: status, Reason: reason, Message: "about " + reason}
}

func TestWritesOnlyOnChange(t *testing.T) {
	run(t, []corev1.NodeCondition{kubeletCondition()}, func(t *testing.T, b *harness) {
		b.Set(vlan(corev1.ConditionTrue, "Ready"))
		synctest.Wait()
		if c := b.condition(t); c == nil || c.Status != corev1.ConditionTrue {
			t.Fatalf("condition is %v at the same instant, want True", c)
		}
		writes := len(b.patches())
		for range 100 {
			b.Set(vlan(corev1.ConditionTrue, "Ready"))
			synctest.Wait()
		}
		if len(b.patches()) != writes {
			t.Errorf("%d writes in a steady state, want none", len(b.patches())-writes)
		}
		node, err := b.client.CoreV1().Nodes().Get(t.Context(), "srv-a", metav1.GetOptions{})
		if err != nil || contract.FindNodeCondition(node, corev1.NodeReady) == nil {
			t.Errorf("the kubelet's condition is gone (%v)", err)
		}
	})
}

func TestTransitionTime(t *testing.T) {
	run(t, nil, func(t *testing.T, b *harness) {
		b.Set(vlan(corev1.ConditionFalse, "VLANInterfaceDown"))
		synctest.Wait()
		first := b.condition(t).LastTransitionTime
		time.Sleep(10 * time.Second)
		b.Set(vlan(corev1.ConditionFalse, "GatewaySilent"))
		synctest.Wait()
		if c := b.condition(t); c.Reason != "GatewaySilent" || !c.LastTransitionTime.Equal(&first) {
			t.Errorf("after another reason: %s since %s, want GatewaySilent since %s", c.Reason, c.LastTransitionTime,
				first)
		}
		time.Sleep(10 * time.Second)
		b.Set(vlan(corev1.ConditionTrue, "Ready"))
		synctest.Wait()
		if c := b.condition(t); c.LastTransitionTime.Sub(first.Time) != 20*time.Second {
			t.Errorf("True since %s, want 20 s after %s", c.LastTransitionTime, first)
		}
		var got []corev1.ConditionStatus
		for _, tr := range b.recorded() {
			got = append(got, tr.From, tr.Status)
		}
		want := []corev1.ConditionStatus{"", corev1.ConditionFalse, corev1.ConditionFalse, corev1.ConditionTrue}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("transitions (-want +got):\n%s", diff)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	run(t, nil, func(t *testing.T, b *harness) {
		b.Set(vlan(corev1.ConditionTrue, "Ready"))
		synctest.Wait()
		since := b.condition(t).LastTransitionTime
		const hours = 10
		begin := len(b.patches())
		time.Sleep(hours * time.Hour)
		synctest.Wait()
		beats := len(b.patches()) - begin
		if beats < hours*60*10/55-1 || beats > hours*60*10/45+1 {
			t.Errorf("%d heartbeats in %d hours, want one every 4.5 to 5.5 minutes", beats, hours)
		}
		c := b.condition(t)
		if !c.LastTransitionTime.Equal(&since) || time.Since(c.LastHeartbeatTime.Time) > 6*time.Minute {
			t.Errorf("transition at %s, heartbeat at %s", c.LastTransitionTime, c.LastHeartbeatTime)
		}
		if len(b.recorded()) != 1 {
			t.Errorf("%d transitions, want only the first", len(b.recorded()))
		}
	})
}

func TestRestartKeepsTheTransition(t *testing.T) {
	old := metav1.NewTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
	existing := corev1.NodeCondition{Type: contract.ConditionVLANReady, Status: corev1.ConditionTrue, Reason: "Ready",
		Message: "about Ready", LastTransitionTime: old}
	run(t, []corev1.NodeCondition{existing}, func(t *testing.T, b *harness) {
		b.Set(vlan(corev1.ConditionTrue, "Ready"))
		synctest.Wait()
		if len(b.patches()) != 0 {
			t.Errorf("a restart wrote %v", b.patches())
		}
		b.Set(vlan(corev1.ConditionTrue, "Other"))
		synctest.Wait()
		if c := b.condition(t); !c.LastTransitionTime.Equal(&old) {
			t.Errorf("transition at %s, want %s", c.LastTransitionTime, old)
		}
	})
}

func TestOverwrittenConditionComesBack(t *testing.T) {
	run(t, nil, func(t *testing.T, b *harness) {
		b.Set(vlan(corev1.ConditionTrue, "Ready"))
		synctest.Wait()
		node, err := b.client.CoreV1().Nodes().Get(t.Context(), "srv-a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: contract.ConditionVLANReady,
			Status: corev1.ConditionUnknown, Reason: "AgentSilent"}}
		if _, err := b.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.Observe(node)
		synctest.Wait()
		if c := b.condition(t); c.Status != corev1.ConditionTrue {
			t.Errorf("condition is %s %s, want True again", c.Status, c.Reason)
		}
	})
}

func TestStaleWatchIsNoReasonToWrite(t *testing.T) {
	run(t, nil, func(t *testing.T, b *harness) {
		b.Observe(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a", UID: "u1", ResourceVersion: "20"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: contract.ConditionVLANReady,
				Status: corev1.ConditionTrue, Reason: "Ready", Message: "about Ready"}}}})
		b.Set(vlan(corev1.ConditionTrue, "Ready"))
		b.Observe(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a", UID: "u1", ResourceVersion: "9"}})
		synctest.Wait()
		if len(b.patches()) != 0 {
			t.Errorf("an older version of the Node made it write %v", b.patches())
		}
		b.Observe(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a", UID: "u2", ResourceVersion: "8"}})
		synctest.Wait()
		if len(b.patches()) != 1 {
			t.Errorf("a new Node of that name got %d writes, want 1", len(b.patches()))
		}
	})
}

func TestRetriesWithGrowingPauses(t *testing.T) {
	run(t, nil, func(t *testing.T, b *harness) {
		b.setRefuse(true)
		b.Set(vlan(corev1.ConditionFalse, "VLANInterfaceDown"))
		time.Sleep(time.Hour)
		synctest.Wait()
		// 0, 0.2, 0.6, 1.4, 3, 6.2, 12.6, 25.4 s, and then one every half minute, give or take a tenth.
		if attempts := len(b.patches()); attempts < 8+3600/33 || attempts > 10+3600/27 {
			t.Errorf("%d attempts in an hour, want about %d", attempts, 8+3600/30)
		}
		if len(b.recorded()) != 0 {
			t.Errorf("recorded %d transitions that were not written", len(b.recorded()))
		}
		b.setRefuse(false)
		time.Sleep(lastRetry + lastRetry/10)
		synctest.Wait()
		if c := b.condition(t); c == nil || c.Status != corev1.ConditionFalse {
			t.Errorf("condition is %v after the API server is back, want False", c)
		}
	})
}

func TestDeletedNodeIsNotWritten(t *testing.T) {
	run(t, nil, func(t *testing.T, b *harness) {
		b.Observe(nil)
		b.Set(vlan(corev1.ConditionTrue, "Ready"))
		b.Annotate(contract.NodeReportedIdentity, "{}")
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(b.patches()) != 0 {
			t.Errorf("wrote %v to a Node that is not there", b.patches())
		}
	})
}

func TestPatchHoldsOnlyOurs(t *testing.T) {
	run(t, []corev1.NodeCondition{kubeletCondition()}, func(t *testing.T, b *harness) {
		b.Set(vlan(corev1.ConditionTrue, "Ready"))
		b.Annotate(contract.NodeReportedIdentity, `{"hostname":"srv-a"}`)
		synctest.Wait()
		for _, p := range b.patches() {
			for key := range p {
				if key != "metadata" && key != "status" {
					t.Errorf("patch has %q", key)
				}
			}
			if status, has := p["status"].(map[string]any); has && len(status) != 1 {
				t.Errorf("patch of the status is %v, want only conditions", status)
			}
			metadata, _ := p["metadata"].(map[string]any)
			delete(metadata, "annotations")
			if len(metadata) != 1 || metadata["uid"] != "u1" {
				t.Errorf("patch of the metadata is %v besides annotations, want only the UID as a precondition",
					metadata)
			}
		}
		node, err := b.client.CoreV1().Nodes().Get(t.Context(), "srv-a", metav1.GetOptions{})
		if err != nil || node.Annotations[contract.NodeReportedIdentity] != `{"hostname":"srv-a"}` {
			t.Errorf("annotations are %v (%v)", node.Annotations, err)
		}
	})
}
