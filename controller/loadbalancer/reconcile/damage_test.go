package reconcile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// damaged are the ways in which a ledger becomes unreadable.
func damaged() map[string]func(*v1beta1.IPBlockStatus) {
	return map[string]func(*v1beta1.IPBlockStatus){
		"no CIDR":       func(s *v1beta1.IPBlockStatus) { s.CIDR = "" },
		"another block": func(s *v1beta1.IPBlockStatus) { s.CIDR = "203.0.113.32/29" },
		"no address":    func(s *v1beta1.IPBlockStatus) { (*s.Allocations)[0].Address = "" },
		"no holder":     func(s *v1beta1.IPBlockStatus) { (*s.Allocations)[0].Services = nil },
		"two holders": func(s *v1beta1.IPBlockStatus) {
			one := &(*s.Allocations)[0]
			one.Services = append(one.Services, v1beta1.ServiceReference{Namespace: "blog", Name: "web"})
		},
	}
}

// TestUnreadableLedgerStopsNoOther: one record of addresses that cannot be read concerns its own block only. Its
// Service keeps its address and says what is wrong; others, dedicated and shared ones, are served and released; the
// block is neither used nor released until the record is readable again.
func TestUnreadableLedgerStopsNoOther(t *testing.T) {
	for how, damage := range damaged() {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.service("one", inPool())
			w.settle("one")
			address := w.address("one")
			id := w.blockID()
			name := "IPBlock " + w.objectOf(id)
			w.service("own")
			w.settle("own")
			w.eventReasons()
			var before v1beta1.IPBlockStatus
			w.editIPBlock(id, func(s *v1beta1.IPBlockStatus) {
				s.DeepCopyInto(&before)
				damage(s)
			})
			w.restart()
			w.clock.Advance(time.Minute)

			took := w.settle("own")
			w.delete("own")
			took += w.settle("own")
			w.service("next")
			took += w.settle("next")
			w.service("two", inPool())
			took += w.settle("two")
			t.Logf("figure unreadable_ledger_delays_others %.1f s", took.Seconds())
			if err := w.refused("one", 10*time.Minute); !strings.Contains(err.Error(), name) {
				t.Errorf("refusal %q does not name the IPBlock", err)
			}
			if got := w.address("one"); got != address {
				t.Errorf("address %s became %q", address, got)
			}
			condition := w.condition("one")
			if condition.Reason != string(ipblock.LedgerUnreadable) || !strings.Contains(condition.Message, name) ||
				!strings.Contains(condition.Message, "repair its status") {
				t.Errorf("condition %+v", condition)
			}
			w.wantAddressesDiffer("one", "two")
			w.passes(5 * time.Minute)
			if events := w.eventsOf("RecordUnreadable"); len(events) != 2 || !strings.Contains(events[0], name) {
				t.Errorf("events %q, want one on the Service and one on the Namespace", events)
			}

			w.delete("one")
			w.settle("one")
			w.delete("two")
			w.settle("two")
			w.passes(30 * time.Minute)
			w.wantBlocks("203.0.113.8/29 assigned", "203.0.113.24/29 assigned")
			w.editIPBlock(id, func(s *v1beta1.IPBlockStatus) { *s = before })
			w.passes(5 * time.Minute)
			w.wantBlocks("203.0.113.24/29 assigned")
			w.delete("next")
			w.settle("next")
			w.wantBlocks()
		})
	}
}

// wantAddressesDiffer demands that each of the Services has an address of its own; unlike wantAddressesOnce it reads no
// ledgers.
func (w *world) wantAddressesDiffer(names ...string) {
	w.t.Helper()
	seen := map[string]string{}
	for _, name := range names {
		address := w.address(name)
		if other, twice := seen[address]; twice || address == "" {
			w.t.Errorf("Service %s has address %q, as has Service %q", name, address, other)
		}
		seen[address] = name
	}
}

// TestADamagedObjectOfAPersonIsCreatedAgain follows what the refusal about it says.
func TestADamagedObjectOfAPersonIsCreatedAgain(t *testing.T) {
	w := newWorld(t, broughtBlock("", nil))
	w.bring("mine")
	w.service("one", naming("mine"))
	w.settle("one")
	address := w.address("one")
	w.editIPBlock(broughtID, func(s *v1beta1.IPBlockStatus) { s.CIDR = "" })
	w.clock.Advance(time.Minute)
	w.service("two", naming("mine"))
	if err := w.refused("two", 10*time.Minute); !strings.Contains(err.Error(), "delete it and create it again") {
		t.Errorf("refusal is %q", err)
	}
	w.loseIPBlock("mine")
	w.bring("mine")
	w.clock.Advance(time.Minute)
	w.settle("two")
	w.passes(5 * time.Minute)
	w.wantAddressesOnce("one", "two")
	if got := w.address("one"); got != address {
		t.Errorf("the address is %s, was %s", got, address)
	}
}

