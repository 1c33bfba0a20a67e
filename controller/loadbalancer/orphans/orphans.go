// Package orphans finds IP blocks of the cluster that are no longer used, reports them and optionally releases them.
package orphans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	period = time.Minute // how often the account is read
	// confirmed is in how many lists a block must be suspect before it is reported: lists lag by some seconds.
	confirmed = 2
	// lookupWindow is how old reads of suspect blocks and of the index may be; the list is read more often.
	lookupWindow = 5 * time.Minute
)

// Cloud is the part of the API that the package uses without the cache.
type Cloud interface {
	Block(ctx context.Context, id string) (network.Block, error)
	UnassignBlock(ctx context.Context, networkID, blockID string) error
	DeleteBlock(ctx context.Context, id string) error
}

// Config configures a Collector.
type Config struct {
	Account *account.Account
	Cloud   Cloud
	Ledgers *allocation.Store
	Kube    kubernetes.Interface
	// Services is the shared informer. It shows when there is certainly nothing to do; everything else is read live.
	Services coreinformers.ServiceInformer
	// Events are recorded on the IPBlock of a block, else on the Namespace kube-system.
	Events  record.EventRecorder
	Metrics *Metrics
	// Network is the public network of the option loadbalancer, which proves that the account is the right one.
	// Networks are all that are served; nil for that one only.
	Network  network.Named
	Networks func() []network.Named
	// Collect releases orphans; otherwise they are only reported, and released when a person deletes their IPBlocks.
	Collect bool
	// Grace is how long a block must be an orphan before it is released.
	Grace time.Duration
	// NodesKept are the public networks in which one block that was bought for the nodes is kept while no node has an
	// address of it, unless a person brings one; nil for none.
	NodesKept func() []network.Named
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Collector finds, reports and releases unused blocks. A process that takes over starts the grace period again.
type Collector struct {
	config    Config
	synced    cache.InformerSynced
	namespace *corev1.Namespace // kube-system, once it was read
	seen      *purchase.Seen
	// suspicions by block ID.
	suspicions map[string]*suspicion
	breaker    breaker
	unreadable notice // why the account could not be read; empty since it could be
}

// suspicion is a block that seems to be unused.
type suspicion struct {
	block network.Block
	state blockState
	// since is when it was first in that state, looks in how many lists, and seen the time of the last one.
	since time.Time
	looks int
	seen  time.Time
	// reported is when it was last reported, and problem the last other event about it.
	reported time.Time
	problem  string
	deletion bool // its deletion was requested
	// held: too many blocks became orphans at once, so it waits for a person; confirmed: one has deleted its IPBlock.
	held, confirmed bool
	// backoff follows a failed step.
	backoff account.Backoff
}

// New returns a Collector. It starts nothing and makes no calls.
func New(config Config) *Collector {
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Collector{
		config: config, synced: config.Services.Informer().HasSynced, suspicions: map[string]*suspicion{},
		seen: purchase.NewSeen(config.Now),
	}
}

// served are the public networks that are served.
func (c *Collector) served() []network.Named {
	if c.config.Networks == nil {
		return []network.Named{c.config.Network}
	}
	return c.config.Networks()
}

// Run checks the account until ctx ends, and then returns nil.
func (c *Collector) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.synced) {
		return nil
	}
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		again, err := c.Look(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to check for orphaned IP blocks")
		}
		return again
	})
}

// Look runs one pass with at most one step to release one orphan. It returns the delay of the next, also with an error.
func (c *Collector) Look(ctx context.Context) (again time.Duration, err error) {
	cluster, err := c.clusterUID(ctx)
	if err != nil {
		return period, err
	}
	found, err := c.find(ctx, cluster)
	if err != nil {
		c.reportUnreadable(ctx, err)
		return period, err
	}
	all := found.All()
	ours := slices.DeleteFunc(slices.Clone(all), func(b network.Block) bool { return !network.OfCluster(b, cluster) })
	f, err := c.factsFor(ctx, cluster, ours)
	if err != nil {
		return period, err
	}
	if c.needsProof(ours, f) {
		if _, err := c.config.Account.Prove(ctx, c.config.Network.ID, found.AskedAt); err != nil {
			c.reportUnreadable(ctx, err)
			return period, err
		}
	}
	c.unreadable = notice{}
	c.config.Account.Reviewed(found.AskedAt)
	c.forgetGone(ctx, ours, found.Unseen)
	ours = slices.DeleteFunc(ours, func(b network.Block) bool { return isHidden(found, b) })
	problems := c.remember(ctx, ours, f, found.AskedAt)
	held := c.applyBreaker(f, len(ours))
	problems = errors.Join(problems, c.showUnused(ctx, ours, &f), c.showShared(ctx, all, f))
	c.reportDue(f)
	c.reportHeld(held, len(ours))
	if due := c.due(); due != nil {
		again, err = c.collect(ctx, due)
		return again, errors.Join(problems, err)
	}
	return c.pause(), problems
}

// find returns the blocks of the account. Suspect ones are read by their ID, whatever the list shows.
func (c *Collector) find(ctx context.Context, cluster string) (account.Found, error) {
	now := c.config.Now()
	search := account.Search{
		Cluster: cluster, IDs: slices.Collect(maps.Keys(c.suspicions)),
		Wanted: func(network.Block) bool { return false },
		After:  now.Add(-lookupWindow),
	}
	if c.pause() == period { // the list that others read once in a period will do
		search.ListAfter = now.Add(-account.PeriodicMaxAge)
	}
	return c.config.Account.Find(ctx, search)
}

