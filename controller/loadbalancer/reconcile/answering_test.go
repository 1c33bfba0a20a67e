package reconcile_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// report has the agent of a Node report about an address; an empty state for nothing at all.
func (w *world) report(address string, state contract.AddressState) {
	w.t.Helper()
	node := w.node("node-1", vlanIs(corev1.ConditionTrue))
	if state != "" {
		node.Annotations[contract.NodeReportedAddresses] = `{"` + address + `":{"state":"` + string(state) +
			`","since":"2026-03-01T12:00:00Z"}}`
	}
	if err := w.nodes.Replace([]any{node}, ""); err != nil {
		w.t.Fatal(err)
	}
}

// TestReleaseWaitsForTheAgents: while an agent still answers for an address, its block stays where it is, for
// a while; whether the Service is deleted or becomes one of another type.
func TestReleaseWaitsForTheAgents(t *testing.T) {
	const waiting = "waiting until no machine answers for the address any more"
	leave := map[string]func(*world){
		"deleted": func(w *world) { w.delete("web") },
		"another type": func(w *world) {
			w.edit("web",
				func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
		},
		"another type, its status wiped": func(w *world) {
			w.edit("web", func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeClusterIP
				s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
			})
		},
	}
	for kind, ask := range map[string]func(*corev1.Service){"dedicated": annotated(), "shared": inPool()} {
		for how, leaves := range leave {
			for _, test := range []struct {
				name      string
				announcer string
				state     contract.AddressState
				// until is what the agent reports two seconds later; waits is how long the release waits for it.
				until contract.AddressState
				waits time.Duration
			}{
				{"until it is silent", contract.AnnouncerAgent, contract.AddressAnswered, contract.AddressSilent,
					2 * time.Second},
				{"until it is not reported", contract.AnnouncerAgent, contract.AddressDuplicate, "", 2 * time.Second},
				{"no longer than ten seconds", contract.AnnouncerAgent, contract.AddressAnswered,
					contract.AddressAnswered, 10 * time.Second},
				{"not when it is silent", contract.AnnouncerAgent, contract.AddressSilent, contract.AddressSilent, 0},
				{"not for kube-vip", contract.AnnouncerKubeVIP, contract.AddressAnswered, contract.AddressAnswered, 0},
			} {
				t.Run(kind+", "+how+", "+test.name, func(t *testing.T) {
					w := newWorld(t, configured(func(c *reconcile.Config) { c.Announcer = test.announcer }))
					w.report("", "")
					w.service("web", ask)
					w.settle("web")
					address := w.address("web")
					w.report(address, test.state)
					leaves(w)
					start := w.clock.Now()
					for w.clock.Now().Sub(start) < time.Minute {
						done, err := w.sync("web")
						var again *api.RetryError
						if done || !errors.As(err, &again) || err.Error() != waiting {
							break
						}
						w.wantBlocks("203.0.113.8/29 assigned")
						w.clock.Advance(min(again.RetryAfter(), time.Second))
						if w.clock.Now().Sub(start) >= 2*time.Second {
							w.report(address, test.until)
						}
					}
					if waited := w.clock.Now().Sub(start); waited < test.waits-time.Second ||
						waited > test.waits+2*time.Second {
						t.Errorf("waited %s, want %s", waited, test.waits)
					}
					w.settle("web")
					w.wantBlocks()
				})
			}
		}
	}
}
