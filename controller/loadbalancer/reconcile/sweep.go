package reconcile

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// Sweep gives back what no Service will ask for: addresses of Services that are gone without their
// finalizer, blocks of the pool of which no Service has an address, and what is left of ledgers. It changes the
// account in at most one way and costs it nothing while there is nothing to sweep.
func (b *Balancer) Sweep(ctx context.Context) error {
	cluster, err := b.cluster(ctx)
	if err != nil {
		return err
	}
	s := plan.Observed{Service: &corev1.Service{}, Owner: plan.Owner{Cluster: cluster}, NetworkID: b.config.NetworkID,
		Options: b.config.options(), Now: b.config.Now()}
	s.Desired.Shared = true
	if s.Services, err = b.config.Services.List(labels.Everything()); err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	if s, err = b.observe(ctx, s, depth{}); err != nil {
		return fmt.Errorf("look for what to sweep: %w", err)
	}
	b.config.Metrics.observe(s)
	if err := b.tellStale(ctx, s); err != nil {
		return fmt.Errorf("look for addresses that answer: %w", err)
	}
	if !s.Unswept() {
		return nil
	}
	done, err := b.config.Account.Lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	return b.sweep(ctx, s)
}

// sweep reads the account live and does the first thing that is due.
func (b *Balancer) sweep(ctx context.Context, s plan.Observed) error {
	s, err := b.observe(ctx, s, depth{after: s.Now, live: true})
	if err != nil {
		return fmt.Errorf("look for what to sweep: %w", err)
	}
	if refusal, unproven := plan.Unproven(s.View(nil)); unproven {
		return fmt.Errorf("nothing is swept: %s", refusal.Detail)
	}
	for _, l := range s.Ledgers {
		if freed, err := b.freeGone(ctx, s, l); err != nil || freed {
			return err
		}
	}
	if s.PoolPurchase != nil && s.Now.Before(s.PoolPurchase.Time.Add(plan.PurchaseSettles)) {
		return nil // a block may have been bought for a Service that has not been given its address yet
	}
	for _, l := range s.EmptyPool() {
		if acted, err := b.sweepBlock(ctx, s, l); err != nil || acted {
			return err
		}
	}
	return b.sweepLedgers(ctx, s)
}

// freeGone frees what Services hold that are certainly gone: each is looked for afresh.
func (b *Balancer) freeGone(ctx context.Context, s plan.Observed, l plan.Ledger) (bool, error) {
	freed := l
	for _, h := range s.LeftBehind(l) {
		_, err := b.config.Kube.CoreV1().Services(h.Namespace).Get(ctx, h.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			freed = freed.Free(h, s.Now)
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

// sweepBlock closes the ledger of an empty block that no Service waits for, and then gives the block back.
func (b *Balancer) sweepBlock(ctx context.Context, s plan.Observed, l plan.Ledger) (bool, error) {
	if !l.Closed {
		if s.Awaited() {
			return false, nil
		}
		return true, b.ledgers.save(ctx, l.Close())
	}
	sighting, _ := s.Sighting(l.BlockID)
	step := plan.ReleaseBlock(sighting, s.View(nil))
	if step.Action != plan.Unassign && step.Action != plan.Delete {
		return false, nil
	}
	reason, err := b.takeFirst(ctx, nil, []plan.Step{step})
	return reason != "", err
}

// sweepLedgers deletes ledgers that say nothing any more: of blocks that are gone, and of brought blocks
// that are unused and have no address in quarantine.
func (b *Balancer) sweepLedgers(ctx context.Context, s plan.Observed) error {
	for _, l := range s.Ledgers {
		if !l.Empty() || s.KeptElsewhere(l) || s.Pool().Owns(s.Block(l.BlockID)) {
			continue
		}
		block, found, err := b.config.Account.Block(ctx, l.BlockID, s.Now)
		if err != nil {
			return err
		}
		if gone := !found && !s.Listed(l.BlockID); gone {
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

// sweepBrought gives up a brought block that is not used any more. Its ledger goes when no address rests.
func (b *Balancer) sweepBrought(ctx context.Context, s plan.Observed, l plan.Ledger, sighting plan.Sighting) (bool,
	error) {
	rested := l.Spent(nil, s.Now)
	if sighting.Hidden || s.Named(l.BlockID) {
		return false, nil
	}
	if !plan.Brought(sighting.Block, s.Owner.Cluster, s.Options.OwnBlocks) {
		if rested { // Services may no longer name it; its owner decides where it is
			return true, b.ledgers.remove(ctx, l)
		}
		return false, nil
	}
	networks, err := b.readNetworks(ctx, plan.Observed{NetworkID: s.NetworkID, Sightings: []plan.Sighting{sighting}},
		s.Now)
	if err != nil {
		return false, err
	}
	s.Networks = networks
	switch step := plan.ReleaseBrought(sighting, l.AssignedHere, s.View(nil)); {
	case step.Action == plan.Unassign:
		reason, err := b.takeFirst(ctx, nil, []plan.Step{step})
		return reason != "", err
	case step.Action == plan.Done && rested:
		return true, b.ledgers.remove(ctx, l)
	default:
		return false, nil
	}
}
