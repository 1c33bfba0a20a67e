package metadata

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// skew is how far the clocks of the machines in these tests are behind the controller's.
const skew = 4 * time.Hour

// watchHarness is a running AgentWatch with a fake API server, in a synctest bubble.
type watchHarness struct {
	t      *testing.T
	client *fake.Clientset
	events *record.FakeRecorder
}

func newWatchHarness(t *testing.T, nodes ...*corev1.Node) (p *watchHarness, stop func()) {
	t.Helper()
	return newWatchHarnessOn(t, fake.NewClientset(), nodes...)
}

func newWatchHarnessOn(t *testing.T, client *fake.Clientset, nodes ...*corev1.Node) (p *watchHarness, stop func()) {
	t.Helper()
	p = &watchHarness{t: t, client: client, events: record.NewFakeRecorder(100)}
	for _, node := range nodes {
		if _, err := p.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p.renew(node.Name)
	}
	factory := informers.NewSharedInformerFactory(p.client, 0)
	watch := NewAgentWatch(p.client, factory.Core().V1().Nodes(), p.events)
	ctx, cancel := context.WithCancel(testlog.Context(t))
	factory.Start(ctx.Done())
	done := make(chan error)
	go func() { done <- watch.Run(ctx) }()
	pass(time.Second)
	return p, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	}
}

// watchedNode is a Node whose agent reports no problem, and which has another condition.
func watchedNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: contract.ConditionVLANReady, Status: corev1.ConditionTrue, Reason: "AllChecksPassed"},
			{Type: contract.ConditionAnnouncementHealthy, Status: corev1.ConditionFalse, Reason: "NoAnswer"},
		}}}
}

func (p *watchHarness) renew(node string) {
	p.t.Helper()
	now := metav1.NewMicroTime(time.Now().Add(-skew))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: contract.AgentLeasePrefix + node, Namespace: metav1.NamespaceSystem},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &now},
	}
	leases := p.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	if _, err := leases.Update(p.t.Context(), lease, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := leases.Create(p.t.Context(), lease, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

// live makes an agent renew its Lease every 30 seconds for a while.
func (p *watchHarness) live(node string, d time.Duration) {
	p.t.Helper()
	for passed := time.Duration(0); passed < d; passed += 30 * time.Second {
		p.renew(node)
		pass(30 * time.Second)
	}
}

func (p *watchHarness) set(node string, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) {
	p.t.Helper()
	object, err := p.client.CoreV1().Nodes().Get(p.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	condition := contract.FindNodeCondition(object, kind)
	condition.Status = status
	condition.Reason = reason
	condition.LastHeartbeatTime = metav1.NewTime(time.Now().Add(-skew))
	if _, err := p.client.CoreV1().Nodes().UpdateStatus(p.t.Context(), object, metav1.UpdateOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

// reasons returns status and reason of both conditions of the agent.
func (p *watchHarness) reasons(node string) string {
	p.t.Helper()
	synctest.Wait()
	object, err := p.client.CoreV1().Nodes().Get(p.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	if ready := contract.FindNodeCondition(object, corev1.NodeReady); len(object.Status.Conditions) != 3 ||
		ready == nil {
		p.t.Errorf("%s has conditions %v", node, object.Status.Conditions)
	}
	var parts []string
	for _, kind := range agentConditions() {
		condition := contract.FindNodeCondition(object, kind)
		parts = append(parts, string(condition.Status)+"/"+condition.Reason)
	}
	return strings.Join(parts, " ")
}

func (p *watchHarness) expect(node, want string) {
	p.t.Helper()
	if got := p.reasons(node); got != want {
		p.t.Errorf("%s: %s, want %s", node, got, want)
	}
}

const (
	well   = "True/AllChecksPassed False/NoAnswer"
	silent = "Unknown/AgentSilent Unknown/AgentSilent"
	dead   = "Unknown/NodeUnreachable Unknown/NodeUnreachable"
)

func TestSilentAgentIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := newWatchHarness(t, watchedNode("a"), watchedNode("b"))
		defer stop()
		for range 4 {
			p.renew("b")
			pass(30 * time.Second)
		}
		p.expect("a", well)
		p.live("b", 2*time.Minute)
		p.expect("a", silent)
		p.expect("b", well)
		if text := <-p.events.Events; !strings.HasPrefix(text, "Warning AgentSilent ") {
			t.Errorf("event %q", text)
		}
		// The event is not repeated; when the agent writes again, its conditions count again.
		p.live("b", 10*time.Minute)
		p.renew("a")
		p.set("a", contract.ConditionVLANReady, corev1.ConditionTrue, "AllChecksPassed")
		p.set("a", contract.ConditionAnnouncementHealthy, corev1.ConditionFalse, "NoAnswer")
		p.renew("b")
		pass(90 * time.Second)
		p.expect("a", well)
		if len(p.events.Events) > 0 {
			t.Errorf("further event %q", <-p.events.Events)
		}
	})
}

func TestUnreachableNodeIsNotBelievedSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := newWatchHarness(t, watchedNode("a"))
		defer stop()
		p.live("a", 2*time.Minute)
		pass(20 * time.Second)
		p.set("a", corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown")
		pass(90 * time.Second)
		p.expect("a", dead)
	})
}

// The conditions of an agent that outlives its kubelet are kept: otherwise both would overwrite each other forever.
func TestAgentThatOutlivesItsKubeletIsNotContradicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := newWatchHarness(t, watchedNode("a"))
		defer stop()
		p.set("a", corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown")
		p.live("a", 20*time.Minute)
		p.expect("a", well)
		if len(p.events.Events) > 0 {
			t.Errorf("event %q", <-p.events.Events)
		}
	})
}

