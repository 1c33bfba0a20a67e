package reconcile_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// as restarts the controller with the credentials of a client, which may be that of another account.
func (w *world) as(client string) {
	w.t.Helper()
	w.connect(client, false)
	w.restart()
}

// holdings are what may be lost when something is concluded from the wrong account.
func (w *world) holdings() string {
	var ledgers, blocks []string
	for _, block := range w.blocks() {
		blocks = append(blocks, strings.Fields(block)[0]) // what was asked for before goes on
	}
	for _, l := range w.ledgers() {
		ledgers = append(ledgers, fmt.Sprintf("%s closed %t held %v quarantined %v", l.BlockID, l.Closed, l.Held,
			l.Quarantined))
	}
	slices.Sort(ledgers)
	return fmt.Sprint(blocks, ledgers)
}

// TestNothingIsReleasedOnTheWordOfAnotherAccount: the credentials are those of an account that has no blocks and in
// which the public network cannot be read. Whatever a Service had, it keeps its finalizer and its ledgers until the
// right credentials are back.
func TestNothingIsReleasedOnTheWordOfAnotherAccount(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"deleted": func(w *world) {
			w.service("web")
			w.settle("web")
			w.delete("web")
		},
		"changed to another type": func(w *world) {
			w.service("web")
			w.settle("web")
			w.edit("web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
		},
		"shared, deleted": func(w *world) {
			w.service("other", inPool())
			w.service("web", inPool())
			w.settleAll("other", "web")
			w.delete("web")
		},
		"last of the pool, deleted": func(w *world) {
			w.service("web", inPool())
			w.settle("web")
			w.delete("web")
		},
		"replacement allowed": func(w *world) {
			w.service("web", inPool(), annotated(contract.ServiceIPReplace, "true"))
			w.settle("web")
		},
		"half released": func(w *world) {
			w.service("web")
			w.settle("web")
			w.releasing("web")
		},
		"bought without an answer, deleted": func(w *world) {
			w.arm(pnapsim.Fault{Method: http.MethodPost, Path: "/ips/v1/ip-blocks", Action: pnapsim.FaultLost,
				Times: 1})
			w.service("web")
			for range 3 {
				_, _ = w.sync("web")
			}
			w.delete("web")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(w)
			had := w.holdings()
			w.as(strangerID)
			for end := w.clock.Now().Add(2 * time.Hour); w.clock.Now().Before(end); {
				done, err := w.sync("web")
				if done {
					t.Fatalf("the Service is released; the account had %s", had)
				}
				w.said = append(w.said, err.Error())
				w.clock.Advance(w.pauseAfter(err))
				_ = w.balancer.Sweep(w.ctx)
			}
			if now := w.holdings(); now != had {
				t.Errorf("blocks and ledgers were %s and are %s", had, now)
			}
			refusal := new(plan.Refusal)
			if _, err := w.sync("web"); !errors.As(err, &refusal) {
				t.Errorf("said %v", err)
			}
			if c := w.condition("web"); c.Reason != "NetworkUnusable" || !strings.Contains(c.Message, networkID) ||
				!strings.Contains(c.Message, "credentials") {
				t.Errorf("the condition is %s: %s", c.Reason, c.Message)
			}
			w.as(clientID)
			w.clock.Advance(time.Minute)
			w.settle("web")
			if service := w.get("web"); service != nil && service.Spec.Type == corev1.ServiceTypeLoadBalancer {
				return
			}
			if name != "shared, deleted" {
				w.wantBlocks()
				w.sim.LeakCheck(clientID)
			}
		})
	}
}

// TestServiceThatHadNothingGoesInAnyAccount: a controller that never worked, because its network cannot be read, must
// not make Services undeletable.
func TestServiceThatHadNothingGoesInAnyAccount(t *testing.T) {
	w := newWorld(t)
	w.as(strangerID)
	w.service("web")
	_ = w.refused("web", time.Minute)
	w.delete("web")
	if took := w.settle("web"); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}
