package reconcile_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// excluded is what kubeadm does to each Node of the control plane.
func excluded(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" }

// TestNothingIsBoughtWhileNoNodeCarries: a block that no Node announces would be paid for in vain. Once a Node may
// carry, the Service gets its address; and it keeps that when the Node cannot any more.
func TestNothingIsBoughtWhileNoNodeCarries(t *testing.T) {
	exclude := "kubectl label node node-1 " + corev1.LabelNodeExcludeBalancers + "-"
	for name, tc := range map[string]struct {
		nodes func(*world) []any
		says  string
	}{
		"excluded, no agents": {func(w *world) []any { return []any{w.node("node-1", excluded)} }, exclude},
		"excluded": {func(w *world) []any {
			return []any{w.node("node-1", excluded, vlanIs(corev1.ConditionTrue))}
		}, exclude},
		"excluded beside a broken one": {func(w *world) []any {
			return []any{w.node("node-1", excluded, vlanIs(corev1.ConditionTrue)),
				w.node("node-2", vlanIs(corev1.ConditionFalse))}
		}, "Node node-2 has the condition phoenixnap.com/VLANReady=False"},
		"no member": {func(w *world) []any {
			return []any{w.node("node-1", func(n *corev1.Node) {
				maps.Copy(n.Annotations, nodenet.On(contract.NodeNetwork{ID: networkID}))
			})}
		}, "not a member"},
		"of another provider": {func(w *world) []any {
			return []any{w.node("node-1", func(n *corev1.Node) { n.Spec.ProviderID = "k3s://node-1" })}
		}, "no phoenixNAP server"},
		"none": {func(*world) []any { return nil }, "no Nodes"},
	} {
		for _, announcer := range []string{contract.AnnouncerKubeVIP, contract.AnnouncerAgent} {
			for _, allocation := range []string{contract.AllocationDedicated, contract.AllocationShared} {
				t.Run(strings.Join([]string{name, announcer, allocation}, ", "), func(t *testing.T) {
					w := newWorld(t, configured(func(c *reconcile.Config) { c.Announcer = announcer }))
					w.setNodes(tc.nodes(w)...)
					w.service("web", annotated(contract.ServiceIPAllocation, allocation))
					for range 20 {
						_, err := w.sync("web")
						w.clock.Advance(w.pauseAfter(err))
					}
					w.wantPurchases(0)
					c := meta.FindStatusCondition(w.get("web").Status.Conditions,
						contract.ServiceConditionBlockAssigned)
					if c == nil || c.Reason != "NoNodeReady" || !strings.Contains(c.Message, tc.says) {
						t.Errorf("the condition is %+v, want %q", c, tc.says)
					}
					w.setNodes(w.node("node-1"))
					if took := w.settle("web"); took > 10*time.Minute {
						t.Errorf("the address came after %s", took)
					}
					address := w.address("web")
					w.setNodes(tc.nodes(w)...)
					w.clock.Advance(time.Hour)
					w.settle("web")
					if w.address("web") != address || len(w.get("web").Status.LoadBalancer.Ingress) != 1 {
						t.Errorf("the address was %s and is %s", address, w.address("web"))
					}
				})
			}
		}
	}
}

func (w *world) setNodes(nodes ...any) {
	w.t.Helper()
	if err := w.nodes.Replace(nodes, ""); err != nil {
		w.t.Fatal(err)
	}
}

// TestALostAddressIsWithdrawnWhileNoNodeIsReady: a Service that may get a new address waits for a Node with that. The
// old one may be someone else's by then.
func TestALostAddressIsWithdrawnWhileNoNodeIsReady(t *testing.T) {
	w := newWorld(t)
	w.service("web", annotated(contract.ServiceIPReplace, "true"))
	w.settle("web")
	lost := w.address("web")
	deletesBlock(w.blockID())(w)
	noNodeReady(w)
	for range 5 {
		_, err := w.sync("web")
		w.clock.Advance(w.pauseAfter(err))
	}
	if got := w.get("web").Status.LoadBalancer.Ingress; len(got) > 0 || w.condition("web").Reason != "NoNodeReady" {
		t.Errorf("the Service has %v (%s before), and says %+v", got, lost, w.condition("web"))
	}
	if err := w.nodes.Replace([]any{w.node("node-1")}, ""); err != nil {
		t.Fatal(err)
	}
	w.settle("web")
	w.wantPurchases(2)
}
