package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func logDecision(ctx context.Context, o plan.Observed, p plan.ServicePlan) {
	klog.FromContext(ctx).V(2).Info("Decided about a Service", "service", klog.KObj(o.Service), "live", o.Live,
		"action", p.Step.Action, "reason", p.Step.Reason, "block", p.Step.Block.ID)
	if logger := klog.FromContext(ctx).V(3); logger.Enabled() {
		logger.Info("Objects of the decision about a Service", "service", klog.KObj(o.Service),
			"desired", fmt.Sprintf("%+v", o.Desired), "blocks", fmt.Sprintf("%+v", o.Sightings),
			"ledgers", fmt.Sprintf("%+v", o.Ledgers), "plan", fmt.Sprintf("%+v", p))
	}
}

// prepare does what the plan needs before its step.
func (b *Balancer) prepare(ctx context.Context, r *reconciliation) (bool, error) {
	logDecision(ctx, r.observed, r.plan)
	if r.observed.Live && r.observed.ForeignFields {
		b.removeForeign(ctx, r.Draft, r.observed.Nodes)
	}
	if r.plan.Record != "" || r.plan.Forget {
		if err := b.recordBlock(ctx, r.observed, r.plan); err != nil {
			return true, err
		}
		if err := b.readLedgers(ctx, &r.observed, r.scope); err != nil {
			return true, err
		}
		r.observed = r.observed.Complete()
	}
	if len(r.plan.Save) > 0 {
		if err := b.ledgers.save(ctx, r.plan.Save...); err != nil {
			return true, err
		}
		if r.plan.Reused {
			b.config.Events.Eventf(r.Service, corev1.EventTypeNormal, eventReused,
				"Address %s was released more than %s ago; not every agent has confirmed that it is unused",
				r.plan.Step.Address, ipblock.Quarantine)
		}
	}
	markUnassigned(r.Draft, r.plan.Step)
	return false, nil
}

// applyStep takes the step of the plan.
func (b *Balancer) applyStep(ctx context.Context, r *reconciliation) (bool, error) {
	if r.plan.Withdraw {
		b.withdrawLost(ctx, r)
	}
	if r.plan.Leave {
		b.leave(ctx, r)
	}
	switch step := r.plan.Step; step.Action {
	case ipblock.Done:
		return true, b.publish(ctx, r)
	case ipblock.Buy:
		return true, b.buy(ctx, r)
	case ipblock.Refuse:
		return true, b.refuse(r.Draft, step)
	case ipblock.Wait:
		return true, b.waitUntil(r.Draft, step)
	case ipblock.Assign, ipblock.Unassign, ipblock.Delete:
		return true, b.advance(ctx, r)
	default:
		return true, fmt.Errorf("no way to apply %q for Service %s/%s", step.Action, r.Service.Namespace,
			r.Service.Name)
	}
}

// advance changes the account.
func (b *Balancer) advance(ctx context.Context, r *reconciliation) error {
	step := r.plan.Step
	if reason := b.backoffs.reasonFor(step); reason != step.Reason {
		return b.waitOn(r.Draft, step, reason)
	}
	reason, err := b.act(ctx, r.Service, step)
	if err != nil {
		b.setFailure(ctx, r.Draft, step.Reason, err)
		return err
	}
	if step.Action == ipblock.Assign && reason == ipblock.BlockAssigning && r.observed.Published.IsValid() {
		b.config.Metrics.repaired(repairReassigned)
	}
	return b.waitOn(r.Draft, step, reason)
}

// act carries out a step that changes the account and returns where that leaves the block. service is
// the object of the events about it; nil when there is none.
func (b *Balancer) act(ctx context.Context, service *corev1.Service, step ipblock.Step) (ipblock.Reason, error) {
	var err error
	var reason ipblock.Reason
	switch step.Action {
	case ipblock.Assign:
		err = b.config.Cloud.AssignBlock(ctx, step.Network, step.Block.ID)
		reason = ipblock.BlockAssigning
	case ipblock.Unassign:
		err = b.config.Cloud.UnassignBlock(ctx, step.Network, step.Block.ID)
		reason = ipblock.BlockUnassigning
	case ipblock.Delete:
		err = b.config.Cloud.DeleteBlock(ctx, step.Block.ID)
		reason = ipblock.DeletionUnverified
	default:
		return "", fmt.Errorf("%q changes nothing in the account", step.Action)
	}
	b.config.Account.Invalidate()
	switch {
	case err == nil:
		b.backoffs.tried(step)
		b.record(ctx, service, step)
		return reason, nil
	case pnap.IsConflict(err) && step.Action != ipblock.Delete:
		b.backoffs.refused(step)
		return ipblock.NetworkChanging, nil
	case pnap.IsInaccessible(err) && step.Action == ipblock.Delete:
		// Another client was faster, or the block is not visible any more: the next observation shows which.
		return reason, nil
	case pnap.IsConflict(err):
		b.backoffs.refused(step)
	}
	return "", fmt.Errorf("%s IP block %s (%s): %w", step.Action, step.Block.ID, step.Block.CIDR, err)
}

