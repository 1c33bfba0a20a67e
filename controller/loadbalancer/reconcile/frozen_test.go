package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
)

// frozen is the way to the API of a leader that stands still between the decision to buy and the purchase.
type frozen struct {
	crashing
	meanwhile func()
}

func (f *frozen) BuyBlock(ctx context.Context, wanted pnap.BlockRequest) (network.Block, error) {
	if meanwhile := f.meanwhile; meanwhile != nil {
		f.meanwhile = nil
		meanwhile()
	}
	return f.crashing.BuyBlock(ctx, wanted)
}

// TestFrozenLeaderBuysABlockTooMany: a process that stops after its intent was recorded, and buys when another
// leader has bought long since, costs a block for some minutes. The address of the Service stays.
func TestFrozenLeaderBuysABlockTooMany(t *testing.T) {
	for kind, ask := range modes() {
		if ask.buys == 0 {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			w.service("web", ask.ask)
			published := ""
			wokeUp := time.Time{}
			old := &frozen{crashing: crashing{Client: w.client, world: w}}
			old.meanwhile = func() {
				w.clock.Advance(2 * time.Minute)
				w.restart() // another process leads
				w.settle("web")
				published = w.address("web")
				wokeUp = w.clock.Now()
			}
			w.restartWith(old)
			stale := w.lb
			for wokeUp.IsZero() {
				_, err := w.ensure(stale, w.get("web"))
				w.clock.Advance(w.pauseAfter(err))
			}
			w.wantPurchases(2)
			extra := len(w.blocks())
			if extra != 2 {
				t.Fatalf("the account holds %s, want one block too many", w.blocks())
			}
			for len(w.blocks()) > 1 && w.clock.Now().Sub(wokeUp) < time.Hour {
				for _, name := range w.drifted() {
					w.settle(name)
				}
			}
			collapsed := w.clock.Now().Sub(wokeUp)
			t.Logf("figure frozen_leader_%s_collapse %.0f seconds", kind, collapsed.Seconds())
			if collapsed > 5*time.Minute {
				t.Errorf("the block too many is gone after %s", collapsed)
			}
			w.settle("web")
			if got := w.address("web"); got != published {
				t.Errorf("address is %s, was %s", got, published)
			}
			w.delete("web")
			w.settle("web")
			w.sweep()
			if left := w.ledgers(); len(left) != 0 {
				t.Errorf("ledgers are left: %v", left)
			}
		})
	}
}