// The heartbeat of a condition is a sign of life, too; a missing Lease does not prove that the agent is dead.
func TestHeartbeatIsASignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := newWatchHarness(t, watchedNode("a"))
		defer stop()
		if err := p.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(t.Context(),
			contract.AgentLeasePrefix+"a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			pass(150 * time.Second)
			p.set("a", contract.ConditionVLANReady, corev1.ConditionTrue, "AllChecksPassed")
		}
		p.expect("a", well)
		pass(leaselessAfter + time.Minute)
		p.expect("a", silent)
	})
}

// An agent without permission to renew its Lease overwrites the conditions once, and from then on its heartbeat is
// enough: the two do not overwrite each other forever.
func TestAgentWithoutALeaseIsContradictedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := newWatchHarness(t, watchedNode("a"))
		defer stop()
		pass(silentAfter + time.Minute)
		p.expect("a", silent)
		for range 20 { // heartbeats at the longest interval
			p.set("a", contract.ConditionVLANReady, corev1.ConditionTrue, "AllChecksPassed")
			p.set("a", contract.ConditionAnnouncementHealthy, corev1.ConditionFalse, "NoAnswer")
			pass(330 * time.Second)
			p.expect("a", well)
		}
		if n := len(p.events.Events); n != 1 {
			t.Errorf("%d events, want only the event of the first silence", n)
		}
		// The Lease is renewed again, so it counts again.
		p.renew("a")
		pass(silentAfter + time.Minute)
		p.expect("a", silent)
	})
}

// As long as Leases cannot be read, and for 3 minutes after, no agent is silent.
func TestUnreadableLeasesSilenceNoAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("the API server is unavailable")
		})
		p, stop := newWatchHarnessOn(t, client, watchedNode("a"))
		defer stop()
		pass(20 * time.Minute)
		p.expect("a", well)
	})
}

// A Node without an agent gets no condition, and causes no read of Leases.
func TestNodeWithoutAgentIsNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := watchedNode("a")
		node.Status.Conditions = node.Status.Conditions[:1]
		p, stop := newWatchHarness(t, node)
		defer stop()
		p.client.ClearActions()
		pass(10 * time.Minute)
		synctest.Wait()
		for _, action := range p.client.Actions() {
			t.Errorf("unexpected %s of %s", action.GetVerb(), action.GetResource().Resource)
		}
	})
}
