package reconcile

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// buy buys a block for the Service or its pool.
func (b *Balancer) buy(ctx context.Context, s plan.Observed, v plan.ServicePlan) error {
	wish := s.Wish()
	record := purchase.Record(&serviceRecord{balancer: b, service: s.Service})
	order := purchase.Order{Owner: v.Owner, Location: wish.Location, LocationSource: wish.LocationSource,
		Size: wish.Size, Subject: string(s.Service.UID)}
	if v.Owner.Pool != "" {
		pool := b.poolRecord()
		if _, err := pool.Load(ctx); err != nil {
			return err
		}
		record = pool
		order.Subject = ""
		order.Size = s.PoolWish().Size
	}
	block, err := b.config.Buyer.Buy(ctx, order, record)
	b.changed()
	service := s.Service
	if own, is := record.(*serviceRecord); is {
		service = own.service
	}
	if err != nil {
		return b.notBought(ctx, service, err)
	}
	b.config.Events.Eventf(service, corev1.EventTypeNormal, eventBought, "Bought IP block %s (%s) in %s", block.ID,
		block.CIDR, block.Location)
	if s.Published().IsValid() {
		b.config.Metrics.repaired(repairReplaced)
	}
	return b.wait(ctx, service, plan.BlockCreating)
}

// notBought says on the Service why nothing was bought, or that this is not known.
func (b *Balancer) notBought(ctx context.Context, service *corev1.Service, failure error) error {
	var pause *purchase.Pause
	var refusal *purchase.Refused
	switch {
	case errors.As(failure, &pause):
		b.note(ctx, service, pause.Reason, words(pause.Reason))
	case errors.As(failure, &refusal):
		return b.refuse(ctx, service, plan.Step{Action: plan.Refuse, Reason: refusal.Reason, Detail: refusal.Detail})
	}
	return failure
}

// serviceRecord is the record of a purchase on the Service itself.
type serviceRecord struct {
	balancer *Balancer
	service  *corev1.Service
}

var _ purchase.Record = (*serviceRecord)(nil)

// Load implements purchase.Record.
func (r *serviceRecord) Load(ctx context.Context) (*contract.Purchase, error) {
	live, err := r.balancer.current(ctx, r.service)
	if err != nil {
		return nil, err
	}
	if live == nil {
		return nil, fmt.Errorf("read Service %s/%s, which is gone: %w", r.service.Namespace, r.service.Name,
			purchase.ErrOutdated)
	}
	r.service = live
	return plan.RecordedPurchase(live)
}

// Save implements purchase.Record.
func (r *serviceRecord) Save(ctx context.Context, intent *contract.Purchase) error {
	wanted := map[string]any{contract.ServiceIPPurchase: nil}
	if intent != nil {
		encoded, err := intent.Encode()
		if err != nil {
			return err
		}
		wanted = map[string]any{contract.ServiceIPPurchase: encoded, contract.ServiceIPOwner: string(r.service.UID)}
	}
	updated, err := r.balancer.patchService(ctx, r.service, patch{exactly: true, annotations: wanted})
	if errors.Is(err, errOutdated) {
		return fmt.Errorf("%w (%w)", purchase.ErrOutdated, err)
	}
	if err != nil {
		return err
	}
	r.service = updated
	return nil
}
