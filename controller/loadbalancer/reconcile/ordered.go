package reconcile

import (
	"cmp"
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
)

// assignKept assigns the first block that is kept and not assigned.
func (b *Balancer) assignKept(ctx context.Context, o plan.Observed) (acted bool, err error) {
	for _, s := range o.KeptUnassigned() {
		step := ipblock.EnsureBlock(s, o.Account)
		if step.Action == ipblock.Assign && b.backoffs.reasonFor(step) == step.Reason {
			_, err := b.act(ctx, nil, step)
			return true, err
		}
	}
	return false, nil
}

// fulfil buys the first block that a person has ordered and that was not bought.
func (b *Balancer) fulfil(ctx context.Context, o plan.Observed) (acted bool, err error) {
	ordered, found := o.Records.Ordered()
	if !found {
		return false, nil
	}
	step := o.OrderedStep(ordered)
	if step.Action == ipblock.Buy {
		return true, b.buyOrdered(ctx, o)
	}
	return false, b.sayOrdered(ctx, ordered, step)
}

// recordOrdered records the block that was bought for an order although the purchase had no answer: until the object
// names it, it is one without use.
func (b *Balancer) recordOrdered(ctx context.Context, o plan.Observed) (acted bool, err error) {
	bought := o.UnrecordedShared()
	if _, ordered := o.Records.Ordered(); !ordered || bought == "" {
		return false, nil
	}
	defer b.ledgers.forget()
	return true, b.poolRecord(o).Answer(ctx, bought)
}

// buyOrdered buys a block for the pool, which is the ordered one unless another purchase for the pool has no answer.
func (b *Balancer) buyOrdered(ctx context.Context, o plan.Observed) error {
	record := b.poolRecord(o)
	order := purchase.Order{Owner: o.Pool(), Location: o.Public().Location, Size: cmp.Or(record.Size(),
		o.RequestOfPool().Size)}
	_, err := b.config.Buyer.Buy(ctx, order, record)
	b.config.Account.InvalidateBlocks()
	b.ledgers.forget()
	var pause *purchase.Pause
	var refusal *purchase.Refused
	ordered, _ := o.Records.Ordered()
	switch {
	case pnap.IsDryRun(err):
		klog.FromContext(ctx).Info("An IP block that was ordered would be bought", "object", ordered.Name)
		return nil
	case errors.As(err, &refusal):
		return b.sayOrdered(ctx, ordered, ipblock.Step{Action: ipblock.Refuse, Reason: refusal.Reason,
			Detail: refusal.Detail})
	case errors.As(err, &pause):
		return b.sayOrdered(ctx, ordered, ipblock.Step{Action: ipblock.Wait, Reason: pause.Reason})
	default:
		return err
	}
}

// refuseElsewhere shows in the blocks that were ordered for networks which are not served that none is bought.
func (b *Balancer) refuseElsewhere(ctx context.Context, places plan.Places) error {
	listing, err := b.ledgers.list(ctx, scope{})
	if err != nil {
		return err
	}
	for _, r := range listing.Elsewhere {
		if refusal, refused := places.RefuseOrder(r); refused {
			if err := b.sayOrdered(ctx, r, refusal); err != nil {
				return err
			}
		}
	}
	return nil
}

// sayOrdered shows in the object why its block was not bought.
func (b *Balancer) sayOrdered(ctx context.Context, r ipblock.Record, step ipblock.Step) error {
	said := ipblock.Condition{Reason: string(step.Reason), Message: cmp.Or(step.Detail, words(step.Reason))}
	report := r.Report
	report.Assigned = said
	report.Ready = said
	if report == r.Report {
		return nil
	}
	defer b.ledgers.forget()
	err := allocation.ShowConditions(ctx, b.config.Ledgers.Objects(), r, report, b.config.Now())
	if errors.Is(err, allocation.ErrConflict) {
		return nil
	}
	return err
}