// TestUnreadableLedgerOfABroughtBlock: the same for a block that Services name.
func TestUnreadableLedgerOfABroughtBlock(t *testing.T) {
	w := newWorld(t, broughtBlock("", ofCluster()))
	w.service("one", inBlock(broughtID))
	w.settle("one")
	address := w.address("one")
	var before string
	w.editIPBlock(broughtID, func(s *v1beta1.IPBlockStatus) {
		before = s.CIDR
		s.CIDR = ""
	})
	w.clock.Advance(time.Minute)
	w.service("two", inBlock(broughtID))
	w.service("own")
	w.settle("own")
	for _, name := range []string{"one", "two"} {
		if err := w.refused(name, 10*time.Minute); !strings.Contains(err.Error(), w.objectOf(broughtID)) {
			t.Errorf("refusal %q of Service %s does not name the IPBlock", err, name)
		}
	}
	if got := w.address("one"); got != address || w.address("two") != "" {
		t.Errorf("addresses %q, want %s, and %q, want none", got, address, w.address("two"))
	}
	w.delete("one")
	w.settle("one")
	w.passes(15 * time.Minute)
	w.wantBlocks("203.0.113.64/29 assigned", "203.0.113.8/29 assigned")
	w.editIPBlock(broughtID, func(s *v1beta1.IPBlockStatus) { s.CIDR = before })
	w.clock.Advance(time.Minute)
	w.settle("two")
	w.delete("two")
	w.settle("two")
	w.sweep()
	w.wantBlocks("203.0.113.64/29 unassigned", "203.0.113.8/29 assigned")
}

// TestLostLedgerIsMadeAgain: an IPBlock that a person deletes, or that is restored without its status, takes no
// address from a Service and gives none to two, and its block is released with its last Service.
func TestLostLedgerIsMadeAgain(t *testing.T) {
	for how, lose := range map[string]func(*world, string){
		"deleted": func(w *world, id string) { w.loseIPBlock(w.objectOf(id)) },
		"without status": func(w *world, id string) {
			w.editIPBlock(id, func(s *v1beta1.IPBlockStatus) { *s = v1beta1.IPBlockStatus{} })
		},
	} {
		t.Run(how+", shared", func(t *testing.T) {
			w := newWorld(t)
			w.service("one", inPool())
			w.settle("one")
			id := w.blockID()
			lose(w, id)
			w.clock.Advance(time.Minute)
			w.service("two", inPool())
			w.settle("two")
			w.wantPurchases(1)
			w.wantAddressesDiffer("one", "two")
			w.passes(5 * time.Minute)
			w.wantAddressesOnce("one", "two")
			lose(w, id)
			for _, name := range []string{"one", "two"} {
				w.delete(name)
				w.settle(name)
			}
			w.passes(ipblock.Quarantine / 2)
			w.wantBlocks("203.0.113.8/29 assigned") // an address of it may be in use
			w.passes(ipblock.Quarantine)
			w.wantBlocks()
			if w.ipBlock(id) != nil {
				t.Errorf("the IPBlock of block %s is left", id)
			}
		})
		t.Run(how+", no Service left", func(t *testing.T) {
			w := newWorld(t)
			w.service("one", inPool())
			w.settle("one")
			lose(w, w.blockID())
			if err := w.tracker.Delete(servicesResource, "shop", "one"); err != nil {
				t.Fatal(err)
			}
			w.restart()
			w.passes(ipblock.Quarantine / 2)
			w.wantBlocks("203.0.113.8/29 assigned")
			w.passes(ipblock.Quarantine)
			w.wantBlocks()
		})
		t.Run(how+", the block deleted besides", func(t *testing.T) {
			w := newWorld(t)
			w.service("one", inPool())
			w.settle("one")
			id := w.blockID()
			lose(w, id)
			w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: id})
			w.clock.Advance(5 * time.Minute)
			w.delete("one")
			w.settle("one")
			w.sweep()
			if w.ipBlock(id) != nil {
				t.Errorf("the IPBlock of block %s is left", id)
			}
		})
		t.Run(how+", brought", func(t *testing.T) {
			w := newWorld(t, broughtBlock("", ofCluster()))
			w.service("one", inBlock(broughtID))
			w.settle("one")
			lose(w, broughtID)
			if w.ipBlock(broughtID) == nil {
				w.bring(givenAs(broughtID))
			}
			w.clock.Advance(time.Minute)
			w.service("two", inBlock(broughtID))
			w.settle("two")
			w.wantAddressesDiffer("one", "two")
			w.passes(5 * time.Minute)
			w.wantAddressesOnce("one", "two")
			for _, name := range []string{"one", "two"} {
				w.delete(name)
				w.settle(name)
			}
		})
	}
}

// TestALostServiceKeepsNoBlockOfThePool: one whose block is lost, and what is recorded of it, gets no address of
// another block without its author, so no block is paid for until then.
func TestALostServiceKeepsNoBlockOfThePool(t *testing.T) {
	w := newWorld(t)
	w.service("lost", inPool())
	w.settle("lost")
	id := w.blockID()
	w.loseIPBlock(w.objectOf(id))
	deletesBlock(id)(w)
	_ = w.refused("lost", 10*time.Minute)
	w.service("taker") // phoenixNAP sells the addresses again
	w.settle("taker")
	w.service("next", inPool())
	w.settle("next")
	w.delete("next")
	w.settle("next")
	w.sweep()
	w.wantBlocks("203.0.113.8/29 assigned")
}

// TestNoAddressWithoutItsRecord: while the ledger cannot be written, for it was changed meanwhile or the API server
// fails, no address of it is published.
func TestNoAddressWithoutItsRecord(t *testing.T) {
	resource := schema.GroupResource{Resource: "ipblocks"}
	for name, failure := range map[string]error{
		"changed meanwhile":    apierrors.NewConflict(resource, "ledger", errors.New("the object has been modified")),
		"the API server fails": apierrors.NewInternalError(errors.New("etcd has no leader")),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.service("one", inPool())
			w.settle("one")
			w.objects.fails = func() error { return failure }
			w.service("two", inPool())
			for range 20 {
				if done, _ := w.sync("two"); done || w.address("two") != "" {
					t.Fatalf("done is %t, the address is %q", done, w.address("two"))
				}
				w.clock.Advance(time.Second)
			}
			w.objects.fails = nil
			w.settle("two")
			w.wantAddressesOnce("one", "two")
		})
	}
}
