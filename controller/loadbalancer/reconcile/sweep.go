package reconcile

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Sweep gives back what no Service will ask for: addresses of Services that are gone without their
// finalizer, blocks of the pool that nobody has an address of, and what is left of ledgers. It changes the
// account in at most one way and costs it nothing while there is nothing to sweep.
func (b *Balancer) Sweep(ctx context.Context) error {
	cluster, err := b.cluster(ctx)
	if err != nil {
		return err
	}
	s := observed{service: &corev1.Service{}, owner: plan.Owner{Cluster: cluster}, networkID: b.config.NetworkID, options: b.config.options(), now: b.config.Now()}
	s.desired.shared = true
	if s.services, err = b.config.Services.List(labels.Everything()); err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	if s, err = b.observe(ctx, s, depth{}); err != nil {
		return fmt.Errorf("look for what to sweep: %w", err)
	}
	b.config.Metrics.observe(s)
	if err := b.tellStale(ctx, s); err != nil {
		return fmt.Errorf("look for addresses that answer: %w", err)
	}
	if !s.unswept() {
		return nil
	}
	done, err := b.config.Account.Lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	return b.sweep(ctx, s)
}

// unswept tells whether there is something to read live.
func (s observed) unswept() bool {
	for _, l := range s.ledgers {
		if !s.keptElsewhere(l) && (l.Closed || l.Empty() || !s.listed(l.BlockID) || len(s.leftBehind(l)) > 0) {
			return true
		}
	}
	return slices.ContainsFunc(s.blocks, func(block plan.Block) bool {
		_, stored := s.ledger(block.ID)
		return s.pool().Owns(block) && !stored && !s.awaited()
	})
}

// sweep reads the account live and does the first thing that is due.
func (b *Balancer) sweep(ctx context.Context, s observed) error {
	s, err := b.observe(ctx, s, depth{after: s.now, live: true})
	if err != nil {
		return fmt.Errorf("look for what to sweep: %w", err)
	}
	if refusal, unproven := plan.Unproven(s.view(nil)); unproven {
		return fmt.Errorf("nothing is swept: %s", refusal.Detail)
	}
	for _, l := range s.ledgers {
		if freed, err := b.freeGone(ctx, s, l); err != nil || freed {
			return err
		}
	}
	if s.poolPurchase != nil && s.now.Before(s.poolPurchase.Time.Add(plan.PurchaseSettles)) {
		return nil // somebody may have bought for a Service that has not been given its address yet
	}
	for _, l := range s.emptyPool() {
		if acted, err := b.sweepBlock(ctx, s, l); err != nil || acted {
			return err
		}
	}
	return b.sweepLedgers(ctx, s)
}

// leftBehind are the holders of a ledger whose Service is gone, or has another UID, as the informer shows.
func (s observed) leftBehind(l plan.Ledger) []plan.Holder {
	var left []plan.Holder
	for _, h := range l.Held {
		if h.Namespace == "" {
			continue // a server; not ours to judge
		}
		if !slices.ContainsFunc(s.services, func(service *corev1.Service) bool {
			return service.Namespace == h.Namespace && service.Name == h.Name
		}) {
			left = append(left, h)
		}
	}
	return left
}

// freeGone frees what Services hold that are certainly gone: each is looked for afresh.
func (b *Balancer) freeGone(ctx context.Context, s observed, l plan.Ledger) (bool, error) {
	freed := l
	for _, h := range s.leftBehind(l) {
		_, err := b.config.Kube.CoreV1().Services(h.Namespace).Get(ctx, h.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			freed = freed.Free(h, s.now)
		case err != nil:
			return false, fmt.Errorf("look for Service %s, which holds an address: %w", h, err)
		}
	}
	if len(freed.Held) == len(l.Held) {
		return false, nil
	}
	klog.FromContext(ctx).Info("Freed addresses of Services that are gone", "block", l.BlockID)
	return true, b.ledgers.save(ctx, freed)
}

