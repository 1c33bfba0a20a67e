package reconcile_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// TestAddressIsQuarantinedWhereTheBlockStays: a block that was tagged for another cluster stays on the network, and
// someone may still answer for its address; its ledger remembers that until the quarantine is over.
func TestAddressIsQuarantinedWhereTheBlockStays(t *testing.T) {
	other := map[string]string{contract.TagCluster: "other"}
	w := newWorld(t, broughtBlock("", ofCluster()))
	w.service("one", inBlock(broughtID))
	w.settle("one")
	given := w.address("one")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: broughtID, Tags: other})
	w.delete("one")
	w.settle("one")
	w.wantBlocks("203.0.113.64/29 assigned")
	if left := w.ledgers(); len(left) != 1 || len(left[0].Quarantined) != 1 {
		t.Fatalf("ledgers: %+v, want one in which %s is quarantined", left, given)
	}
	w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: broughtID, Tags: ofCluster()})
	w.service("two", inBlock(broughtID))
	w.settle("two")
	if got := w.address("two"); got == given {
		t.Errorf("%s is given again at once", given)
	}
	w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: broughtID, Tags: other})
	w.delete("two")
	w.settle("two")
	w.sweep()
	if left := w.ledgers(); len(left) != 0 {
		t.Errorf("ledgers are left: %v", left)
	}
}

// releasing syncs until the Service waits for its block to leave the network.
func (w *world) releasing(name string) {
	w.t.Helper()
	w.delete(name)
	for range 100 {
		done, err := w.sync(name)
		if done {
			w.t.Fatalf("Service %s is released already", name)
		}
		if w.condition(name).Reason == string(ipblock.BlockUnassigning) {
			return
		}
		w.clock.Advance(w.pauseAfter(err))
	}
	w.t.Fatalf("Service %s never waits for its block", name)
}

// TestReleaseEndsWhenItsBlockIsWantedAgain: who comes next takes over the block that is being released, and
// no Service waits for its deletion any longer.
//
//proves:service-changes/type-back
func TestReleaseEndsWhenItsBlockIsWantedAgain(t *testing.T) {
	w := newWorld(t)
	w.service("one", inPool())
	w.settle("one")
	w.releasing("one")
	w.service("two", inPool())
	var again *api.RetryError
	if _, err := w.sync("two"); !errors.As(err, &again) {
		t.Fatalf("said %v", err)
	}
	if done, err := w.sync("one"); !done {
		t.Errorf("Service one still waits: %v", err)
	}
	w.settle("two")
	w.wantPurchases(1)
	w.wantBlocks("203.0.113.8/29 assigned")
}

// TestBlockIsNotTakenFromUnderAnother: a ledger that says of a block both that it is being released and that
// a Service has an address of it, as one edited by hand may, releases nothing.
func TestBlockIsNotTakenFromUnderAnother(t *testing.T) {
	w := newWorld(t)
	w.service("one", inPool())
	w.settle("one")
	w.service("two", inPool())
	w.settle("two")
	w.delete("one")
	l := w.ledgers()[0]
	l = l.Free(ipblock.Holder{Namespace: "shop", Name: "one"}, w.clock.Now()).Close()
	if _, err := w.ledgerStore().Save(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Minute)
	if took := w.settle("one"); took > 10*time.Second {
		t.Errorf("the release took %s", took)
	}
	w.wantBlocks("203.0.113.8/29 assigned")
	w.settle("two")
	w.wantAddressesOnce("two")
	w.wantBlocks("203.0.113.8/29 assigned")
}

// TestAnnotationsBarNoAddresses: what its author writes on a Service keeps no address of the pool from others,
// unless the Service has none and could have asked for that one.
func TestAnnotationsBarNoAddresses(t *testing.T) {
	const wanted, next = "203.0.113.11", "203.0.113.12"
	for name, test := range map[string]struct {
		change  func(*corev1.Service)
		settles bool
		want    string
	}{
		"of another type": {change: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP },
			want: wanted},
		"of another class":      {change: ofClass("example.com/other"), want: wanted},
		"with a block":          {change: annotated(), settles: true, want: wanted},
		"with a shared address": {change: inPool(), settles: true, want: next},
		"with nothing":          {change: inPool(), want: next},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.service("first", inPool())
			w.settle("first")
			w.service("greedy", test.change)
			if test.settles {
				w.settle("greedy")
			}
			w.edit("greedy", func(s *corev1.Service) {
				address := wanted
				if s.Annotations[contract.ServiceIPAddress] == wanted {
					address = next // it has the one and lays claim to the other
				}
				annotated(contract.ServiceIPOwner, string(s.UID), contract.ServiceIPAddress, address)(s)
			})
			w.service("other", inPool())
			w.settle("other")
			if got := w.get("other").Annotations[contract.ServiceIPAddress]; got != test.want {
				t.Errorf("the other Service has %s, want %s", got, test.want)
			}
		})
	}
}

func ofClass(class string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }
}
