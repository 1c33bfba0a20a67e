package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// depth is how current an observation has to be.
type depth struct {
	// after is the time since which the account must have been read; zero for whatever is cached.
	after time.Time
	// live asks for blocks by ID, the tags' own index and live ledgers: nothing is bought, deleted or given without.
	live bool
	// known takes the list and the networks as they were last read, however long ago: enough to go on with a block
	// that was just read by its ID.
	known bool
	// deleted is the ID of a block that a known list still shows.
	deleted string
}

// fromCache observes with the copies at hand.
func (b *Balancer) fromCache(ctx context.Context, service *corev1.Service) (plan.Observed, error) {
	o, err := b.beginToEnsure(ctx, service)
	if err != nil {
		return plan.Observed{}, err
	}
	return b.observe(ctx, o, depth{after: b.pace.freshness(service.UID, b.config.Now())})
}

// observeLive reads the Service afresh: the informer's copy may be old, and money is at stake.
func (b *Balancer) observeLive(ctx context.Context, service *corev1.Service, d depth) (plan.Observed, error) {
	live, err := b.current(ctx, service)
	if err != nil {
		return plan.Observed{}, err
	}
	if live == nil || !contract.WantsAddress(live) {
		return plan.Observed{}, b.retry(service, because(waitOutdated))
	}
	o, err := b.beginToEnsure(ctx, live)
	if err != nil {
		return plan.Observed{}, err
	}
	return b.observe(ctx, o, d)
}

func (b *Balancer) observeToRelease(ctx context.Context, known *corev1.Service, d depth) (plan.Observed, error) {
	o, err := b.beginObservation(ctx, known)
	if err != nil {
		return plan.Observed{}, err
	}
	// Nothing that is written into a Service may keep it from being deleted: tags find the block without the record.
	if o.Purchase, err = plan.RecordedPurchase(known); err != nil {
		klog.FromContext(ctx).Info("Ignoring the record of a purchase", "service", klog.KObj(known), "err", err)
	}
	o.Purchase = b.seen.Bounded(o.Purchase)
	o.Desired.BlockID = "" // what was asked for matters no more, only what is held
	return b.observe(ctx, o, d)
}

func (b *Balancer) beginToEnsure(ctx context.Context, service *corev1.Service) (plan.Observed, error) {
	o, err := b.beginObservation(ctx, service)
	if err != nil {
		return plan.Observed{}, err
	}
	var unreadable error
	if o.Purchase, unreadable = plan.RecordedPurchase(service); unreadable != nil {
		o.Problem = errors.Join(o.Problem, unreadable)
	}
	o.Purchase = b.seen.Bounded(o.Purchase)
	return o, nil
}

// beginObservation observes what can be known without the account.
func (b *Balancer) beginObservation(ctx context.Context, service *corev1.Service) (plan.Observed, error) {
	cluster, err := b.cluster(ctx)
	if err != nil {
		return plan.Observed{}, err
	}
	o := plan.Observed{
		Service: service, Owner: plan.OwnerOf(service, cluster), Holder: plan.HolderOf(service),
		Options: b.config.Options, View: plan.View{NetworkID: b.config.NetworkID, Now: b.config.Now()},
	}
	o.RestingSince, o.LeavingSince = b.pace.history(service.UID, o.Now)
	o.Desired, o.Problem = plan.ReadDesired(service, o.Options)
	if o.Nodes, err = b.config.Nodes.List(labels.Everything()); err != nil {
		return plan.Observed{}, fmt.Errorf("list Nodes: %w", err)
	}
	if o.Services, err = b.config.Services.List(labels.Everything()); err != nil {
		return plan.Observed{}, fmt.Errorf("list Services: %w", err)
	}
	return o, nil
}

