package metadata

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// labelHarness is a running Labeller with a fake API server, in a synctest bubble.
type labelHarness struct {
	t      *testing.T
	client *fake.Clientset
	events *record.FakeRecorder
	stop   func()
}

func newLabelHarness(t *testing.T, selector labels.Selector, nodes ...*corev1.Node) *labelHarness {
	t.Helper()
	return newLabelHarnessOn(t, fake.NewClientset(), selector, nodes...)
}

func newLabelHarnessOn(t *testing.T, client *fake.Clientset, selector labels.Selector,
	nodes ...*corev1.Node) *labelHarness {
	t.Helper()
	for _, node := range nodes {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	client.ClearActions()
	factory := informers.NewSharedInformerFactory(client, 0)
	events := record.NewFakeRecorder(100)
	labeller, err := NewLabeller(client, factory.Core().V1().Nodes(), events,
		contract.Carriers{Selector: selector}.Everywhere())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testlog.Context(t))
	factory.Start(ctx.Done())
	done := make(chan error)
	go func() { done <- labeller.Run(ctx) }()
	b := &labelHarness{t: t, client: client, events: events}
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	}
	// Informers of the fake client poll for their first sync every 100 ms.
	pass(time.Second)
	synctest.Wait()
	return b
}

// pass advances the time in the bubble.
func pass(d time.Duration) { <-time.After(d) }

func readyNode(name string, status corev1.ConditionStatus, labelled bool) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: nodenet.Member("n")},
		Spec:       corev1.NodeSpec{ProviderID: contract.ProviderID("60473c2509268bc77fd06d31")},
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: contract.ConditionVLANReady, Status: status,
		Reason: "VLANInterfaceDown"}}
	if labelled {
		node.Labels[contract.NodeVLANReady] = "true"
	}
	return node
}

func (b *labelHarness) set(name string, status corev1.ConditionStatus) {
	b.t.Helper()
	node, err := b.client.CoreV1().Nodes().Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	node.Status.Conditions[0].Status = status
	if _, err := b.client.CoreV1().Nodes().UpdateStatus(b.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *labelHarness) labelled(name string) bool {
	b.t.Helper()
	synctest.Wait()
	node, err := b.client.CoreV1().Nodes().Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return node.Labels[contract.NodeVLANReady] == "true"
}

// after expects the label of the node to change to want after d and not earlier.
func (b *labelHarness) after(d time.Duration, name string, want bool) {
	b.t.Helper()
	pass(d - time.Millisecond)
	if b.labelled(name) == want {
		b.t.Errorf("%s: label is %v before %v", name, want, d)
	}
	pass(time.Millisecond)
	if b.labelled(name) != want {
		b.t.Errorf("%s: label is not %v after %v", name, want, d)
	}
}

//proves:service-changes/vlan-lost
func TestLabelFollowsTheCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLabelHarness(t, nil, readyNode("a", corev1.ConditionTrue, false),
			readyNode("b", corev1.ConditionTrue, true))
		defer b.stop()
		pass(admitAfter)
		if !b.labelled("a") {
			t.Fatal("a has no label")
		}
		b.set("a", corev1.ConditionFalse)
		b.after(excludeAfter, "a", false)
		b.set("a", corev1.ConditionTrue)
		b.after(2*admitAfter, "a", true)
		b.set("a", corev1.ConditionUnknown)
		b.after(doubtAfter, "a", false)
		b.expectEvents("Normal "+ReasonAdmitted, "Warning "+ReasonExcluded, "Normal "+ReasonAdmitted,
			"Warning "+ReasonExcluded)
	})
}

// expectEvents expects these kinds and reasons of events, in this order.
func (b *labelHarness) expectEvents(want ...string) {
	b.t.Helper()
	var got []string
	for len(b.events.Events) > 0 {
		got = append(got, strings.Join(strings.Fields(<-b.events.Events)[:2], " "))
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("events %q, want %q", got, want)
	}
}

func TestFlappingNodeKeepsItsLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLabelHarness(t, nil, readyNode("a", corev1.ConditionTrue, true),
			readyNode("b", corev1.ConditionTrue, true))
		defer b.stop()
		for range 20 {
			b.set("a", corev1.ConditionFalse)
			pass(excludeAfter - time.Second)
			b.set("a", corev1.ConditionTrue)
			pass(time.Second)
		}
		if !b.labelled("a") {
			t.Error("a lost its label")
		}
	})
}

func TestLastLabelStaysUntilAnotherIsGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLabelHarness(t, nil, readyNode("a", corev1.ConditionTrue, true),
			readyNode("b", corev1.ConditionTrue, true))
		defer b.stop()
		pass(admitAfter)
		b.set("a", corev1.ConditionFalse)
		b.set("b", corev1.ConditionFalse)
		pass(time.Hour)
		if !b.labelled("a") || !b.labelled("b") {
			t.Error("all Nodes look bad, but a label was removed")
		}
		b.set("b", corev1.ConditionTrue)
		b.after(admitAfter, "a", false)
		if !b.labelled("b") {
			t.Error("b lost its label")
		}
	})
}

func TestSteadyStateWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLabelHarness(t, nil, readyNode("a", corev1.ConditionTrue, true),
			readyNode("b", corev1.ConditionFalse, false))
		defer b.stop()
		b.client.ClearActions()
		for range 100 {
			b.set("a", corev1.ConditionTrue) // a heartbeat
			pass(time.Minute)
		}
		synctest.Wait()
		for _, action := range b.client.Actions() {
			if action.GetVerb() == "patch" {
				t.Errorf("unexpected %v", action)
			}
		}
		if len(b.events.Events) > 0 {
			t.Errorf("unexpected event %q", <-b.events.Events)
		}
	})
}

//proves:known-bugs/missed-nodes
func TestSelectorLimitsTheLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edge := readyNode("edge", corev1.ConditionTrue, false)
		edge.Labels["role"] = "edge"
		b := newLabelHarness(t, labels.SelectorFromSet(labels.Set{"role": "edge"}), edge,
			readyNode("inner", corev1.ConditionTrue, true))
		defer b.stop()
		pass(2 * admitAfter)
		if !b.labelled("edge") || b.labelled("inner") {
			t.Errorf("edge %v, inner %v", b.labelled("edge"), b.labelled("inner"))
		}
	})
}

// Before a Node loses the label in favor of another, the other one is read live.
func TestNothingIsTakenOnTheWordOfTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lie atomic.Bool
		client := fake.NewClientset()
		client.PrependReactor("get", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if get, ok := action.(clienttesting.GetAction); ok && get.GetName() == "b" && lie.Load() {
				return true, readyNode("b", corev1.ConditionFalse, true), nil
			}
			return false, nil, nil
		})
		b := newLabelHarnessOn(t, client, nil, readyNode("a", corev1.ConditionTrue, true),
			readyNode("b", corev1.ConditionTrue, true))
		defer b.stop()
		pass(admitAfter)
		lie.Store(true)
		b.set("a", corev1.ConditionFalse)
		pass(time.Minute)
		if !b.labelled("a") {
			t.Error("a lost its label although b is not ready any more")
		}
		lie.Store(false)
		pass(retryAfter)
		if b.labelled("a") {
			t.Error("a kept its label although b is ready")
		}
	})
}

// A rejected patch is retried, and no label is removed while adding fails.
func TestRefusedPatchIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := 3
		client := fake.NewClientset()
		client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetName() == "b" && refusals > 0 {
				refusals--
				return true, nil, context.DeadlineExceeded
			}
			return false, nil, nil
		})
		b := newLabelHarnessOn(t, client, nil, readyNode("a", corev1.ConditionFalse, true),
			readyNode("b", corev1.ConditionTrue, false))
		defer b.stop()
		pass(admitAfter)
		if !b.labelled("a") {
			t.Error("the only label was removed before the other was added")
		}
		pass(4 * retryAfter)
		if b.labelled("a") || !b.labelled("b") {
			t.Errorf("a %v, b %v after the API server recovered", b.labelled("a"), b.labelled("b"))
		}
	})
}

// TestExcludedNodeLosesTheLabel: a user who excludes a node from load balancing, as before maintenance, removes
// kube-vip's addresses from it.
//
//proves:service-changes/node-excluded
func TestExcludedNodeLosesTheLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLabelHarness(t, labels.Everything(), readyNode("a", corev1.ConditionTrue, true),
			readyNode("b", corev1.ConditionTrue, true))
		defer b.stop()
		pass(admitAfter)
		exclude := func(name, patch string) {
			t.Helper()
			raw := []byte(`{"metadata":{"labels":{"` + corev1.LabelNodeExcludeBalancers + `":` + patch + `}}}`)
			if _, err := b.client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, raw,
				metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		exclude("a", `"false"`)
		pass(time.Minute)
		if !b.labelled("a") {
			t.Error("a node with an explicit false lost the label")
		}
		exclude("a", `""`)
		b.after(excludeAfter, "a", false)
		exclude("b", `"true"`)
		pass(time.Minute)
		if !b.labelled("b") {
			t.Error("the last node with the label lost it")
		}
		exclude("b", "null")
		pass(time.Minute)
		exclude("a", "null")
		b.after(2*admitAfter, "a", true)
	})
}
