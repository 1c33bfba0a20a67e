// Package orphans finds IP blocks that were bought for the cluster and are no longer used, reports them and
// optionally releases them.
package orphans

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// DefaultInterval is how often the account is read.
	DefaultInterval = time.Minute
	// confirmed is in how many looks a block has to be suspect before it is reported: lists lag by some seconds.
	confirmed = 2
)

// Account is the shared picture of the account, and the lock for changes.
type Account interface {
	// Blocks returns all blocks of the account, at most one window old for the zero time.
	Blocks(ctx context.Context, after time.Time) (account.Listing, error)
	// Network returns a public network under the same terms.
	Network(ctx context.Context, id string, after time.Time) (plan.Network, error)
	// Invalidate says that nothing that was read before counts as fresh any more.
	Invalidate()
	// Lock admits one change at a time.
	Lock(ctx context.Context) (done func(), err error)
}

// Cloud is what the package asks of the phoenixNAP API itself.
type Cloud interface {
	// Block reads one block as it is now.
	Block(ctx context.Context, id string) (plan.Block, error)
	// UnassignBlock takes a block off a public network, without force.
	UnassignBlock(ctx context.Context, networkID, blockID string) error
	// DeleteBlock deletes an unassigned block.
	DeleteBlock(ctx context.Context, id string) error
}

// Ledgers list the holders of addresses of shared blocks.
type Ledgers interface {
	// List reads all ledgers as they are now.
	List(ctx context.Context) ([]plan.Ledger, error)
}

