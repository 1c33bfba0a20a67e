package reconcile

import (
	"context"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// ledgerCopy is a copy of the ledgers for looks that change nothing.
type ledgerCopy struct {
	store Ledgers
	now   func() time.Time

	mu    sync.Mutex
	known []plan.Ledger
	at    time.Time
}

// ledgerWindow is how old the copy may be. It serves to find that there is nothing to do; whatever gives or
// takes an address reads the ledgers afresh.
const ledgerWindow = 15 * time.Second

func newLedgerCopy(store Ledgers, now func() time.Time) *ledgerCopy {
	return &ledgerCopy{store: store, now: now}
}

// list returns the ledgers, which the caller does not change: as they are now, or as the copy shows them.
func (c *ledgerCopy) list(ctx context.Context, live bool) ([]plan.Ledger, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if !live && !c.at.IsZero() && now.Sub(c.at) < ledgerWindow {
		return c.known, nil
	}
	known, err := c.store.List(ctx)
	if err != nil {
		return nil, err
	}
	c.known = known
	c.at = now
	return known, nil
}

// save stores ledgers one after the other by compare-and-swap.
func (c *ledgerCopy) save(ctx context.Context, changed ...plan.Ledger) error {
	defer c.forget()
	for _, l := range changed {
		if _, err := c.store.Save(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the ledger of a block that is gone or given up.
func (c *ledgerCopy) remove(ctx context.Context, l plan.Ledger) error {
	defer c.forget()
	return c.store.Delete(ctx, l)
}

func (c *ledgerCopy) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}
