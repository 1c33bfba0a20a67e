package reconcile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Sweep releases what no Service will ask for: addresses of Services that are gone without their
// finalizer, blocks of the pool of which no Service has an address, and what is left of ledgers. It changes the
// account in at most one way and costs it nothing while there is nothing to sweep.
func (b *Balancer) Sweep(ctx context.Context) error {
	o, err := b.observe(ctx, scope{})
	if err != nil {
		return fmt.Errorf("look for what to sweep: %w", err)
	}
	b.config.Metrics.observe(o)
	b.reportDamage(ctx, o)
	if err := b.reportStale(ctx, o); err != nil {
		return fmt.Errorf("look for addresses that answer: %w", err)
	}
	if !o.Unswept() {
		return nil
	}
	done, err := b.config.Account.Lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	return b.sweep(ctx)
}

// sweep reads the account live and does the first thing that is due.
func (b *Balancer) sweep(ctx context.Context) error {
	o, err := b.observe(ctx, scope{}.fresh(b.config.Now()))
	if err != nil {
		return fmt.Errorf("look for what to sweep: %w", err)
	}
	if refusal, unproven := ipblock.Unproven(o.Account); unproven {
		return fmt.Errorf("nothing is swept: %s", refusal.Detail)
	}
	if len(o.FutureDated) > 0 {
		klog.FromContext(ctx).Info("Addresses were released in the future", "ledgers", len(o.FutureDated))
		return b.ledgers.save(ctx, o.FutureDated...)
	}
	for _, l := range o.Ledgers {
		if freed, err := b.freeGone(ctx, o, l); err != nil || freed {
			return err
		}
	}
	if lost := o.Rebuilt(); len(lost) > 0 {
		klog.FromContext(ctx).Info("Making lost ledgers again", "ledgers", len(lost))
		return b.ledgers.save(ctx, lost...)
	}
	if acted, err := b.assignKept(ctx, o); err != nil || acted {
		return err
	}
	if o.PoolPurchase != nil && o.Now.Before(o.PoolPurchase.Time.Add(ipblock.PurchaseSettles)) {
		return nil // a block may have been bought for a Service that has not been given its address yet
	}
	if acted, err := b.recordOrdered(ctx, o); err != nil || acted {
		return err
	}
	for _, l := range o.EmptyPool() {
		if acted, err := b.sweepBlock(ctx, o, l); err != nil || acted {
			return err
		}
	}
	if acted, err := b.sweepRecords(ctx, o); err != nil || acted {
		return err
	}
	if acted, err := b.fulfil(ctx, o); err != nil || acted {
		return err
	}
	return b.sweepLedgers(ctx, o)
}

// sweepRecords removes the first record of a purchase that says nothing any more: each Service, and each block, is
// looked for afresh. Else it protects the first one whose finalizer a person has removed.
func (b *Balancer) sweepRecords(ctx context.Context, o plan.Observed) (bool, error) {
	for _, r := range o.StaleRecords() {
		if gone, err := b.isGone(ctx, o, r); err != nil || !gone {
			if err != nil {
				return false, err
			}
			continue
		}
		klog.FromContext(ctx).Info("Removing the record of a purchase", "object", r.Name, "block", r.BlockID)
		defer b.ledgers.forget()
		return true, allocation.Remove(ctx, b.config.Ledgers.Objects(), r)
	}
	for _, r := range o.Records.Unprotected() {
		defer b.ledgers.forget()
		return true, allocation.Protect(ctx, b.config.Ledgers.Objects(), r)
	}
	return false, nil
}

// isGone reports whether neither the Service of a record needs its block, nor the account shows that to be its own.
func (b *Balancer) isGone(ctx context.Context, o plan.Observed, r ipblock.Record) (bool, error) {
	if r.Service.Name != "" {
		live, err := b.config.Kube.CoreV1().Services(r.Service.Namespace).Get(ctx, r.Service.Name, metav1.GetOptions{})
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			return false, fmt.Errorf("look for Service %s, for which a block was bought: %w", r.Service, err)
		case err == nil && string(live.UID) == r.Service.UID && plan.NeedsBlock(live):
			return false, nil
		}
	}
	if r.BlockID == "" || o.NamedForAnother(r) {
		return true, nil
	}
	block, found, err := b.config.Account.Block(ctx, r.BlockID, o.Now)
	if !found {
		return err == nil && !o.Listed(r.BlockID) && !o.Exists(r.BlockID), err
	}
	cluster := block.Tags[contract.TagCluster]
	return cluster != "" && cluster != o.Owner.Cluster, nil
}

// freeGone frees what Services hold that are certainly gone, or are not ours any more: each is looked for afresh.
func (b *Balancer) freeGone(ctx context.Context, o plan.Observed, l ipblock.Ledger) (bool, error) {
	freed := l
	for _, h := range o.LeftBehind(l) {
		live, err := b.config.Kube.CoreV1().Services(h.Namespace).Get(ctx, h.Name, metav1.GetOptions{})
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			return false, fmt.Errorf("look for Service %s, which holds an address: %w", h, err)
		case err != nil, !plan.KeepsAddress(live, h):
			freed = freed.Free(h, o.Now)
		}
	}
	if len(o.LeftBehind(freed)) == len(o.LeftBehind(l)) {
		return false, nil
	}
	klog.FromContext(ctx).Info("Freed addresses of Services that are gone", "block", l.BlockID)
	return true, b.ledgers.save(ctx, freed)
}

