package reconcile_test

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// wrongTimes are times in records of leaders whose clock was wrong, or that a person wrote.
func (w *world) wrongTimes() map[string]time.Time {
	now := w.clock.Now()
	return map[string]time.Time{
		"2099": time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), "in 6 h": now.Add(6 * time.Hour),
		"in 5 s": now.Add(5 * time.Second), "6 h ago": now.Add(-6 * time.Hour),
		"1970": time.Unix(1, 0).UTC(),
	}
}

// records are what is stored of purchases.
func (w *world) records() ipblock.Records {
	w.t.Helper()
	listing, err := w.ledgerStore().List(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return listing.Records
}

// recordOf is the object of the block of a Service.
func (w *world) recordOf(name string) *allocation.Object {
	return allocation.ForService(w.objects.IPBlocks, v1beta1.DefaultNetwork, plan.HolderOf(w.get(name)), w.records())
}

// recorded is the purchase that is recorded for a Service.
func (w *world) recorded(name string) *ipblock.Purchase {
	return w.records().Of(plan.HolderOf(w.get(name)))
}

// recordedAt records a purchase of a time, and the block that it bought, if it had an answer.
func (w *world) recordedAt(record *allocation.Object, at time.Time, block string) {
	w.t.Helper()
	intent, err := record.Begin(w.ctx, at, purchase.DefaultSize)
	if err == nil && block != "" {
		err = record.Bought(w.ctx, intent, block)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestPurchaseOfAWrongClock: a recorded purchase delays what comes next at most as long as one of now, whatever its
// time: for a Service and for the pool, on the way to an address and back.
func TestPurchaseOfAWrongClock(t *testing.T) {
	const slack = 15 * time.Second
	for name := range newWorld(t).wrongTimes() {
		for _, block := range []string{"", "60473c2509268bc77fd06d99"} {
			t.Run(name+" "+block, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.service("plain")
				usual := w.settle("plain")
				at := w.wrongTimes()[name]
				w.service("web")
				w.recordedAt(w.recordOf("web"), at, block)
				ensured := w.settle("web") - usual
				w.service("gone")
				w.recordedAt(w.recordOf("gone"), at, block)
				w.delete("gone")
				released := w.settle("gone")
				w.service("one", inPool())
				w.settle("one")
				w.delete("one")
				w.settle("one")
				w.recordedAt(allocation.ForShared(w.objects.IPBlocks, v1beta1.DefaultNetwork, w.records()), at, block)
				w.service("two", inPool())
				pooled := w.settle("two") - usual
				for what, took := range map[string]time.Duration{
					"ensured": ensured, "released": released, "pooled": pooled,
				} {
					if took > ipblock.PurchaseSettles+slack {
						t.Errorf("%s after %s more than usual", what, took)
					}
				}
				longest := max(ensured, released, pooled)
				t.Logf("figure wrong_clock_delay_seconds %.0f s", longest.Seconds())
				w.recordedAt(allocation.ForShared(w.objects.IPBlocks, v1beta1.DefaultNetwork, w.records()), at, block)
				w.vanish("two")
				w.released("203.0.113.8/29 assigned", "203.0.113.16/29 assigned")
			})
		}
	}
}

// TestLeadersWithDifferentClocksBuyOnce: a purchase without an answer is not repeated by a leader whose clock says that
// it was long ago, or will be.
func TestLeadersWithDifferentClocksBuyOnce(t *testing.T) {
	for _, skew := range []time.Duration{-6 * time.Hour, -10 * time.Minute, 10 * time.Minute, 6 * time.Hour} {
		for _, mode := range []string{"dedicated", "shared"} {
			t.Run(mode+" "+skew.String(), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, slow(func(l *pnapsim.Latency) {
					l.ListLag = pnapsim.Duration(30 * time.Second)
					l.TagPropagation = pnapsim.Duration(30 * time.Second)
				}))
				right := w.config.Now
				w.config.Now = func() time.Time { return right().Add(skew) }
				w.restart()
				w.service("plain")
				w.settle("plain") // the tags can be used from now on
				bought := w.sim.Count("POST /ips/v1/ip-blocks")
				w.arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath, Action: pnapsim.FaultLost})
				w.service("web", modes()[mode].ask)
				for w.sim.Count("POST /ips/v1/ip-blocks") == bought {
					_, err := w.sync("web")
					w.clock.Advance(w.pauseAfter(err))
				}
				w.config.Now = right
				w.restart()
				w.settle("web")
				w.wantPurchases(2)
			})
		}
	}
}

// TestQuarantineOfAWrongClock: an address is quarantined no longer than one that is released now, whatever its record
// says.
func TestQuarantineOfAWrongClock(t *testing.T) {
	for _, kind := range []string{"2099", "in 6 h"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, broughtBlock("", ofCluster()))
			w.service("keeps", inBlock(broughtID))
			w.settle("keeps")
			address := netip.MustParseAddr("203.0.113.69")
			l := w.ledgers()[0]
			l.Quarantined = map[netip.Addr]ipblock.Released{address: {Holder: ipblock.Holder{Namespace: "shop",
				Name: "gone"}, Since: w.wrongTimes()[kind]}}
			if _, err := w.ledgerStore().Save(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			w.clock.Advance(time.Minute)
			w.service("wants", inBlock(broughtID), func(s *corev1.Service) {
				s.Annotations[contract.ServiceRequestedIP] = address.String()
			})
			start := w.clock.Now()
			for w.clock.Now().Sub(start) < time.Hour {
				if done, _ := w.sync("wants"); done {
					break
				}
				w.drifted()
			}
			took := w.clock.Now().Sub(start)
			t.Logf("figure wrong_clock_quarantine %.0f s", took.Seconds())
			if took > ipblock.Quarantine+2*time.Minute || took < ipblock.Quarantine-2*time.Minute {
				t.Errorf("the address was quarantined for %s, want about %s", took, ipblock.Quarantine)
			}
			if got := w.address("wants"); got != address.String() {
				t.Errorf("the Service has %q", got)
			}
		})
	}
}
