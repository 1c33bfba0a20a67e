package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// vanish removes a Service with its finalizer while no controller runs, which starts again afterwards.
func (w *world) vanish(name string) {
	w.t.Helper()
	if err := w.tracker.Delete(servicesResource, "shop", name); err != nil {
		w.t.Fatal(err)
	}
	w.restart()
	w.refresh()
}

// released returns how long the drift pass needs until the account holds only these blocks; it gives up after two
// hours.
func (w *world) released(want ...string) time.Duration {
	w.t.Helper()
	start := w.clock.Now()
	for fmt.Sprint(w.blocks()) != fmt.Sprint(want) && w.clock.Now().Sub(start) < 2*time.Hour {
		w.drifted()
	}
	w.wantBlocks(want...)
	return w.clock.Now().Sub(start)
}

// TestTakenNameKeepsNoAddress: who has the name of a Service that is gone keeps its address and its block only as a
// Service of type LoadBalancer of ours.
func TestTakenNameKeepsNoAddress(t *testing.T) {
	bare := func(s *corev1.Service) { s.Finalizers = nil }
	for name, change := range map[string]func(*corev1.Service){
		"ClusterIP": func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP },
		"NodePort":  func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort },
		"of another class": func(s *corev1.Service) {
			inPool()(s)
			ofClass("example.com/other")(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.service("web", inPool())
			w.settle("web")
			w.vanish("web")
			w.service("web", bare, change)
			took := w.released()
			t.Logf("figure taken_name_keeps_pool_block %.0f s", took.Seconds())
		})
	}
	t.Run("the same Service, which was changed while no controller ran", func(t *testing.T) {
		w := newWorld(t)
		w.service("web", inPool())
		w.settle("web")
		w.edit("web", func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeClusterIP
			s.Finalizers = nil
			s.Annotations = nil
			s.Status = corev1.ServiceStatus{}
		})
		w.restart()
		w.released()
	})
	t.Run("only its own address", func(t *testing.T) {
		w := newWorld(t)
		for _, name := range []string{"web", "api"} {
			w.service(name, inPool())
			w.settle(name)
		}
		w.vanish("web")
		w.service("web", bare, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
		w.sweep()
		w.wantBlocks("203.0.113.8/29 assigned")
		if held := len(w.ledgers()[0].Held); held != 1 {
			t.Errorf("%d addresses are held, want 1", held)
		}
	})
}

// TestSuccessorKeepsTheAddress: a Service of the same name that is ours takes over the address of the one that is gone.
func TestSuccessorKeepsTheAddress(t *testing.T) {
	w := newWorld(t)
	w.service("web", inPool())
	w.settle("web")
	address := w.address("web")
	w.vanish("web")
	w.service("web", inPool())
	w.sweep()
	w.settle("web")
	if got := w.address("web"); got != address {
		t.Errorf("the successor has %s, want %s", got, address)
	}
	w.wantPurchases(1)
}

// TestReleasingServiceKeepsItsAddress: a Service of another type that has not released its address yet is left to its
// release, which withdraws the address first.
func TestReleasingServiceKeepsItsAddress(t *testing.T) {
	w := newWorld(t)
	w.service("web", inPool())
	w.settle("web")
	w.edit("web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	w.sweep()
	w.wantBlocks("203.0.113.8/29 assigned")
	w.settle("web")
	w.wantBlocks()
}

// loseLedgers deletes everything that is recorded of blocks, and starts another controller with another default.
func (w *world) loseLedgers(allocation string) {
	w.t.Helper()
	for _, l := range w.ledgers() {
		w.loseIPBlock(w.objectOf(l.BlockID))
	}
	w.config.Allocation = allocation
	w.restart()
}

// TestLostLedgersAndANewDefault: while a Service publishes an address of a block, that is neither withdrawn nor is the
// block released, though nothing but the Service says so any more.
func TestLostLedgersAndANewDefault(t *testing.T) {
	names := []string{"one", "two", "odd"}
	for how, begin := range map[string]func(*world){
		"Services first": func(w *world) { w.settleAll("one", "two") },
		"drift first":    func(w *world) { w.passes(10 * time.Minute) },
		"one is deleted first": func(w *world) {
			w.settle("one")
			w.delete("one")
			w.settle("one")
			w.passes(10 * time.Minute)
		},
	} {
		for _, allocation := range []string{contract.AllocationDedicated, contract.AllocationShared} {
			t.Run(how+", then "+allocation, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, configured(func(c *reconcile.Config) { c.Allocation = contract.AllocationShared }))
				addresses := map[string]string{}
				for _, name := range names {
					w.service(name)
					w.settle(name)
					addresses[name] = w.address(name)
				}
				w.edit("odd", annotated(contract.ServiceIPBlockSize, "nonsense"))
				w.clock.Advance(5 * time.Minute)
				w.loseLedgers(allocation)
				begin(w)
				w.settle("two")
				_ = w.refused("odd", 5*time.Minute)
				withdrawn := 0
				for _, name := range names {
					if w.get(name) != nil && w.address(name) != addresses[name] {
						withdrawn++
						t.Errorf("address of %s was %s and is %q", name, addresses[name], w.address(name))
					}
				}
				t.Logf("figure lost_ledgers_addresses_withdrawn %d", withdrawn)
				w.wantPurchases(1)
				w.wantBlocks("203.0.113.8/29 assigned")
				w.wantAddressesOnce("two", "odd")
				for _, name := range names {
					if w.get(name) != nil {
						w.delete(name)
						w.settle(name)
					}
				}
				w.sweep()
				w.wantBlocks()
			})
		}
	}
}

// TestPoolBlockIsKeptForNoOneWhoHasABlock: the last address of the pool is released while there are Services that
// seem to wait for one and never get it: they have a block of their own, or ask for what no block of the pool has. No
// address of the block is used any more, so that it goes.
func TestPoolBlockIsKeptForNoOneWhoHasABlock(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the default says shared since": func(w *world) {
			w.config.Allocation = contract.AllocationShared
			w.restart()
		},
		"its annotation says shared since": func(w *world) { w.edit("own", inPool()) },
		"it asks for an address of no block": func(w *world) {
			w.service("asks", inPool(), func(s *corev1.Service) { s.Spec.LoadBalancerIP = "198.51.100.7" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.service("own")
			w.settle("own")
			own := w.blocks()
			change(w)
			w.service("web", inPool())
			w.settle("web")
			w.vanish("web")
			w.refresh()
			took := w.released(own...)
			t.Logf("figure pool_block_without_use %.0f s", took.Seconds())
		})
	}
}
