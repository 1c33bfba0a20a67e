package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// nodeBlockSize is the size of a node block that is bought: 13 addresses.
const nodeBlockSize = plan.LargestSize

// findSource finds the node block, and takes the next step towards one if none is usable.
func (p *pass) findSource(ctx context.Context) (source, error) {
	seen, err := p.sight(ctx, false)
	if err != nil {
		return source{}, err
	}
	if p.config.NodeIPBlock != "" {
		return p.brought(ctx, seen.View)
	}
	return p.bought(ctx, seen)
}

func (m *Manager) owner() plan.Owner { return plan.Owner{Cluster: m.cluster, Nodes: true} }

// brought uses the block that the user configured. It is assigned if necessary, and never deleted.
func (p *pass) brought(ctx context.Context, view plan.View) (source, error) {
	at := slices.IndexFunc(view.Sightings, func(s plan.Sighting) bool { return s.Block.ID == p.config.NodeIPBlock })
	if at < 0 {
		return unavailable("--node-ip-block is IP block %s, which the account does not have", p.config.NodeIPBlock), nil
	}
	sighting := view.Sightings[at]
	if sighting.Block.Tags[contract.TagUsage] == contract.TagUsageAuto && !p.owner().Owns(sighting.Block) {
		return unavailable("--node-ip-block is IP block %s (%s), which was bought for something else; set another "+
			"block", sighting.Block.ID, sighting.Block.CIDR), nil
	}
	current, err := p.ledgerOf(ctx, sighting.Block)
	if err != nil {
		return source{}, err
	}
	step := plan.EnsureBrought(sighting, current.AssignedHere, view)
	if step.Action == plan.Assign && !current.AssignedHere {
		current.AssignedHere = true
		if current, err = p.config.Ledgers.Save(ctx, current); err != nil {
			return source{}, err
		}
	}
	return p.follow(ctx, step, current)
}

// bought uses the block that was bought for the nodes, and buys one if there is none.
func (p *pass) bought(ctx context.Context, seen blocks) (source, error) {
	kept, _, found := plan.ChooseNodeBlock(seen.nodes, seen.recorded(), p.used, seen.View)
	switch {
	case !found && seen.doubtful:
		return source{}, nil
	case !found:
		return p.buy(ctx, seen)
	}
	if err := p.adopt(ctx, seen, kept.Block); err != nil {
		return source{}, err
	}
	current, err := p.ledgerOf(ctx, kept.Block)
	if err != nil {
		return source{}, err
	}
	if current.Closed { // its release had begun, and it is needed again
		if current, err = p.config.Ledgers.Save(ctx, current.Reopen()); err != nil {
			return source{}, err
		}
	}
	return p.follow(ctx, plan.EnsureBlock(kept, seen.View), current)
}

func (p *pass) ledgerOf(ctx context.Context, block plan.Block) (plan.Ledger, error) {
	current, err := p.config.Ledgers.Get(ctx, block.ID)
	if errors.Is(err, allocation.ErrNotFound) {
		return plan.NewLedger(block.ID, block.CIDR), nil
	}
	return current, err
}

// follow takes the next step towards an assigned block. The block is usable once no step is left.
func (p *pass) follow(ctx context.Context, s plan.Step, current plan.Ledger) (source, error) {
	switch s.Action {
	case plan.Done:
		return source{block: s.Block, ledger: current, usable: true}, nil
	case plan.Refuse:
		return unavailable("the block for the nodes' own addresses cannot be used: %s", s.Detail), nil
	case plan.Assign, plan.Unassign, plan.Delete:
		return p.mutate(ctx, s)
	case plan.Wait, plan.Buy:
		return source{}, nil
	default:
		return source{}, nil
	}
}

// mutate changes the node block as the step says.
func (p *pass) mutate(ctx context.Context, s plan.Step) (source, error) {
	err := p.apply(ctx, s)
	switch {
	case err == nil:
		return source{}, nil
	case pnap.IsDryRun(err):
		return source{reason: ReasonDryRun, text: err.Error()}, nil
	case pnap.IsConflict(err):
		return source{}, nil
	case pnap.IsRefused(err):
		return unavailable("the phoenixNAP API rejected the request to %s IP block %s (%s): %v", s.Action, s.Block.ID,
			s.Block.CIDR, err), nil
	default:
		return source{}, err
	}
}

// apply changes the account according to the step. It returns errors of the API.
func (p *pass) apply(ctx context.Context, s plan.Step) error {
	var err error
	switch s.Action {
	case plan.Assign:
		err = p.config.Cloud.AssignBlock(ctx, s.Network, s.Block.ID)
	case plan.Unassign:
		err = p.config.Cloud.UnassignBlock(ctx, s.Network, s.Block.ID)
	case plan.Delete:
		err = p.config.Cloud.DeleteBlock(ctx, s.Block.ID)
	case plan.Wait, plan.Buy, plan.Refuse, plan.Done:
		return nil
	}
	p.config.Account.Invalidate()
	if err == nil {
		klog.FromContext(ctx).Info("Changing a block of the nodes' own addresses", "action", s.Action, "block",
			s.Block.ID, "cidr", s.Block.CIDR, "network", s.Network)
	}
	return err
}

// buy buys a node block if one is due. Blocks of the cluster count whether the list shows them or not.
func (p *pass) buy(ctx context.Context, seen blocks) (source, error) {
	if seen.unreadable != nil {
		return source{}, seen.unreadable
	}
	unlisted, err := p.config.Account.Unlisted(ctx, p.cluster, seen.all(), p.now)
	if err != nil {
		return source{}, err
	}
	wish := plan.Wish{MaxBlocks: p.config.MaxBlocks, Desired: plan.Desired{
		Location: p.network.Location, LocationSource: "the public network", Size: nodeBlockSize,
		SizeSource: "--node-ip-block to a block of another size",
	}}
	for _, block := range slices.Concat(seen.all(), unlisted) {
		if plan.OfCluster(block, p.cluster) {
			wish.Bought++
			if block.ResourceID == "" && !p.network.Listed(block.ID) {
				wish.Reserved++
			}
		}
	}
	due := plan.Extend(p.owner(), wish, seen.View)
	switch due.Action {
	case plan.Buy:
	case plan.Refuse:
		return unavailable("no block for the nodes' own addresses can be bought: %s", due.Detail), nil
	case plan.Wait, plan.Assign, plan.Unassign, plan.Delete, plan.Done:
		return source{}, nil
	}
	_, err = p.config.Buyer.Buy(ctx, purchase.Order{
		Owner: p.owner(), Location: wish.Location, LocationSource: wish.LocationSource, Size: nodeBlockSize,
	}, seen.record)
	p.config.Account.Invalidate()
	return purchaseResult(err)
}

// purchaseResult converts the result of a purchase attempt to a reason for the Nodes that wait.
func purchaseResult(err error) (source, error) {
	var pause *purchase.Pause
	var refused *purchase.Refused
	switch {
	case err == nil, errors.As(err, &pause), errors.Is(err, purchase.ErrOutdated):
		return source{}, nil
	case errors.As(err, &refused):
		return unavailable("%s", refused.Detail), nil
	case pnap.IsDryRun(err):
		return source{reason: ReasonDryRun, text: err.Error()}, nil
	default:
		return source{}, err
	}
}

func unavailable(format string, args ...any) source {
	return source{reason: ReasonNodeBlockUnavailable, text: fmt.Sprintf(format, args...)}
}