// needsProof reports whether something would be concluded from the account: a block is suspect, or the blocks of the
// cluster, or suspect ones, are gone. In another account all of them seem to be.
func (c *Collector) needsProof(ours []network.Block, f facts) bool {
	suspect := func(b network.Block) bool { return classify(b, f).suspect() }
	if len(ours) == 0 || slices.ContainsFunc(ours, suspect) {
		return true
	}
	for id := range c.suspicions {
		if !slices.ContainsFunc(ours, func(b network.Block) bool { return b.ID == id }) {
			return true
		}
	}
	return false
}

// isHidden reports whether the list shows a block that cannot be read: nothing is known about it, and nothing
// concluded.
func isHidden(found account.Found, b network.Block) bool {
	return slices.ContainsFunc(found.Wanted, func(s network.Sighting) bool { return s.Hidden && s.Block.ID == b.ID })
}

// pause returns the delay of the next pass: a suspicion is confirmed as soon as there can be another list.
func (c *Collector) pause() time.Duration {
	for _, s := range c.suspicions {
		if s.looks < confirmed {
			return min(account.DefaultWindow, period)
		}
	}
	return period
}

// factsFor reads the cluster live only when what is known does not explain every block.
func (c *Collector) factsFor(ctx context.Context, cluster string, ours []network.Block) (facts, error) {
	known, err := c.known(ctx, cluster)
	if err != nil {
		return facts{}, err
	}
	c.keepNodeBlocks(&known, ours)
	if !slices.ContainsFunc(ours, func(b network.Block) bool { return classify(b, known).suspect() }) {
		return known, nil
	}
	live, err := c.live(ctx, cluster)
	if err == nil {
		c.keepNodeBlocks(&live, ours)
	}
	return live, err
}

// remember updates suspicions from a list. An unreadable block does not hide the others.
func (c *Collector) remember(ctx context.Context, ours []network.Block, f facts, askedAt time.Time) error {
	var problems []error
	counts := map[blockState]int{}
	for _, block := range ours {
		s := classify(block, f)
		if !s.suspect() {
			counts[s]++
			delete(c.suspicions, block.ID)
			continue
		}
		known, err := c.suspected(ctx, block, f)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if known == nil {
			continue
		}
		if askedAt.After(known.seen) {
			known.seen = askedAt
			known.looks++
		}
		if known.looks < confirmed {
			continue
		}
		counts[s]++
	}
	c.config.Metrics.set(counts)
	return errors.Join(problems...)
}

// suspected returns the suspicion about a listed block; nil for none. A new one is confirmed by a read of the block:
// the list shows deleted blocks and old tags for some seconds.
func (c *Collector) suspected(ctx context.Context, listed network.Block, f facts) (*suspicion, error) {
	if known := c.suspicions[listed.ID]; known != nil && known.state == classify(listed, f) {
		return known, nil
	}
	block, found, err := c.config.Account.Block(ctx, listed.ID, c.config.Now().Add(-lookupWindow))
	if err != nil || !found {
		return nil, err
	}
	s := classify(block, f)
	if !network.OfCluster(block, f.cluster) || !s.suspect() {
		return nil, nil
	}
	c.suspicions[block.ID] = &suspicion{block: block, state: s, since: c.config.Now()}
	klog.FromContext(ctx).Info("Found an IP block that seems to be unused", "block", block.ID, "cidr", block.CIDR,
		"standing", s)
	return c.suspicions[block.ID], nil
}

// forgetGone removes suspicions about blocks that the list lacks, and reports those that were released.
func (c *Collector) forgetGone(ctx context.Context, ours []network.Block, unseen []string) {
	for id, s := range c.suspicions {
		if slices.Contains(unseen, id) || slices.ContainsFunc(ours, func(b network.Block) bool { return b.ID == id }) {
			continue
		}
		delete(c.suspicions, id)
		if s.deletion {
			klog.FromContext(ctx).Info("Released an unused IP block", "block", s.block.ID, "cidr", s.block.CIDR,
				"standing", s.state)
			c.config.Metrics.collected.Inc()
			c.breaker.deleted(s, c.config.Now())
			c.record(corev1.EventTypeNormal, eventCollected,
				fmt.Sprintf("IP block %s (%s) was deleted: %s", s.block.ID, s.block.CIDR, problemOf(s.state, s.block)))
		}
	}
}

// due returns the orphan to release next: the one suspected longest; nil when there is none.
func (c *Collector) due() *suspicion {
	now := c.config.Now()
	var ready []*suspicion
	for _, s := range c.suspicions {
		at := s.since
		switch {
		case s.state == leftover: // v1 decided to delete it
		case s.confirmed:
		case s.held:
			continue
		case s.state == orphan && c.config.Collect:
			at = at.Add(c.config.Grace)
		default:
			continue
		}
		if s.looks >= confirmed && !now.Before(at) && !now.Before(s.backoff.Until) {
			ready = append(ready, s)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	return slices.MinFunc(ready, func(a, b *suspicion) int {
		return cmp.Or(a.backoff.Until.Compare(b.backoff.Until), a.since.Compare(b.since),
			cmp.Compare(a.block.ID, b.block.ID))
	})
}
