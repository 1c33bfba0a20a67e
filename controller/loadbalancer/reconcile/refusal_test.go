package reconcile_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// TestRefusalIsReportedOnce: with its event, and again only when it is another one; the caller learns that users
// know.
func TestRefusalIsReportedOnce(t *testing.T) {
	wrong := annotated(contract.ServiceIPRetain, "perhaps")
	for name, test := range map[string]struct {
		prepare func(*world)
		change  func(*world)
	}{
		"nothing is bought": {
			prepare: func(w *world) { w.service("web", wrong) },
			change: func(w *world) {
				w.edit("web", annotated(contract.ServiceIPRetain, "maybe"))
			},
		},
		"the address goes on working": {
			prepare: func(w *world) {
				w.service("web")
				w.settle("web")
				w.edit("web", wrong)
			},
			change: func(w *world) {
				w.edit("web", annotated(contract.ServiceIPRetain, "maybe"))
			},
		},
		"on the way out": {
			prepare: func(w *world) {
				w.service("web")
				w.settle("web")
				w.portal(pnapsim.Edit{Kind: pnapsim.EditBlockStatus, Block: w.blockID(), Status: "lent"})
				w.edit("web", func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
			},
			change: func(w *world) {
				w.portal(pnapsim.Edit{Kind: pnapsim.EditBlockStatus, Block: w.blockID(), Status: "sold"})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.prepare(w)
			w.eventReasons()
			for _, want := range []int{1, 1} {
				for _, state := range []contract.AddressState{contract.AddressSilent, contract.AddressAnswered} {
					w.report("203.0.113.10", state) // what the conditions say beside it changes
					var refusal *plan.Refusal
					if err := w.refused("web", time.Minute); !errors.As(err, &refusal) || !refusal.Reported ||
						refusal.Reason == "" {
						t.Errorf("said %#v", err)
					}
				}
				got := slices.DeleteFunc(w.eventReasons(),
					func(reason string) bool { return reason != "IPBlockRefused" })
				if len(got) != want {
					t.Errorf("%d refusals, want %d", len(got), want)
				}
				test.change(w)
				w.clock.Advance(time.Minute)
			}
		})
	}
}

// TestRefusalIsReportedOnceMoreWhenTheAddressGoes: the condition turns False and says what happened besides, also where
// the author allowed a new address.
func TestRefusalIsReportedOnceMoreWhenTheAddressGoes(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	w.edit("web", annotated(contract.ServiceIPReplace, "true"))
	w.edit("web", annotated(contract.ServiceIPRetain, "perhaps"))
	_ = w.refused("web", time.Minute)
	before := w.condition("web")
	w.eventReasons()
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
	w.clock.Advance(5 * time.Minute)
	_ = w.refused("web", time.Minute)
	after := w.condition("web")
	if before.Status != metav1.ConditionTrue || after.Status != metav1.ConditionFalse ||
		!strings.HasPrefix(after.Message, before.Message+"; besides, the IP block") {
		t.Errorf("the condition was %+v and is %+v", before, after)
	}
	for _, want := range []int{1, 0} {
		sent := slices.DeleteFunc(w.eventReasons(), func(reason string) bool { return reason != "IPBlockRefused" })
		if len(sent) != want {
			t.Errorf("%d refusals, want %d", len(sent), want)
		}
		_ = w.refused("web", time.Hour)
	}
}

// TestRefusalThatIsWrittenNowhereIsNotReported: a Service that is gone can say nothing.
func TestRefusalThatIsWrittenNowhereIsNotReported(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	last := w.get("web")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditBlockStatus, Block: w.blockID(), Status: "lent"})
	if err := w.tracker.Delete(servicesResource, "shop", "web"); err != nil {
		t.Fatal(err)
	}
	w.refresh()
	w.clock.Advance(time.Minute)
	var refusal *plan.Refusal
	if err := w.release(last); !errors.As(err, &refusal) || refusal.Reported {
		t.Errorf("said %#v", err)
	}
}
