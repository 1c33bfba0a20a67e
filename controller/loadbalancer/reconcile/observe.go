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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// scope is what an observation is about, and how current it has to be.
type scope struct {
	// Subject is what the observation is about.
	plan.Subject
	// memory is what the observations of one sync share; nil where there is but one.
	memory *memory
	// after is the time since which the account must have been read; zero for whatever is cached.
	after time.Time
	// live asks for blocks by ID, the tags' own index and live ledgers: nothing is bought, deleted or given without.
	live bool
	// known takes the list and the networks as they were last read, however long ago: enough to go on with a block
	// that was just read by its ID.
	known bool
	// deleted is the ID of a block that a known list or network still shows.
	deleted string
}

// cached is the scope for a look at the copies at hand.
func (s scope) cached(after time.Time) scope {
	return scope{Subject: s.Subject, memory: s.memory, after: after}
}

// fresh is the scope for a look at what is there since a time. Nothing but that changes the account.
func (s scope) fresh(after time.Time) scope {
	s = s.cached(after)
	s.live = true
	return s
}

// memory is what the observations of one sync share.
type memory struct {
	// declared is what the Service says, read when it was looked at last.
	declared plan.Declared
	// ours is true once a block of this cluster was seen.
	ours bool
}

// scopeOf is the scope of a sync of a Service.
func scopeOf(service *corev1.Service) scope {
	return scope{Subject: plan.Subject{Service: service}, memory: &memory{}}
}

// observe reads what a decision looks at, and finds its facts.
func (b *Balancer) observe(ctx context.Context, s scope) (plan.Observed, error) {
	o, err := b.observeCluster(ctx)
	if err != nil {
		return plan.Observed{}, err
	}
	listing, err := b.list(ctx, s)
	if err != nil {
		return plan.Observed{}, err
	}
	o.Live = s.live
	o.AskedAt = listing.AskedAt
	if err := b.readLedgers(ctx, &o, s); err != nil {
		return plan.Observed{}, err
	}
	o.Blocks = o.Elsewhere.Without(listing.Blocks)
	o, wanted := b.about(o, s)
	if s.Service != nil && plan.OnlyElsewhere(o.Holder, o.Held, o.Records, o.Elsewhere) {
		return plan.Observed{}, elsewhere()
	}
	wanted.IDs = slices.DeleteFunc(wanted.IDs, func(id string) bool { return id == s.deleted })
	found, err := b.config.Account.Find(ctx, account.Search{Cluster: o.Owner.Cluster, Wanted: wanted.Wanted,
		Trusted: wanted.Trusted, Enough: wanted.Enough, IDs: wanted.IDs, List: &listing, After: s.after})
	if err != nil {
		return plan.Observed{}, err
	}
	o.Sightings = found.Wanted
	o.Unlisted = o.Elsewhere.Without(found.Unlisted)
	o.Unseen = found.Unseen
	if o.Networks, err = b.readNetworks(ctx, o.Account, s); err != nil {
		return plan.Observed{}, err
	}
	if err := b.readProof(ctx, &o); err != nil {
		return plan.Observed{}, err
	}
	o.NetworkSlots = b.slots.next(o)
	o.Ours = s.memory != nil && s.memory.ours
	o = o.Complete()
	if s.memory != nil {
		s.memory.ours = o.Ours
	}
	return o, nil
}

// observeCluster observes what can be known without the account.
func (b *Balancer) observeCluster(ctx context.Context) (plan.Observed, error) {
	cluster, err := b.cluster(ctx)
	if err != nil {
		return plan.Observed{}, err
	}
	o := plan.Observed{Service: &corev1.Service{}, Owner: network.Owner{Cluster: cluster}, Options: b.config.Options,
		Account: ipblock.Account{Network: b.config.Network, Now: b.config.Now()}}
	if o.Nodes, err = b.config.Nodes.List(labels.Everything()); err != nil {
		return plan.Observed{}, fmt.Errorf("list Nodes: %w", err)
	}
	if o.Services, err = b.config.Services.List(labels.Everything()); err != nil {
		return plan.Observed{}, fmt.Errorf("list Services: %w", err)
	}
	return o, nil
}

// about is the observation as one about what the scope names, and what else to look for in the account.
func (b *Balancer) about(o plan.Observed, s scope) (plan.Observed, plan.Search) {
	if s.Service == nil {
		o, _, wanted := o.About(s.Subject)
		return o, wanted
	}
	s.Declared = s.memory.declared
	o, declared, wanted := o.About(s.Subject)
	s.memory.declared = declared
	o.QuarantinedSince, o.LeavingSince = b.pace.history(s.Service.UID, o.Now)
	return o, wanted
}

// slots remembers what is known of the slots of the public network.
type slots struct {
	mu    sync.Mutex
	known ipblock.NetworkSlots
}

// next adds an observation to what is known.
func (p *slots) next(o plan.Observed) ipblock.NetworkSlots {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = p.known.Next(o.Account, o.Owner.Cluster, o.Known())
	return p.known
}

// readLedgers reads the ledgers and the recorded purchases.
func (b *Balancer) readLedgers(ctx context.Context, o *plan.Observed, s scope) error {
	listing, err := b.ledgers.list(ctx, s)
	o.Ledgers, o.FutureDated = ipblock.BoundQuarantine(listing.Ledgers, o.Now)
	o.Unreadable = listing.Unreadable
	o.Unrecorded = listing.Unrecorded
	o.BroughtBlocks = listing.BroughtBlocks
	o.BroughtForNodes = listing.BroughtForNodes
	o.Shared = listing.Shared
	o.TakenUp = slices.Concat(listing.BroughtBlocks.TakenUp(), listing.BroughtForNodes.IDs())
	o.IPBlocks = listing.Names
	o.Elsewhere = b.seen.BoundedAll(listing.Elsewhere)
	o.Services = b.served(o.Services, listing.All)
	o.Everywhere = listing.All
	o.Records = b.seen.BoundedAll(listing.Records)
	o.Purchase = o.Records.Of(o.Holder)
	if last, found := o.Records.Last(false); found {
		o.PoolPurchase = &last.Purchase
	}
	return err
}

