package membership

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/ledger"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// releaseDue tells whether the block that was bought for the nodes may be given back: for a while no Node
// has been wanted, and no server is a member by our hand.
func (m *Manager) releaseDue(ctx context.Context, p picture) (bool, error) {
	if m.config.NodeIPBlock != "" || len(p.wanted)+len(p.roster.members) > 0 || m.idle.IsZero() || p.now.Sub(m.idle) < leaveAfter {
		return false, nil
	}
	if err := m.identify(ctx); err != nil {
		return false, err
	}
	listing, err := m.config.Account.Blocks(ctx, time.Time{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(listing.Blocks, m.owner().Owns), nil
}

// releaseBlock takes the next step to give back the block that was bought for the nodes. The ledger closes
// first, and goes last.
func (p *pass) releaseBlock(ctx context.Context) error {
	view, err := p.view(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(view.Sightings, func(s ipblock.Sighting) bool { return p.owner().Owns(s.Block) })
	if at < 0 {
		return nil
	}
	block := view.Sightings[at].Block
	current, err := p.config.Ledgers.Get(ctx, block.ID)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		current = ipblock.NewLedger(block.ID, block.CIDR)
	case err != nil:
		return err
	}
	current = current.Settle(nil, p.config.Now())
	if !current.Empty() || len(current.Resting) > 0 {
		return nil
	}
	if !current.Closed {
		if current, err = p.config.Ledgers.Save(ctx, current.Close()); err != nil {
			return err
		}
	}
	step := ipblock.ReleaseBlock(view.Sightings[at], view)
	klog.FromContext(ctx).V(2).Info("Giving back the block of the nodes' own addresses", "block", block.ID, "step", step.Action, "reason", step.Reason)
	if step.Action != ipblock.Unassign && step.Action != ipblock.Delete {
		return nil
	}
	if _, err := p.mutate(ctx, step); err != nil {
		return err
	}
	if step.Action == ipblock.Delete {
		return p.config.Ledgers.Delete(ctx, current)
	}
	return nil
}