// observe completes an observation with the account and the ledgers.
func (b *Balancer) observe(ctx context.Context, o plan.Observed, d depth) (plan.Observed, error) {
	listing, err := b.list(ctx, d)
	if err != nil {
		return plan.Observed{}, err
	}
	o.Live = d.live
	o.AskedAt = listing.AskedAt
	o.Blocks = listing.Blocks
	o.Sightings = nil
	o.Unlisted = nil
	if err := b.readLedgers(ctx, &o, d.live); err != nil {
		return plan.Observed{}, err
	}
	if d.live && o.WantsPool() {
		o.PoolPurchase, err = b.poolRecord().Load(ctx)
		if o.PoolProblem = err; err != nil && !errors.Is(err, purchase.ErrUnreadable) {
			return plan.Observed{}, err
		}
		o.PoolPurchase = b.seen.Bounded(o.PoolPurchase)
	}
	if err := b.sightListed(ctx, &o, d); err != nil {
		return plan.Observed{}, err
	}
	if d.live {
		if err := b.sightHidden(ctx, &o, d.after); err != nil {
			return plan.Observed{}, err
		}
		if o.Unlisted, err = b.sightUnlisted(ctx, o, d.after); err != nil {
			return plan.Observed{}, err
		}
	}
	o.Ours = o.Ours || o.ShowsOurs()
	if o.Networks, err = b.readNetworks(ctx, o.View, d); err != nil {
		return plan.Observed{}, err
	}
	o.Places = b.places.next(o)
	return o, nil
}

// places remembers what is known of the places in the public network.
type places struct {
	mu    sync.Mutex
	known plan.Places
}

// next adds an observation to what is known.
func (p *places) next(o plan.Observed) plan.Places {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = p.known.Next(o.View, o.Owner.Cluster, o.Known())
	return p.known
}

// readLedgers reads the ledgers, and restores the labels of those that lost theirs.
func (b *Balancer) readLedgers(ctx context.Context, o *plan.Observed, live bool) error {
	listing, restored, err := b.ledgers.list(ctx, live, o.Allocated())
	for _, name := range restored {
		b.recordInSystem(ctx, corev1.EventTypeNormal, eventRelabelled, "Restored label "+allocation.Label+
			"=true of ConfigMap "+metav1.NamespaceSystem+"/"+name+
			", which records who has which address of an IP block")
	}
	o.Ledgers, o.Misdated = plan.BoundRests(listing.Ledgers, o.Now)
	o.Unreadable = listing.Unreadable
	return err
}