// sweepBlock closes the ledger of an empty block that no Service waits for, and then releases the block.
func (b *Balancer) sweepBlock(ctx context.Context, o plan.Observed, l ipblock.Ledger) (bool, error) {
	if !l.Closed {
		if o.Awaited() && !l.Deleted {
			return false, nil
		}
		return true, b.ledgers.save(ctx, l.Close())
	}
	sighting, _ := o.Sighting(l.BlockID)
	step := ipblock.ReleaseBlock(sighting, o.Account)
	if step.Action != ipblock.Unassign && step.Action != ipblock.Delete {
		return false, nil
	}
	reason, err := b.takeFirst(ctx, nil, []ipblock.Step{step})
	return reason != "", err
}

// sweepLedgers deletes ledgers that say nothing any more: of blocks that are gone, and of brought blocks
// that are unused and have no address in quarantine.
func (b *Balancer) sweepLedgers(ctx context.Context, o plan.Observed) error {
	for _, l := range slices.Concat(o.Ledgers, o.Unrecorded) {
		if !l.Empty() || o.KeptElsewhere(l) || o.Pool().Owns(o.Block(l.BlockID)) {
			continue
		}
		block, found, err := b.config.Account.Block(ctx, l.BlockID, o.Now)
		if err != nil {
			return err
		}
		if !found && o.Exists(l.BlockID) || found && o.Pool().Owns(block) {
			continue
		}
		if gone := !found && !o.Listed(l.BlockID); gone {
			if err := b.drop(ctx, l); err != nil {
				return err
			}
			continue
		}
		if acted, err := b.sweepBrought(ctx, o, l, network.Sighting{Block: block, Hidden: !found}); err != nil ||
			acted {
			return err
		}
	}
	return nil
}

// sweepBrought gives up a brought block that is not used any more. Its ledger goes when no address is quarantined.
func (b *Balancer) sweepBrought(
	ctx context.Context, o plan.Observed, l ipblock.Ledger, sighting network.Sighting,
) (bool, error) {
	spent := l.Spent(nil, o.Now)
	if sighting.Hidden || o.Named(l.BlockID) && !l.Deleted {
		return false, nil
	}
	if !o.IsGivenUp(sighting.Block, l) {
		if spent { // Services may no longer name it; its owner decides where it is
			return true, b.drop(ctx, l)
		}
		return false, nil
	}
	var err error
	view := ipblock.Account{Now: o.Now, Network: o.Network, Sightings: []network.Sighting{sighting}}
	if view.Networks, err = b.readNetworks(ctx, view, scope{after: o.Now}); err != nil {
		return false, err
	}
	switch step := ipblock.ReleaseBrought(sighting, l.AssignedHere, view); {
	case step.Action == ipblock.Unassign:
		reason, err := b.takeFirst(ctx, nil, []ipblock.Step{step})
		return reason != "", err
	case step.Action == ipblock.Done && spent:
		return true, b.drop(ctx, l)
	default:
		return false, nil
	}
}

// staleness keeps what is remembered of addresses that answer though no Service has them.
type staleness struct {
	mu   sync.Mutex
	seen map[netip.Addr]plan.StaleAddress
}

func newStaleness() *staleness { return &staleness{seen: map[netip.Addr]plan.StaleAddress{}} }

// due returns the addresses that must be reported now and records them as reported.
func (s *staleness) due(answering []netip.Addr, now time.Time) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, next := plan.DueStale(s.seen, answering, now)
	s.seen = next
	return due
}

// reportStale reports addresses that answer though they were released: an announcer was killed, or someone took one
// by hand. They are quarantined in their ledgers meanwhile. The event is on the Service that had the address last, or,
// when that is gone, on the Nodes that answer.
func (b *Balancer) reportStale(ctx context.Context, o plan.Observed) error {
	nodes, err := b.config.Nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	o.Nodes = nodes
	for _, address := range b.stale.due(o.AnsweringUnassigned(b.announcer.Names), o.Now) {
		all := reports.Of(nodes, address)
		where := reports.Names(answerers(nodes, all))
		klog.FromContext(ctx).Info("An address answers that no Service has", "address", address, "nodes", where)
		text := "Address %s was released, but still answers (%s); it stays in quarantine until it is silent. " +
			"Delete it there: ip address delete %s/32 dev <interface>"
		if service := o.LastOwner(address); service != nil {
			b.config.Events.Eventf(service, corev1.EventTypeWarning, eventStale, text, address, where, address)
			continue
		}
		for _, name := range answerers(nodes, all) {
			reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name}
			if i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name }); i >= 0 {
				reference.UID = nodes[i].UID
			}
			b.config.Events.Eventf(reference, corev1.EventTypeWarning, eventStale, text, address, where, address)
		}
	}
	return nil
}

// answerers are the Nodes that answer for an address: those that hold it, else those to which the hardware address
// belongs that answers, else those that hear it.
func answerers(nodes []*corev1.Node, all []reports.Report) []string {
	var held, owners, hearing []string
	for _, r := range all {
		if r.State == contract.AddressSilent {
			continue
		}
		hearing = append(hearing, r.Node)
		if r.Held {
			held = append(held, r.Node)
		}
		if name := reports.NodeWithMAC(nodes, r.MAC); name != "" {
			owners = append(owners, name)
		}
	}
	for _, found := range [][]string{held, owners, hearing} {
		if len(found) > 0 {
			slices.Sort(found)
			return slices.Compact(found)
		}
	}
	return nil
}
