package balancer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

const (
	// blockSize is the size of a dedicated block: the smallest of which network, gateway and broadcast
	// leave more than one address.
	blockSize = "/29"
	// intentLife is how old a recorded intent may be when the purchase is sent. A process that was
	// frozen in between must look again: somebody else may lead by now.
	intentLife = 10 * time.Second
	// tagsSettle is how long after their creation tags may be refused (phoenixNAP Tag Manager API, which
	// is eventually consistent).
	tagsSettle = time.Minute
	// recordTimeout bounds the writing down of a purchase that was made while the process is ending.
	recordTimeout = 10 * time.Second
)

// buy buys a block for the Service. The intent is recorded first, by compare-and-swap, so that whoever
// comes after a crash knows that a block may exist which no list shows yet.
func (b *Balancer) buy(ctx context.Context, e ensuring) error {
	if resting, refusal := b.purchaseRests(e); resting {
		return refusal
	}
	if step, known, err := b.checkLocation(ctx, e.wish); err != nil {
		return fmt.Errorf("check location %s: %w", e.wish.Location, err)
	} else if !known {
		return b.refuse(ctx, e.service, step)
	}
	if err := b.config.Cloud.EnsureTags(ctx, contract.TagUsage, contract.TagCluster, contract.TagService); err != nil {
		return fmt.Errorf("create the tags of IP blocks: %w", err)
	}
	if b.tagsSince.IsZero() {
		b.tagsSince = b.config.Now()
	}
	intent, err := b.newIntent()
	if err != nil {
		return err
	}
	if e.service, err = b.recordPurchase(ctx, e.service, intent, true); err != nil {
		return err
	}
	if b.config.Now().Sub(intent.Time) > intentLife {
		return api.NewRetryError(words(ipblock.PurchaseUnanswered), b.config.Interval)
	}
	block, err := b.config.Cloud.BuyBlock(ctx, pnap.BlockRequest{
		Location:    e.wish.Location,
		Size:        blockSize,
		Description: description(e.owner, intent.Nonce),
		Tags:        e.owner.Tags(),
	})
	return b.settle(ctx, e, intent, block, err)
}

// checkLocation asks the API whether it sells in the location.
func (b *Balancer) checkLocation(ctx context.Context, wish ipblock.Wish) (refusal ipblock.Step, known bool, err error) {
	locations, err := b.config.Cloud.Locations(ctx)
	if err != nil {
		return ipblock.Step{}, false, err
	}
	if slices.ContainsFunc(locations, func(l string) bool { return strings.EqualFold(l, wish.Location) }) {
		return ipblock.Step{}, true, nil
	}
	return ipblock.Step{
		Action: ipblock.Refuse, Reason: ipblock.LocationNotOnSale,
		Detail: fmt.Sprintf("phoenixNAP has no location %q; set %s to one of %s", wish.Location, wish.LocationSource, strings.Join(locations, ", ")),
	}, false, nil
}

func (b *Balancer) newIntent() (contract.Purchase, error) {
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return contract.Purchase{}, fmt.Errorf("make a nonce for a purchase: %w", err)
	}
	return contract.Purchase{Nonce: hex.EncodeToString(nonce[:]), Time: b.config.Now().UTC()}, nil
}

// description tells a person in the portal whose block it is; the API allows 250 characters. It ends
// with the nonce.
func description(owner ipblock.Owner, nonce string) string {
	return fmt.Sprintf("Kubernetes cluster %s, Service %s/%s, purchase %s", owner.Cluster, owner.Namespace, owner.Name, nonce)
}

// settle records what became of a purchase.
func (b *Balancer) settle(ctx context.Context, e ensuring, intent contract.Purchase, block ipblock.Block, failure error) error {
	service := e.service
	// What was paid for is written down even when the process is ending.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	switch {
	case failure == nil:
		return b.bought(ctx, service, intent, block)
	case pnap.IsRefused(failure):
		return b.notBought(ctx, e, failure)
	default:
		klog.FromContext(ctx).Error(failure, "Purchase of an IP block has no answer", "service", klog.KObj(service), "nonce", intent.Nonce)
		// The time without purchases counts from now: the request may have been under way for long.
		intent.Time = b.config.Now().UTC()
		if _, err := b.recordPurchase(ctx, service, intent, false); err != nil {
			klog.FromContext(ctx).Error(err, "Time of the purchase not renewed", "service", klog.KObj(service))
		}
		return b.wait(ctx, service, ipblock.PurchaseUnanswered)
	}
}

func (b *Balancer) bought(ctx context.Context, service *corev1.Service, intent contract.Purchase, block ipblock.Block) error {
	klog.FromContext(ctx).Info("Bought an IP block", "service", klog.KObj(service), "block", block.ID, "cidr", block.CIDR,
		"location", block.Location, "nonce", intent.Nonce)
	b.config.Events.Eventf(service, corev1.EventTypeNormal, eventBought, "Bought IP block %s (%s) in %s", block.ID, block.CIDR, block.Location)
	intent.BlockID = block.ID
	if _, err := b.recordPurchase(ctx, service, intent, false); err != nil {
		return fmt.Errorf("record the purchase of IP block %s: %w", block.ID, err)
	}
	return b.wait(ctx, service, ipblock.BlockCreating)
}

// notBought takes the intent back, for the API said clearly that it sold nothing. That changes the Service, so
// the framework calls again at once: the next purchase must rest.
func (b *Balancer) notBought(ctx context.Context, e ensuring, refusal error) error {
	var failure *pnap.Error
	fresh := errors.As(refusal, &failure) && failure.StatusCode == http.StatusBadRequest && b.config.Now().Sub(b.tagsSince) < tagsSettle
	switch {
	case fresh:
		b.restPurchase(e, words(reasonTagsFresh), b.config.Interval)
	case failure != nil && failure.RetryAfter > 0:
		b.restPurchase(e, words(reasonPaused), failure.RetryAfter)
	default:
		b.restPurchase(e, refusedText(refusal), 0)
	}
	if _, err := b.apply(ctx, e.service, patch{annotations: map[string]any{contract.ServiceIPPurchase: nil}}); err != nil {
		return fmt.Errorf("take back the intent to buy after a refusal: %w", errors.Join(err, refusal))
	}
	switch {
	case fresh:
		return b.wait(ctx, e.service, reasonTagsFresh)
	case failure == nil, failure.RetryAfter > 0, failure.StatusCode == 0:
		return refusal
	default:
		return b.refuse(ctx, e.service, ipblock.Step{
			Action: ipblock.Refuse, Reason: ipblock.PurchaseRefused,
			Detail: refusedText(refusal),
		})
	}
}

func refusedText(refusal error) string {
	return "phoenixNAP refused to sell an IP block: " + refusal.Error()
}

// recordPurchase writes the intent on the Service; exactly makes it a compare-and-swap.
func (b *Balancer) recordPurchase(ctx context.Context, service *corev1.Service, intent contract.Purchase, exactly bool) (*corev1.Service, error) {
	encoded, err := intent.Encode()
	if err != nil {
		return nil, err
	}
	return b.apply(ctx, service, patch{exactly: exactly, annotations: map[string]any{contract.ServiceIPPurchase: encoded}})
}
