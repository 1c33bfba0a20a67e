package balancer

import (
	"context"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// lookups reads single blocks and the index of a tag, which do not lag behind as the list of blocks may.
// What several Services wait for is read once for all of them.
type lookups struct {
	cloud Cloud
	now   func() time.Time

	mu     sync.Mutex
	blocks map[string]lookup
	tags   map[string]tagIndex
}

// lookup is a block that was read by its ID.
type lookup struct {
	block ipblock.Block
	// found is false when the API did not show it.
	found bool
	at    time.Time
}

// tagIndex holds the values of a tag by the ID of the block that carries it.
type tagIndex struct {
	values map[string]string
	at     time.Time
}

func newLookups(cloud Cloud, now func() time.Time) *lookups {
	return &lookups{cloud: cloud, now: now, blocks: map[string]lookup{}, tags: map[string]tagIndex{}}
}

// block reads a block, asked for at or after the given time. That the API does not show it is no error.
func (l *lookups) block(ctx context.Context, id string, after time.Time) (block ipblock.Block, found bool, err error) {
	if known, ok := l.knownBlock(id, after); ok {
		return known.block, known.found, nil
	}
	read := lookup{at: l.now()}
	read.block, err = l.cloud.Block(ctx, id)
	switch {
	case err == nil:
		read.found = true
	case !pnap.IsInaccessible(err):
		return ipblock.Block{}, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocks[id] = read
	return read.block, read.found, nil
}

func (l *lookups) knownBlock(id string, after time.Time) (lookup, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.blocks[id]
	return known, ok && !after.IsZero() && !known.at.Before(after)
}

// tagged reads the values of a tag by block ID, asked for at or after the given time.
func (l *lookups) tagged(ctx context.Context, name string, after time.Time) (map[string]string, error) {
	if known, ok := l.knownTag(name, after); ok {
		return known.values, nil
	}
	read := tagIndex{at: l.now()}
	var err error
	if read.values, err = l.cloud.TagAssignments(ctx, name); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tags[name] = read
	return read.values, nil
}

func (l *lookups) knownTag(name string, after time.Time) (tagIndex, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.tags[name]
	return known, ok && !after.IsZero() && !known.at.Before(after)
}

// forget drops everything: the account was changed.
func (l *lookups) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.blocks)
	clear(l.tags)
}

// ledgerCopy is a copy of the ledgers for looks that change nothing.
type ledgerCopy struct {
	store Ledgers
	now   func() time.Time

	mu    sync.Mutex
	known []ipblock.Ledger
	at    time.Time
}

// ledgerWindow is how old the copy may be. It serves to see that nothing is to be done; whatever gives or
// takes an address reads the ledgers afresh.
const ledgerWindow = 15 * time.Second

func newLedgerCopy(store Ledgers, now func() time.Time) *ledgerCopy {
	return &ledgerCopy{store: store, now: now}
}

// list returns the ledgers, which the caller does not change: as they are now, or as the copy shows them.
func (c *ledgerCopy) list(ctx context.Context, live bool) ([]ipblock.Ledger, error) {
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
	c.known, c.at = known, now
	return known, nil
}

// save stores ledgers one after the other by compare-and-swap.
func (c *ledgerCopy) save(ctx context.Context, changed ...ipblock.Ledger) error {
	defer c.forget()
	for _, l := range changed {
		if _, err := c.store.Save(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the ledger of a block that is gone or given up.
func (c *ledgerCopy) remove(ctx context.Context, l ipblock.Ledger) error {
	defer c.forget()
	return c.store.Delete(ctx, l)
}

func (c *ledgerCopy) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}
