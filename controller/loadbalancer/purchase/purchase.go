// Package purchase buys IP blocks such that a crash at any moment never leads to a second purchase.
package purchase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

const (
	// DefaultSize is the smallest size of which network, gateway and broadcast leave more than one address.
	DefaultSize ipblock.Size = 29
	// intentLife is how old a recorded intent may be when the purchase is sent. A process that was
	// frozen in between must look again: someone else may lead by now.
	intentLife = 10 * time.Second
	// locationsLife is how long a location that was on sale is not asked for again.
	locationsLife = time.Hour
	// recordTimeout bounds the writing down of a purchase that was made while the process is ending.
	recordTimeout = 10 * time.Second
	// defaultInterval is how soon a purchase is tried again that only time keeps from being made.
	defaultInterval = 3 * time.Second
)

// Cloud is what the package asks of the phoenixNAP API.
type Cloud interface {
	// Locations are the codes of the sites that sell.
	Locations(ctx context.Context) ([]string, error)
	// EnsureTags creates the tags that the account lacks.
	EnsureTags(ctx context.Context, names ...string) error
	// BuyBlock buys a block; it costs money and is not idempotent.
	BuyBlock(ctx context.Context, wanted pnap.BlockRequest) (network.Block, error)
}

var _ Cloud = (*pnap.Client)(nil)

// Record is where the intent to buy for one owner is written down: an object of the cluster, in the version on which
// the purchase was decided.
type Record interface {
	// Begin records the intent to buy a block of a size, by compare-and-swap.
	Begin(ctx context.Context, at time.Time, size ipblock.Size) (ipblock.Purchase, error)
	// Bought records the answer to an intent, Unanswered the time at which it was clear that there is none, and
	// TakeBack that nothing was bought. The intent of someone else stays, which is no error.
	Bought(ctx context.Context, intent ipblock.Purchase, blockID string) error
	Unanswered(ctx context.Context, intent ipblock.Purchase, at time.Time) error
	TakeBack(ctx context.Context, intent ipblock.Purchase) error
}

// Order is one block to buy. That one is due was decided by plan.Ensure or plan.Extend on the
// version of the object that the Record stands for.
type Order struct {
	// Owner of the block.
	Owner network.Owner
	// Location is the code of the site.
	Location string
	// LocationSource says in words where a location can be set.
	LocationSource string
	// Size of the block; 0 means DefaultSize.
	Size ipblock.Size
	// Subject is whom a refusal is remembered for, such as the UID of the Service, so that one that takes
	// its name starts again; empty means the owner.
	Subject string
}

func (o Order) size() ipblock.Size { return cmp.Or(o.Size, DefaultSize) }

func (o Order) subject() string { return cmp.Or(o.Subject, o.Owner.String()) }

// description shows in the portal whose block it is; the API allows 250 characters. It ends with the nonce.
func (o Order) description(nonce string) string {
	const most = 250
	whose := o.Owner.Description()
	tail := ", purchase " + nonce
	return whose[:min(len(whose), most-len(tail))] + tail
}

