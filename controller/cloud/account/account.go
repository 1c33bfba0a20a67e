// Package account caches the blocks and networks of the phoenixNAP account, and has the lock for its changes.
package account

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

const (
	// DefaultWindow is how old an answer may be when it is used again.
	DefaultWindow = 30 * time.Second
	// PeriodicMaxAge is the maximum age of an answer for periodic work. The check for drift reads the account once a
	// minute: all other such work uses what it has read.
	PeriodicMaxAge = 75 * time.Second
	// failureWindow is how long a failure is reused: no request for every Service while the API is unavailable.
	failureWindow = 3 * time.Second
)

// Cloud is the part of the phoenixNAP API that the package uses.
type Cloud interface {
	// Blocks lists the IP blocks that carry all the tags; without tags all blocks of the account.
	Blocks(ctx context.Context, tags map[string]string) ([]network.Block, error)
	// Network returns one public network.
	Network(ctx context.Context, id string) (network.Network, error)
	// Block reads the current state of one block.
	Block(ctx context.Context, id string) (network.Block, error)
	// TagAssignments returns the values of a tag by the ID of the block that carries it.
	TagAssignments(ctx context.Context, name string) (map[string]string, error)
}

// Config configures an Account.
type Config struct {
	Cloud   Cloud            // the phoenixNAP API
	Window  time.Duration    // how old an answer may be when it is used again; 0 means DefaultWindow
	Now     func() time.Time // the clock; nil means time.Now
	Metrics *Metrics         // to count in; nil for none
	// OnNetwork receives each network that is read; it may be nil. It must not block or call the Account.
	OnNetwork func(network.Network)
}

// Listing is the blocks of the account at one instant. It is shared: do not change it.
type Listing struct {
	Blocks []network.Block // all blocks of the account, of any owner
	// AskedAt is when the request was sent; a missing block may have been created later. The API's list may be some
	// seconds older than its single objects.
	AskedAt time.Time
}

// Account serves all callers from one list of blocks and one read of each network, and finds blocks that the list does
// not show (see Find). It is safe for concurrent use.
type Account struct {
	*lookups
	config  Config
	listing *reading[Listing]
	// change allows one change of the account at a time: the API rejects a second change of a public network while it
	// is BUSY, and two purchases must not both take the last place in it.
	change chan struct{}

	mu       sync.Mutex
	networks map[string]*reading[network.Network]
	review   Review
}

// Review is when all that the account says of blocks was read. Nothing of it is known before the first time.
type Review struct {
	// At is when it was last read, and Since the first time after the last failure: zero while it fails.
	At, Since time.Time
}

// New returns an Account. It starts nothing and sends no request.
func New(config Config) *Account {
	config.Window = cmp.Or(config.Window, DefaultWindow)
	config.Metrics = cmp.Or(config.Metrics, NewMetrics())
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.OnNetwork == nil {
		config.OnNetwork = func(network.Network) {}
	}
	a := &Account{
		lookups: &lookups{api: config.Cloud, now: config.Now, blocks: map[string]result[shown]{},
			tags: map[string]result[map[string]string]{}},
		config: config, change: make(chan struct{}, 1), networks: map[string]*reading[network.Network]{},
	}
	a.listing = newReading(config, "ip-blocks", a.list)
	return a
}

// list requests all blocks: one list serves all owners, and how the API combines several tags is not documented.
func (a *Account) list(ctx context.Context, askedAt time.Time) (Listing, error) {
	blocks, err := a.config.Cloud.Blocks(ctx, nil)
	return Listing{Blocks: blocks, AskedAt: askedAt}, err
}

// Blocks returns all blocks of the account, requested at or after the given time; for the zero time at most one window
// ago, and never before the last call of Invalidate. Errors are those of the API. A failure is reused for 3 seconds.
func (a *Account) Blocks(ctx context.Context, after time.Time) (Listing, error) {
	listing, err := a.listing.get(ctx, after)
	if err != nil {
		return Listing{}, fmt.Errorf("read the IP blocks of the account: %w", err)
	}
	return a.updated(listing), nil
}

