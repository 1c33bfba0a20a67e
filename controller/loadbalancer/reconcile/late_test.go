package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// lateCloud loses the answer to the first purchase, and carries it out long after the request.
type lateCloud struct {
	crashing
	// takes is how long the first request lasts before its connection breaks.
	takes time.Duration
	// first is the request that is still to be carried out.
	first *pnap.BlockRequest
	// lost is when the first answer was lost, and again when the next purchase was requested.
	lost, again time.Time
}

func (l *lateCloud) BuyBlock(ctx context.Context, wanted pnap.BlockRequest) (network.Block, error) {
	if l.lost.IsZero() {
		l.world.clock.Advance(l.takes)
		l.first = &wanted
		l.lost = l.world.clock.Now()
		return network.Block{}, errors.New("buy IP block: connection reset by peer")
	}
	if l.again.IsZero() {
		l.again = l.world.clock.Now()
	}
	return l.crashing.BuyBlock(ctx, wanted)
}

// TestPurchaseCarriedOutLate: the answer to a purchase is lost, and it is carried out 100 s after its request. The
// API has no idempotency key, and nothing shows what is still under way. So a second block is bought when a minute
// has passed since the answer was lost, and no sooner; and as soon as the first one appears, one of them is released.
func TestPurchaseCarriedOutLate(t *testing.T) {
	for _, allocation := range []string{contract.AllocationDedicated, contract.AllocationShared} {
		t.Run(allocation, func(t *testing.T) {
			w := newWorld(t)
			api := &lateCloud{crashing: crashing{Client: w.client, world: w}, takes: 20 * time.Second}
			w.restartWith(api)
			w.service("web", annotated(contract.ServiceIPAllocation, allocation))
			s := newSchedule(w, "web")
			requested := w.clock.Now()
			var carriedOut, settled time.Time
			for end := requested.Add(20 * time.Minute); w.clock.Now().Before(end); w.clock.Advance(firstLook) {
				if api.first != nil && w.clock.Now().Sub(requested) >= 100*time.Second {
					if _, err := w.client.BuyBlock(w.ctx, *api.first); err != nil {
						t.Fatal(err)
					}
					api.first = nil
					carriedOut = w.clock.Now()
				}
				s.run()
				if n := len(w.accountBlocks()); n > 1 {
					settled = time.Time{}
				} else if settled.IsZero() && !carriedOut.IsZero() {
					settled = w.clock.Now()
				}
			}
			if waited := api.again.Sub(api.lost); waited < ipblock.PurchaseSettles {
				t.Errorf("the next purchase followed %s after the lost answer", waited)
			}
			surplus := settled.Sub(carriedOut)
			t.Logf("figure late_purchase_surplus_seconds %.0f seconds", surplus.Seconds())
			if blocks := w.accountBlocks(); settled.IsZero() || surplus > 3*time.Minute || len(blocks) != 1 ||
				blocks[0].Status != network.Assigned || w.address("web") == "" {
				t.Errorf("surplus for %s; the account has %v and the Service %q", surplus, w.blocks(), w.address("web"))
			}
			w.wantPurchases(2)
		})
	}
}