// Config says what a Buyer works with.
type Config struct {
	// Cloud is the phoenixNAP API.
	Cloud Cloud
	// Interval after which a purchase is tried again that only time keeps from being made; 0 means 3 seconds.
	Interval time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Buyer buys. Its callers hold the lock of the account (see account.Lock) from the look on which
// they decided until Buy returns.
type Buyer struct {
	config Config

	mu sync.Mutex
	// onSale are the locations that were on sale, and when that was seen.
	onSale   map[string]time.Time
	refusals map[string]refusal
}

// New returns a Buyer. It starts nothing and makes no calls.
func New(config Config) *Buyer {
	config.Interval = cmp.Or(config.Interval, defaultInterval)
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Buyer{config: config, onSale: map[string]time.Time{}, refusals: map[string]refusal{}}
}

// Buy buys a block. The intent is recorded first, by compare-and-swap, so that whoever comes after a
// crash knows that a block may exist which no list shows yet.
//
// Errors: *Pause when trying again later is enough, also when the outcome of the purchase is not known; *Refused when a
// person must act; a dry run passes through (pnap.IsDryRun) and leaves no intent behind; everything else is a failure
// of a look-up or of the record, wrapped, before anything was bought, or the API's wish for a pause (pnap.Error with
// RetryAfter).
func (b *Buyer) Buy(ctx context.Context, order Order, record Record) (network.Block, error) {
	if err := b.backingOff(order); err != nil {
		return network.Block{}, err
	}
	if err := b.checkLocation(ctx, order); err != nil {
		return network.Block{}, err
	}
	if err := b.ensureTags(ctx, order); err != nil {
		return network.Block{}, err
	}
	intent, err := record.Begin(ctx, b.config.Now().UTC(), order.size())
	if err != nil {
		return network.Block{}, fmt.Errorf("record the intent to buy an IP block for %s: %w", order.Owner, err)
	}
	if b.config.Now().Sub(intent.Time) > intentLife {
		return network.Block{}, &Pause{Reason: ipblock.PurchaseUnanswered, After: b.config.Interval}
	}
	block, err := b.config.Cloud.BuyBlock(ctx, pnap.BlockRequest{
		Location:    order.Location,
		Size:        order.size().String(),
		Description: order.description(intent.Nonce),
		Tags:        order.Owner.Tags(),
	})
	return b.recordOutcome(ctx, order, record, intent, block, err)
}

// checkLocation asks the API whether it sells in the location.
func (b *Buyer) checkLocation(ctx context.Context, order Order) error {
	if b.wasOnSale(order.Location) {
		return nil
	}
	locations, err := b.config.Cloud.Locations(ctx)
	if err != nil {
		return fmt.Errorf("check location %s: %w", order.Location, err)
	}
	if !slices.ContainsFunc(locations, func(l string) bool { return strings.EqualFold(l, order.Location) }) {
		return &Refused{Reason: ipblock.LocationNotOnSale,
			// That of the public network: another would be refused, because a block serves only where its network is.
			Detail: fmt.Sprintf("phoenixNAP has no location %s, which is that of the public network; ask its support, "+
				"or use a public network in one of %s", text.Quote(order.Location), strings.Join(locations, ", "))}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onSale[strings.ToUpper(order.Location)] = b.config.Now()
	return nil
}

func (b *Buyer) wasOnSale(location string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen, known := b.onSale[strings.ToUpper(location)]
	return known && b.config.Now().Sub(seen) < locationsLife
}

func (b *Buyer) ensureTags(ctx context.Context, order Order) error {
	purpose, _ := order.Owner.Tag()
	if err := b.config.Cloud.EnsureTags(ctx, contract.TagUsage, contract.TagCluster, purpose); err != nil {
		return fmt.Errorf("create the tags of IP blocks: %w", err)
	}
	return nil
}

// recordOutcome records what became of a purchase.
func (b *Buyer) recordOutcome(ctx context.Context, order Order, record Record, intent ipblock.Purchase,
	block network.Block,
	failure error) (network.Block, error) {
	// What was paid for is written down even when the process is ending.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	logger := klog.FromContext(ctx)
	switch {
	case failure == nil:
		logger.Info("Bought an IP block", "owner", order.Owner, "block", block.ID, "cidr", block.CIDR, "location",
			block.Location, "nonce", intent.Nonce)
		b.amended(ctx, order, intent, block.ID, record.Bought(ctx, intent, block.ID))
		return block, nil
	case pnap.IsDryRun(failure) || pnap.IsRefused(failure): // certainly nothing was bought
		return network.Block{}, b.notBought(ctx, order, record, intent, failure)
	default:
		logger.Error(failure, "Purchase of an IP block has no answer", "owner", order.Owner, "nonce", intent.Nonce)
		// The time without purchases counts from now: the request may have been under way for long.
		b.amended(ctx, order, intent, "", record.Unanswered(ctx, intent, b.config.Now().UTC()))
		return network.Block{}, &Pause{Reason: ipblock.PurchaseUnanswered, After: b.config.Interval, Cause: failure}
	}
}

// notBought takes the intent back, for the API said clearly that it sold nothing. That may make the
// caller's queue call again at once: the next purchase must wait. A dry run has nothing to wait for.
func (b *Buyer) notBought(ctx context.Context, order Order, record Record, intent ipblock.Purchase,
	refusal error) error {
	answer := refusal
	if !pnap.IsDryRun(refusal) {
		answer = b.judgeRefusal(order, refusal)
	}
	if err := record.TakeBack(ctx, intent); err != nil {
		return fmt.Errorf("take back the intent to buy after a refusal: %w", errors.Join(err, refusal))
	}
	return answer
}

// judgeRefusal makes the next purchase wait and says what the refusal means.
func (b *Buyer) judgeRefusal(order Order, refusal error) error {
	var failure *pnap.Error
	errors.As(refusal, &failure)
	switch {
	case failure == nil, failure.StatusCode == 0 && failure.RetryAfter == 0: // never sent: that is no word of the API
		return b.backOffUnsent(order, refusal)
	case pnap.IsTagFresh(refusal):
		return b.backOff(order, &Pause{Reason: TagsFresh, After: b.config.Interval, Cause: refusal})
	case failure.RetryAfter > 0, pnap.IsPaused(refusal):
		after := max(failure.RetryAfter, b.config.Interval)
		return b.backOff(order, &Pause{Reason: APIPaused, After: after, Cause: refusal})
	default:
		return b.backOffLonger(order, "phoenixNAP refused to sell an IP block: "+refusal.Error()+"; "+
			order.remedy(failure))
	}
}

// amended logs that what became of an intent was not recorded. That costs time, no money: the intent stands, and tags
// and nonce find the block.
func (b *Buyer) amended(ctx context.Context, order Order, intent ipblock.Purchase, blockID string, err error) {
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to record the outcome of a purchase",
			"owner", order.Owner, "nonce", intent.Nonce, "block", blockID)
	}
}