// Network returns a public network under the same conditions as Blocks. It is shared: do not change it. Errors are
// those of the API, including that the network is not accessible.
func (a *Account) Network(ctx context.Context, id string, after time.Time) (network.Network, error) {
	public, err := a.network(id).get(ctx, after)
	if err != nil {
		return network.Network{}, fmt.Errorf("read public network %s: %w", id, err)
	}
	return public, nil
}

func (a *Account) network(id string) *reading[network.Network] {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.networks[id]; ok {
		return known
	}
	r := newReading(a.config, "public-network", func(ctx context.Context, _ time.Time) (network.Network, error) {
		network, err := a.config.Cloud.Network(ctx, id)
		if err == nil {
			a.config.OnNetwork(network)
		}
		return network, err
	})
	a.networks[id] = r
	return r
}

// Known returns the blocks of the last list, however old, and whether there is one: for a decision about a block that
// was read by its ID.
func (a *Account) Known() (listing Listing, found bool) {
	listing, _, found = a.listing.known()
	return a.updated(listing), found
}

// KnownNetwork returns the last reading of a public network, however old, when it was requested, and whether there is
// one.
func (a *Account) KnownNetwork(id string) (network network.Network, askedAt time.Time, found bool) {
	return a.network(id).known()
}

// LastNetwork returns the last answer about a public network, however old, when it was requested, and the error of the
// latest request if that failed. It sends no request.
func (a *Account) LastNetwork(id string) (public network.Network, askedAt time.Time, err error) {
	return a.network(id).latest()
}

// Reviewed records that all that the account says of blocks was read at a time; the zero Time for a failure.
func (a *Account) Reviewed(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at.IsZero() {
		a.review.Since = time.Time{}
		return
	}
	a.review.At = at
	if a.review.Since.IsZero() {
		a.review.Since = at
	}
}

// LastReview returns what Reviewed recorded.
func (a *Account) LastReview() Review {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.review
}

// InvalidateBlocks reports that a block was bought, or may have been: earlier results about blocks are no longer fresh.
func (a *Account) InvalidateBlocks() {
	a.forget()
	a.listing.expire()
}

// Invalidate reports that the account was changed, or may have been: results of earlier requests are no longer fresh.
func (a *Account) Invalidate() {
	a.InvalidateBlocks()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, network := range a.networks {
		network.expire()
	}
}

// Lock waits until no other change of the account is in progress. Call done after reading, deciding and changing.
func (a *Account) Lock(ctx context.Context) (done func(), err error) {
	select {
	case a.change <- struct{}{}:
		return sync.OnceFunc(func() { <-a.change }), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another change of the account: %w", ctx.Err())
	}
}

// Metrics are the metrics of an Account. They count only once they are registered.
type Metrics struct {
	asked *metrics.GaugeVec
	reads *metrics.CounterVec
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{
		asked: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "phoenixnap_account_timestamp_seconds",
			Help: "When the cached state of the account was requested, in seconds since 1970, by object: " +
				"ip-blocks or public-network. Its age is the time since then.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"object"}),
		reads: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "phoenixnap_account_reads_total",
			Help: "How often the account was read, by object and result: hit (answered from the cache), " +
				"fetched or failed.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"object", "result"}),
	}
}

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable { return []metrics.Registerable{m.asked, m.reads} }

func (m *Metrics) hit(object string) {
	m.reads.WithLabelValues(object, "hit").Inc()
}

func (m *Metrics) fetched(object string, askedAt time.Time) {
	m.reads.WithLabelValues(object, "fetched").Inc()
	m.asked.WithLabelValues(object).Set(float64(askedAt.UnixNano()) / float64(time.Second))
}

func (m *Metrics) failed(object string) {
	m.reads.WithLabelValues(object, "failed").Inc()
}