// readProof reads all Services where a ledger has to be made from what they show: what the informer does not show yet
// would be given to another; and where others may have the address that the Service is to get, or would lose.
func (b *Balancer) readProof(ctx context.Context, o *plan.Observed) error {
	if !o.Live || !lacksLedger(*o) && !o.Sharing {
		return nil
	}
	live, err := b.config.Kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	var all []*corev1.Service
	for i := range live.Items {
		all = append(all, &live.Items[i])
	}
	o.Services = b.served(all, o.Everywhere)
	return nil
}

// lacksLedger reports whether a block from which a Service may get an address has no ledger: it is new, or its
// allocations are lost. A block of one Service has none.
func lacksLedger(o plan.Observed) bool {
	return slices.ContainsFunc(o.Sightings, func(s network.Sighting) bool {
		return s.Block.Tags[contract.TagService] == "" &&
			!slices.ContainsFunc(o.Ledgers, func(l ipblock.Ledger) bool { return l.BlockID == s.Block.ID }) &&
			!slices.ContainsFunc(o.Unreadable, func(u ipblock.Unreadable) bool { return u.BlockID == s.Block.ID })
	})
}

// drop deletes the ledgers of blocks that are gone or given up, with the record of their purchase, which is the same
// object: whoever comes next would wait for that block.
func (b *Balancer) drop(ctx context.Context, obsolete ...ipblock.Ledger) error {
	for _, l := range obsolete {
		if err := b.ledgers.remove(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// ownRecord is the object of the Service's own block, as an observation shows it, and poolRecord that of the next block
// of the pool.
func (b *Balancer) ownRecord(o plan.Observed) *allocation.Object {
	return allocation.ForService(b.config.Ledgers.Objects(), b.config.Network.Name, o.Holder, o.Records)
}

func (b *Balancer) poolRecord(o plan.Observed) *allocation.Object {
	return allocation.ForShared(b.config.Ledgers.Objects(), b.config.Network.Name, o.Records)
}

// show shows the Service's own block in its object as the conditions of the Service say it, and that the shared block
// of a published address is assigned. A failure is no reason to do anything else again: the next look finds that the
// object shows something else.
func (b *Balancer) show(ctx context.Context, r *reconciliation) {
	if r.Gone || b.config.DryRun {
		return
	}
	shared, report, due := r.observed.Objects.ReportDue(b.config.SaidBy(r.Service), r.plan.Step)
	if !due {
		return
	}
	defer b.ledgers.forget()
	var err error
	if shared == nil {
		err = b.ownRecord(r.observed).Report(ctx, report, b.config.Now())
	} else {
		shared.Version = "" // an address may have been recorded since
		err = allocation.ShowConditions(ctx, b.config.Ledgers.Objects(), *shared, report, b.config.Now())
	}
	if err != nil && !errors.Is(err, allocation.ErrConflict) {
		klog.FromContext(ctx).Error(err, "Failed to show an IP block", "service", klog.KObj(r.Service))
	}
}

func (b *Balancer) list(ctx context.Context, s scope) (account.Listing, error) {
	if listing, found := b.config.Account.Known(); found && s.known {
		listing.Blocks = slices.DeleteFunc(slices.Clone(listing.Blocks),
			func(block network.Block) bool { return block.ID == s.deleted })
		listing.AskedAt = time.Time{} // however old: another Service may have changed the account since
		return listing, nil
	}
	return b.config.Account.Blocks(ctx, s.after)
}

func (b *Balancer) network(ctx context.Context, id string, s scope) (network.Network, error) {
	if public, _, found := b.config.Account.KnownNetwork(id); found && s.known {
		public.Blocks = slices.DeleteFunc(slices.Clone(public.Blocks),
			func(block network.ListedBlock) bool { return block.ID == s.deleted })
		return public, nil
	}
	return b.config.Account.Network(ctx, id, s.after)
}

// readNetworks reads the configured network and those that hold one of the blocks that matter.
func (b *Balancer) readNetworks(
	ctx context.Context, v ipblock.Account, s scope,
) (map[string]network.Network, error) {
	networks := map[string]network.Network{}
	ids := []string{v.Network.ID}
	for _, i := range v.Sightings {
		if i.Block.ResourceID != "" && i.Block.ResourceType != "server" {
			ids = append(ids, i.Block.ResourceID)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		network, err := b.network(ctx, id, s)
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

// list returns the ledgers, which the caller does not change: live, as they are or were since then, or as the copy
// shows them.
func (c *ledgerCopy) list(ctx context.Context, s scope) (allocation.Listing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	since := now.Add(-ledgerWindow)
	if s.live {
		since = s.after
	}
	if c.at.After(since) {
		return c.known, nil
	}
	known, err := c.store.List(ctx)
	if err != nil {
		return allocation.Listing{}, err
	}
	c.known = known
	c.at = now
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

// remove deletes a ledger.
func (c *ledgerCopy) remove(ctx context.Context, obsolete ipblock.Ledger) error {
	defer c.forget()
	return c.store.Delete(ctx, obsolete)
}

func (c *ledgerCopy) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}