// Config says what a Collector works with.
type Config struct {
	// Account, Cloud and Ledgers are where blocks and their holders are read and changed.
	Account Account
	Cloud   Cloud
	Ledgers Ledgers
	// Kube is the Kubernetes client.
	Kube kubernetes.Interface
	// Services is the informer of Services. It says when there is certainly nothing to do; all else is read live.
	Services coreinformers.ServiceInformer
	// Events takes events on the Namespace kube-system.
	Events record.EventRecorder
	// Metrics are the package's metrics.
	Metrics *Metrics
	// NetworkID is the configured public network.
	NetworkID string
	// Brought are the IDs of blocks that the configuration lets Services name.
	Brought []string
	// MaxBlocks is the most blocks that may be bought; 0 for no limit but the network's.
	MaxBlocks int
	// Collect is whether orphans are given back; otherwise they are only reported.
	Collect bool
	// Grace is how long a block has to be seen as an orphan before it is given back.
	Grace time.Duration
	// NodesKept is whether one block that was bought for the nodes is kept while no node holds an address of it.
	NodesKept bool
	// Interval between two looks; 0 means DefaultInterval.
	Interval time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Collector finds, reports and collects. Its memory belongs to the goroutine of Run: a process that takes over starts
// the grace period again.
type Collector struct {
	config Config
	synced cache.InformerSynced
	// namespace is kube-system, once it was read.
	namespace *corev1.Namespace
	reports   reportStore
	// suspicions by block ID.
	suspicions map[string]*suspicion
}

// suspicion is a block that seems to be unused.
type suspicion struct {
	block    plan.Block
	standing blockState
	// since is when it was seen so first, looks in how many lists in a row, and seen when the last of them was asked
	// for.
	since time.Time
	looks int
	seen  time.Time
	// told is when it was reported last, and problem the last other event about it.
	told    time.Time
	problem string
	// deletion is true when its deletion was requested.
	deletion bool
	// rest follows a step that did not end well.
	rest rest
}

// New returns a Collector. It starts nothing and makes no calls.
func New(config Config) *Collector {
	if config.Interval == 0 {
		config.Interval = DefaultInterval
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Collector{
		config: config, synced: config.Services.Informer().HasSynced, suspicions: map[string]*suspicion{},
		reports: reportStore{configMaps: config.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)},
	}
}

// Name of the collector among the framework's controllers.
func (c *Collector) Name() string { return "phoenixnap-orphans" }

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

// Look reads the account once, reports, and takes at most one step towards giving one orphan back. It returns when
// to look again, also with an error.
func (c *Collector) Look(ctx context.Context) (again time.Duration, err error) {
	cluster, err := c.clusterUID(ctx)
	if err != nil {
		return c.config.Interval, err
	}
	listing, err := c.config.Account.Blocks(ctx, time.Time{})
	if err != nil {
		return c.config.Interval, err
	}
	ours := slices.DeleteFunc(slices.Clone(listing.Blocks),
		func(b plan.Block) bool { return !plan.OfCluster(b, cluster) })
	c.forgetGone(ctx, ours)
	f, err := c.factsFor(ctx, cluster, ours)
	if err != nil {
		return c.config.Interval, err
	}
	problems := c.remember(ctx, ours, f, listing.AskedAt)
	c.publish(ctx, listing.Blocks, f, listing.AskedAt)
	if due := c.due(); due != nil {
		again, err = c.collect(ctx, due)
		return again, errors.Join(problems, err)
	}
	return c.pause(), problems
}

// pause is how long until the next look: a suspicion is confirmed as soon as there can be another list.
func (c *Collector) pause() time.Duration {
	for _, s := range c.suspicions {
		if s.looks < confirmed {
			return min(account.DefaultWindow, c.config.Interval)
		}
	}
	return c.config.Interval
}

// factsFor reads the cluster live only when what is known does not explain every block.
func (c *Collector) factsFor(ctx context.Context, cluster string, ours []plan.Block) (facts, error) {
	known, err := c.known(ctx, cluster, slices.ContainsFunc(ours, isShared))
	if err != nil {
		return facts{}, err
	}
	if c.config.NodesKept {
		known.excuseOne(ours, c.config.NetworkID)
	}
	if !slices.ContainsFunc(ours, func(b plan.Block) bool { return judge(b, known).suspect() }) {
		return known, nil
	}
	live, err := c.live(ctx, cluster)
	if err == nil && c.config.NodesKept {
		live.excuseOne(ours, c.config.NetworkID)
	}
	return live, err
}

// remember brings suspicions up to date with a list that was asked for at the given time, and reports those that are
// confirmed. One block that cannot be read does not hide the others.
func (c *Collector) remember(ctx context.Context, ours []plan.Block, f facts, askedAt time.Time) error {
	var problems []error
	counts := map[blockState]int{}
	for _, block := range ours {
		s := judge(block, f)
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
		if now := c.config.Now(); now.Sub(known.told) >= retell {
			known.told = now
			c.report(known)
		}
	}
	c.config.Metrics.stand(counts)
	return errors.Join(problems...)
}

// suspected returns what is held against a suspect block. At first it is read by itself: the list shows for some
// seconds what was deleted, and old tags. nil says that nothing is held against it.
func (c *Collector) suspected(ctx context.Context, listed plan.Block, f facts) (*suspicion, error) {
	if known := c.suspicions[listed.ID]; known != nil && known.standing == judge(listed, f) {
		return known, nil
	}
	block, err := c.config.Cloud.Block(ctx, listed.ID)
	switch {
	case pnap.IsInaccessible(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	s := judge(block, f)
	if !plan.OfCluster(block, f.cluster) || !s.suspect() {
		return nil, nil
	}
	c.suspicions[block.ID] = &suspicion{block: block, standing: s, since: c.config.Now()}
	klog.FromContext(ctx).Info("Found an IP block that seems to be unused", "block", block.ID, "cidr", block.CIDR,
		"standing", s)
	return c.suspicions[block.ID], nil
}

// forgetGone drops suspicions of blocks that the account does not show any more, and reports those that were collected.
func (c *Collector) forgetGone(ctx context.Context, ours []plan.Block) {
	for id, s := range c.suspicions {
		if slices.ContainsFunc(ours, func(b plan.Block) bool { return b.ID == id }) {
			continue
		}
		delete(c.suspicions, id)
		if s.deletion {
			c.collected(ctx, s)
		}
	}
}

// due returns the orphan to release next: the one suspected longest; nil when there is none.
func (c *Collector) due() *suspicion {
	now := c.config.Now()
	var ready []*suspicion
	for _, s := range c.suspicions {
		if c.collectable(s.standing) && s.looks >= confirmed && !now.Before(s.since.Add(c.graceOf(s.standing))) &&
			!now.Before(s.rest.until) {
			ready = append(ready, s)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	return slices.MinFunc(ready, func(a, b *suspicion) int {
		return cmp.Or(a.rest.until.Compare(b.rest.until), a.since.Compare(b.since), cmp.Compare(a.block.ID, b.block.ID))
	})
}

// collectable reports whether blocks in that state are released. The deletion of a leftover of v1 was decided by v1.
func (c *Collector) collectable(s blockState) bool {
	return s == leftover || (s == orphan && c.config.Collect)
}

func (c *Collector) graceOf(s blockState) time.Duration {
	if s == leftover {
		return 0
	}
	return c.config.Grace
}