// record notes in the log and in events what was done to the account.
func (b *Balancer) record(ctx context.Context, service *corev1.Service, step ipblock.Step) {
	logger := klog.FromContext(ctx).WithValues("action", step.Action, "block", step.Block.ID, "cidr", step.Block.CIDR,
		"network", step.Network)
	if service == nil {
		logger.Info("Changed an IP block")
		return
	}
	logger.Info("Changed an IP block", "service", klog.KObj(service))
	b.looks.spend(service, 1, b.config.Now())
	block := step.Block.ID + " (" + step.Block.CIDR.String() + ")"
	switch step.Action {
	case ipblock.Assign:
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventAssigning,
			"Assigning IP block %s to public network %s", block, step.Network)
	case ipblock.Unassign:
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventUnassigned,
			"Unassigning IP block %s from public network %s", block, step.Network)
	case ipblock.Delete:
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventReleased, "Released IP block %s", block)
	default:
	}
}

// takeFirst takes the first of the steps that the API does not refuse: a block that is stuck must not
// keep others. It returns where the block stands now; empty when no step can be taken.
func (b *Balancer) takeFirst(ctx context.Context, service *corev1.Service, steps []ipblock.Step) (ipblock.Reason,
	error) {
	var refusals []error
	for _, step := range steps {
		if (step.Action != ipblock.Unassign && step.Action != ipblock.Delete) || b.backoffs.inError(step) ||
			b.backoffs.inConflict(step) {
			continue
		}
		reason, err := b.act(ctx, service, step)
		if err == nil {
			return reason, nil
		}
		if !pnap.IsRefused(err) {
			return "", err
		}
		refusals = append(refusals, err)
	}
	return "", errors.Join(refusals...)
}

// retag sets the tags of a block. The tag that marks a block as retained must exist before, and a new one
// may be refused for some seconds: it is sent again after a pause, until it is accepted.
func (b *Balancer) retag(
	ctx context.Context, service *corev1.Service, block network.Block, tags map[string]string,
) error {
	change := ipblock.Step{Block: block}
	if b.backoffs.inConflict(change) {
		return nil
	}
	if tags[contract.TagRetain] != "" {
		if err := b.config.Cloud.EnsureTags(ctx, contract.TagRetain); err != nil {
			return fmt.Errorf("create tag %s: %w", contract.TagRetain, err)
		}
	}
	err := b.config.Cloud.SetBlockTags(ctx, block.ID, tags)
	if pnap.IsTagFresh(err) { // nothing has changed, and time heals it
		b.backoffs.refused(change)
		return nil
	}
	b.config.Account.Invalidate()
	if err != nil {
		return fmt.Errorf("set the tags of IP block %s (%s): %w", block.ID, block.CIDR, err)
	}
	b.looks.spend(service, 2, b.config.Now()) // the list shows old tags for a while
	klog.FromContext(ctx).Info("Changed the tags of an IP block", "service", klog.KObj(service), "block", block.ID,
		"tags", tags)
	if tags[contract.TagRetain] != "" {
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventRetained,
			"IP block %s (%s) is retained after the Service is deleted", block.ID, block.CIDR)
	}
	return nil
}

// buy buys a block for the Service or its pool.
func (b *Balancer) buy(ctx context.Context, r *reconciliation) error {
	o := r.observed
	record := b.ownRecord(o)
	order := purchase.Order{Owner: r.plan.Owner, Location: o.Desired.Location,
		LocationSource: o.Desired.LocationSource, Size: o.Desired.Size, Subject: string(r.Service.UID)}
	if r.plan.Owner.Pool != "" {
		record = b.poolRecord(o)
		order.Subject = ""
		order.Size = cmp.Or(record.Size(), o.RequestOfPool().Size)
	}
	block, err := b.config.Buyer.Buy(ctx, order, record)
	b.config.Account.InvalidateBlocks()
	b.ledgers.forget()
	if err != nil {
		return b.notBought(ctx, r.Draft, err)
	}
	b.looks.spend(r.Service, 1, b.config.Now())
	b.config.Events.Eventf(r.Service, corev1.EventTypeNormal, eventBought, "Bought IP block %s (%s) in %s", block.ID,
		block.CIDR, block.Location)
	if o.Published.IsValid() {
		b.config.Metrics.repaired(repairReplaced)
	}
	return b.waitOn(r.Draft, ipblock.Step{Block: block}, ipblock.BlockCreating)
}

// recordBlock records a block that no object names yet, and forgets one that is gone.
func (b *Balancer) recordBlock(ctx context.Context, o plan.Observed, p plan.ServicePlan) error {
	defer b.ledgers.forget()
	switch {
	case p.Forget:
		return b.ownRecord(o).Forget(ctx)
	case p.Owner.Pool != "":
		return b.poolRecord(o).Answer(ctx, p.Record)
	default:
		return b.ownRecord(o).Answer(ctx, p.Record)
	}
}

// notBought says on the Service why nothing was bought, or that this is not known.
func (b *Balancer) notBought(ctx context.Context, d *Draft, failure error) error {
	var pause *purchase.Pause
	var refusal *purchase.Refused
	switch {
	case errors.As(failure, &pause):
		b.setPurchasePause(d, pause)
	case errors.As(failure, &refusal):
		return b.refuse(d, ipblock.Step{Action: ipblock.Refuse, Reason: refusal.Reason, Detail: refusal.Detail})
	default:
		b.setFailure(ctx, d, ipblock.PurchaseDue, failure)
	}
	return failure
}

func (b *Balancer) setPurchasePause(d *Draft, pause *purchase.Pause) {
	if pnap.IsPaused(pause.Cause) {
		b.setPause(d, pause.Cause)
		return
	}
	b.setBlockCondition(d, pause.Reason, words(pause.Reason))
}