// drop deletes the ledgers of blocks that are gone or given up. A record of the purchase of one goes first: whoever
// comes next would wait for that block.
func (b *Balancer) drop(ctx context.Context, obsolete ...plan.Ledger) error {
	for _, l := range obsolete {
		record := b.poolRecord()
		recorded, err := record.Load(ctx)
		if err == nil && recorded != nil && recorded.BlockID == l.BlockID {
			err = record.Save(ctx, nil)
		}
		if err != nil && !errors.Is(err, purchase.ErrUnreadable) {
			return err
		}
		if err := b.ledgers.remove(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

func (b *Balancer) list(ctx context.Context, d depth) (account.Listing, error) {
	if listing, found := b.config.Account.Known(); found && d.known {
		listing.Blocks = slices.DeleteFunc(slices.Clone(listing.Blocks),
			func(block plan.Block) bool { return block.ID == d.deleted })
		return listing, nil
	}
	return b.config.Account.Blocks(ctx, d.after)
}

func (b *Balancer) network(ctx context.Context, id string, d depth) (plan.Network, error) {
	if network, _, found := b.config.Account.KnownNetwork(id); found && d.known {
		return network, nil
	}
	return b.config.Account.Network(ctx, id, d.after)
}

func (b *Balancer) poolRecord() *purchase.ConfigMap {
	return purchase.NewConfigMap(b.config.Kube, purchase.PoolName(contract.PoolDefault))
}

// sightListed takes the listed blocks that matter; live, each is read by its ID, because a list
// may lag behind. A block of the pool that is assigned and in use needs no second look.
func (b *Balancer) sightListed(ctx context.Context, o *plan.Observed, d depth) error {
	for _, listed := range o.Blocks {
		if !o.Relevant(listed) {
			continue
		}
		sighting := plan.Sighting{Block: listed}
		if d.live && !o.InUse(listed) {
			block, found, err := b.config.Account.Block(ctx, listed.ID, d.after)
			if err != nil {
				return err
			}
			if sighting.Hidden = !found; found {
				sighting.Block = block
			}
		}
		o.Sightings = append(o.Sightings, sighting)
	}
	return nil
}

// sightHidden looks for blocks that the list does not show: those that a purchase recorded, that a ledger
// or the user names and, where nothing is known of a purchase, those that the index of the tag names.
func (b *Balancer) sightHidden(ctx context.Context, o *plan.Observed, after time.Time) error {
	ids := []string{o.Desired.BlockID}
	for _, recorded := range []*contract.Purchase{o.Purchase, o.PoolPurchase} {
		if recorded != nil {
			ids = append(ids, recorded.BlockID)
		}
	}
	for _, l := range o.Ledgers {
		if plan.Knows(l, o.Holder) {
			ids = append(ids, l.BlockID)
		}
	}
	var err error
	o.Sightings, err = b.config.Account.Find(ctx, account.Search{Seen: o.Sightings, IDs: ids, After: after})
	if err != nil {
		return err
	}
	var owners []plan.Owner
	for _, owner := range o.Owners() {
		if !slices.ContainsFunc(o.Sightings, func(i plan.Sighting) bool {
			return owner.Owns(i.Block) && (owner == o.Owner || i.Block.Status != plan.Assigned)
		}) {
			owners = append(owners, owner)
		}
	}
	o.Sightings, err = b.config.Account.Find(ctx, account.Search{Seen: o.Sightings, Owners: owners, After: after})
	return err
}

// sightUnlisted looks for blocks of the cluster that the list lacks, where a purchase may follow that they forbid.
func (b *Balancer) sightUnlisted(ctx context.Context, o plan.Observed, after time.Time) ([]plan.Block, error) {
	if !contract.WantsAddress(o.Service) || len(o.Owned(o.Owner)) > 0 {
		return nil, nil
	}
	return b.config.Account.Unlisted(ctx, o.Owner.Cluster, o.Blocks, after)
}

// readNetworks reads the configured network and those that hold one of the blocks that matter.
func (b *Balancer) readNetworks(
	ctx context.Context, v plan.View, d depth,
) (map[string]plan.Network, error) {
	networks := map[string]plan.Network{}
	ids := []string{v.NetworkID}
	for _, i := range v.Sightings {
		if i.Block.ResourceID != "" && i.Block.ResourceType != "server" {
			ids = append(ids, i.Block.ResourceID)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		network, err := b.network(ctx, id, d)
		switch {
		case err == nil:
			networks[id] = network
		case pnap.IsInaccessible(err):
		default:
			return nil, err
		}
	}
	return networks, nil
}

// ledgerCopy is a copy of the ledgers for looks that change nothing.
type ledgerCopy struct {
	store *allocation.Store
	now   func() time.Time

	mu    sync.Mutex
	known allocation.Listing
	at    time.Time
}

// ledgerWindow is how old the copy may be. It serves to find that there is nothing to do; whatever gives or
// takes an address reads the ledgers afresh.
const ledgerWindow = 15 * time.Second

func newLedgerCopy(store *allocation.Store, now func() time.Time) *ledgerCopy {
	return &ledgerCopy{store: store, now: now}
}

// list returns the ledgers, which the caller does not change: as they are now, or as the copy shows them. Of the
// expected blocks a ledger is to be found; restored names those whose label had to be restored for that.
func (c *ledgerCopy) list(
	ctx context.Context, live bool, expected []string,
) (known allocation.Listing, restored []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if !live && !c.at.IsZero() && now.Sub(c.at) < ledgerWindow {
		return c.known, nil, nil
	}
	if known, err = c.store.List(ctx); err != nil {
		return allocation.Listing{}, nil, err
	}
	if restored, err = c.store.Relabel(ctx, known.Without(expected)...); err != nil {
		return allocation.Listing{}, restored, err
	}
	if len(restored) > 0 {
		if known, err = c.store.List(ctx); err != nil {
			return allocation.Listing{}, restored, err
		}
	}
	c.known = known
	c.at = now
	return known, restored, nil
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

// remove deletes a ledger.
func (c *ledgerCopy) remove(ctx context.Context, obsolete plan.Ledger) error {
	defer c.forget()
	return c.store.Delete(ctx, obsolete)
}

func (c *ledgerCopy) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}
