package service

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestChangesThatMatterLeadToALook: of Nodes and of the Service itself; each to one look at every Service that
// it concerns.
func TestChangesThatMatterLeadToALook(t *testing.T) {
	node := func(change func(*corev1.Node)) func(*testing.T, *clocked) {
		return func(t *testing.T, w *clocked) { editNode(t, w, change) }
	}
	service := func(c change) func(*testing.T, *clocked) {
		return func(_ *testing.T, w *clocked) { w.edit("web", c) }
	}
	for name, tc := range map[string]struct {
		act      func(*testing.T, *clocked)
		web, api int
	}{
		"a Node is to be excluded": {node(func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" }), 1,
			1},
		"a Node is not selected": {node(func(n *corev1.Node) { delete(n.Labels, "edge") }), 1, 1},
		"a Node has lost its VLAN": {node(func(n *corev1.Node) {
			n.Status.Conditions[1].Status = corev1.ConditionFalse
		}), 1, 1},
		"a Node is no member": {node(func(n *corev1.Node) {
			leaves(n, networkID)
		}), 1, 1},
		"a Node has another label": {node(func(n *corev1.Node) { n.Labels["rack"] = "7" }), 0, 0},
		"a heartbeat": {node(func(n *corev1.Node) {
			n.Status.Conditions[1].LastHeartbeatTime = metav1.Now()
		}), 0, 0},
		"traffic policy": {service(func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}), 1, 0},
		"health check port":    {service(func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 30123 }), 1, 0},
		"annotation":           {service(annotated(contract.ServiceIPRetain, "true")), 1, 0},
		"label of the Service": {service(func(s *corev1.Service) { s.Labels = map[string]string{"team": "a"} }), 0, 0},
		"condition of another of ours": {service(func(s *corev1.Service) {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: "Other"})
		}), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Carriers: ofEdge, DriftEvery: time.Hour}
			inTime(t, config, func(w *clocked) {
				w.create("web")
				w.create("api")
				elapse(time.Minute)
				w.shop.set(func(s *shop) { s.calls = nil })
				tc.act(t, w)
				elapse(10 * time.Second)
				if web, api := w.shop.count("ensure", "web"), w.shop.count("ensure", "api"); web != tc.web ||
					api != tc.api {
					t.Errorf("%d and %d looks, want %d and %d", web, api, tc.web, tc.api)
				}
			}, nodeWith(func(*corev1.Node) {}))
		})
	}
}

func editNode(t *testing.T, w *clocked, change func(*corev1.Node)) {
	t.Helper()
	node, err := w.kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	if err == nil {
		change(node)
		_, err = w.kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refused is a refusal that the balancer has reported to users, or not.
func refused(reported bool) error {
	return &plan.Refusal{Detail: "no location to buy an IP block in", Reported: reported}
}

// TestWhatTheBalancerReportedIsNotReportedTwice: a refusal that has its event and condition is backed off from without
// another event; one that has none is reported like any error.
func TestWhatTheBalancerReportedIsNotReportedTwice(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		events bool
	}{
		"reported":             {refused(true), false},
		"reported, and joined": {errors.Join(errors.New("while it is published"), refused(true)), false},
		"not reported":         {refused(false), true},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, Config{}, func(w *clocked) {
				w.shop.set(func(s *shop) { s.fail = func(string, types.NamespacedName) error { return tc.err } })
				w.create("web")
				elapse(time.Minute)
				if n := w.shop.count("ensure", "web"); n < 3 || n > 6 {
					t.Errorf("%d looks within a minute", n)
				}
				w.edit("web", func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
				elapse(time.Minute)
				if got := w.events.counts()["Warning "+eventSyncFailed] > 0; got != tc.events {
					t.Errorf("events %v", w.events.counts())
				}
			}, nodeWith(func(*corev1.Node) {}))
		})
	}
}