// emptyPool returns the ledgers of those blocks of the pool that nobody has an address of.
func (s observed) emptyPool() []plan.Ledger {
	var empty []plan.Ledger
	for _, i := range s.sightings {
		if !s.pool().Owns(i.Block) || !i.Block.CIDR.IsValid() {
			continue
		}
		l, stored := s.ledger(i.Block.ID)
		if !stored {
			l = plan.NewLedger(i.Block.ID, i.Block.CIDR)
		}
		if l.Empty() {
			empty = append(empty, l)
		}
	}
	return empty
}

// sweepBlock closes the ledger of an empty block that nobody waits for, and then gives the block back.
func (b *Balancer) sweepBlock(ctx context.Context, s observed, l plan.Ledger) (bool, error) {
	if !l.Closed {
		if s.awaited() {
			return false, nil
		}
		return true, b.ledgers.save(ctx, l.Close())
	}
	sighting, _ := s.sighting(l.BlockID)
	step := plan.ReleaseBlock(sighting, s.view(nil))
	if step.Action != plan.Unassign && step.Action != plan.Delete {
		return false, nil
	}
	reason, err := b.takeFirst(ctx, nil, []plan.Step{step})
	return reason != "", err
}

// sweepLedgers deletes ledgers that say nothing any more: of blocks that are gone, and of brought blocks
// that nobody uses and of which no address rests.
func (b *Balancer) sweepLedgers(ctx context.Context, s observed) error {
	for _, l := range s.ledgers {
		if !l.Empty() || s.keptElsewhere(l) || s.pool().Owns(s.block(l.BlockID)) {
			continue
		}
		block, found, err := b.config.Account.Block(ctx, l.BlockID, s.now)
		if err != nil {
			return err
		}
		if gone := !found && !s.listed(l.BlockID); gone {
			if err := b.ledgers.remove(ctx, l); err != nil {
				return err
			}
			continue
		}
		if acted, err := b.sweepBrought(ctx, s, l, plan.Sighting{Block: block, Hidden: !found}); err != nil || acted {
			return err
		}
	}
	return nil
}

// sweepBrought gives up a brought block that nobody uses any more. Its ledger goes when no address rests.
func (b *Balancer) sweepBrought(ctx context.Context, s observed, l plan.Ledger, sighting plan.Sighting) (bool, error) {
	rested := l.Spent(nil, s.now)
	if sighting.Hidden || s.named(l.BlockID) {
		return false, nil
	}
	if !plan.Brought(sighting.Block, s.owner.Cluster, s.options.ownBlocks) {
		if rested { // nobody may name it any more; where it is, is its owner's business
			return true, b.ledgers.remove(ctx, l)
		}
		return false, nil
	}
	networks, err := b.readNetworks(ctx, observed{networkID: s.networkID, sightings: []plan.Sighting{sighting}}, s.now)
	if err != nil {
		return false, err
	}
	s.networks = networks
	switch step := plan.ReleaseBrought(sighting, l.AssignedHere, s.view(nil)); {
	case step.Action == plan.Unassign:
		reason, err := b.takeFirst(ctx, nil, []plan.Step{step})
		return reason != "", err
	case step.Action == plan.Done && rested:
		return true, b.ledgers.remove(ctx, l)
	default:
		return false, nil
	}
}

// named tells whether a Service that is served names the block.
func (s observed) named(blockID string) bool {
	return slices.ContainsFunc(s.services, func(service *corev1.Service) bool {
		return contract.WantsAddress(service) && service.Annotations[contract.ServiceIPBlockID] == blockID
	})
}

func (s observed) block(id string) plan.Block {
	for _, block := range s.blocks {
		if block.ID == id {
			return block
		}
	}
	return plan.Block{}
}

// keptElsewhere tells whether the ledger is that of the nodes' own addresses, which is not ours to judge.
func (s observed) keptElsewhere(l plan.Ledger) bool {
	return l.BlockID == s.options.nodeBlock || holdsForServers(l)
}

// holdsForServers tells whether the ledger is that of the nodes' own addresses.
func holdsForServers(l plan.Ledger) bool {
	for _, h := range l.Held {
		if h.Namespace == "" {
			return true
		}
	}
	for _, r := range l.Resting {
		if r.Holder.Namespace == "" {
			return true
		}
	}
	return false
}
