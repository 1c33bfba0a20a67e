package reconcile

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// applyPlan does what the plan says.
func (b *Balancer) applyPlan(
	ctx context.Context, o plan.Observed, p plan.ServicePlan,
) (*corev1.LoadBalancerStatus, error) {
	klog.FromContext(ctx).V(2).Info("Decided about a Service", "service", klog.KObj(o.Service), "live", o.Live,
		"action", p.Step.Action, "reason", p.Step.Reason, "block", p.Step.Block.ID)
	if logger := klog.FromContext(ctx).V(3); logger.Enabled() {
		logger.Info("Objects of the decision about a Service", "service", klog.KObj(o.Service),
			"desired", fmt.Sprintf("%+v", o.Desired), "blocks", fmt.Sprintf("%+v", o.Sightings),
			"ledgers", fmt.Sprintf("%+v", o.Ledgers), "plan", fmt.Sprintf("%+v", p))
	}
	var err error
	if o.Service, err = b.prepare(ctx, o, p); err != nil {
		return nil, err
	}
	switch p.Step.Action {
	case plan.Done:
		return b.publish(ctx, o, p)
	case plan.Buy:
		return nil, b.buy(ctx, o, p)
	case plan.Refuse:
		return b.reject(ctx, o, p.Step)
	case plan.Wait:
		return nil, b.waitUntil(ctx, o.Service, p.Step)
	case plan.Assign, plan.Unassign, plan.Delete:
		return nil, b.advance(ctx, o, p)
	default:
		return nil, fmt.Errorf("no way to apply %q for Service %s/%s", p.Step.Action, o.Service.Namespace,
			o.Service.Name)
	}
}

// prepare writes what must stand before anything else is done.
func (b *Balancer) prepare(ctx context.Context, o plan.Observed, p plan.ServicePlan) (*corev1.Service, error) {
	service := o.Service
	var err error
	if o.Live && o.HasForeignFields() {
		if service, err = b.removeForeign(ctx, o); err != nil {
			return nil, err
		}
	}
	if len(p.Save) > 0 {
		if err := b.ledgers.save(ctx, p.Save...); err != nil {
			return nil, err
		}
		if p.Reused {
			b.config.Events.Eventf(service, corev1.EventTypeNormal, eventReused,
				"Address %s was released more than %s ago; not every agent has confirmed that it is unused",
				p.Step.Address, plan.Quarantine)
		}
	}
	return b.markUnassigned(ctx, service, p.Step)
}

// advance changes the account.
func (b *Balancer) advance(ctx context.Context, o plan.Observed, p plan.ServicePlan) error {
	if reason := b.backoffs.reasonFor(p.Step); reason != p.Step.Reason {
		return b.wait(ctx, o.Service, under(p.Step, reason))
	}
	reason, err := b.act(ctx, o.Service, p.Step)
	if err != nil {
		b.noteFailure(ctx, o.Service, p.Step.Reason, err)
		return err
	}
	if p.Step.Action == plan.Assign && reason == plan.BlockAssigning && o.Published.IsValid() {
		b.config.Metrics.repaired(repairReassigned)
	}
	return b.wait(ctx, o.Service, under(p.Step, reason))
}

// act carries out a step that changes the account and returns where that leaves the block. service is
// the object of the events about it; nil when there is none.
func (b *Balancer) act(ctx context.Context, service *corev1.Service, step plan.Step) (plan.Reason, error) {
	var err error
	var reason plan.Reason
	switch step.Action {
	case plan.Assign:
		err = b.config.Cloud.AssignBlock(ctx, step.Network, step.Block.ID)
		reason = plan.BlockAssigning
	case plan.Unassign:
		err = b.config.Cloud.UnassignBlock(ctx, step.Network, step.Block.ID)
		reason = plan.BlockUnassigning
	case plan.Delete:
		err = b.config.Cloud.DeleteBlock(ctx, step.Block.ID)
		reason = plan.DeletionUnverified
	default:
		return "", fmt.Errorf("%q changes nothing in the account", step.Action)
	}
	b.config.Account.Invalidate()
	switch {
	case err == nil:
		b.backoffs.tried(step)
		b.record(ctx, service, step)
		return reason, nil
	case pnap.IsConflict(err) && step.Action != plan.Delete:
		b.backoffs.refused(step)
		return plan.NetworkChanging, nil
	case pnap.IsInaccessible(err) && step.Action == plan.Delete:
		// Another client was faster, or the block is not visible any more: the next observation shows which.
		return reason, nil
	case pnap.IsConflict(err):
		b.backoffs.refused(step)
	}
	return "", fmt.Errorf("%s IP block %s (%s): %w", step.Action, step.Block.ID, step.Block.CIDR, err)
}

// record notes in the log and in events what was done to the account.
func (b *Balancer) record(ctx context.Context, service *corev1.Service, step plan.Step) {
	logger := klog.FromContext(ctx).WithValues("action", step.Action, "block", step.Block.ID, "cidr", step.Block.CIDR,
		"network", step.Network)
	if service == nil {
		logger.Info("Changed an IP block")
		return
	}
	logger.Info("Changed an IP block", "service", klog.KObj(service))
	block := step.Block.ID + " (" + step.Block.CIDR.String() + ")"
	switch step.Action {
	case plan.Assign:
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventAssigning,
			"Assigning IP block %s to public network %s", block, step.Network)
	case plan.Unassign:
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventUnassigned,
			"Unassigning IP block %s from public network %s", block, step.Network)
	case plan.Delete:
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventReleased, "Released IP block %s", block)
	default:
	}
}

// takeFirst takes the first of the steps that the API does not refuse: a block that is stuck must not
// keep others. It returns where the block stands now; empty when no step can be taken.
func (b *Balancer) takeFirst(ctx context.Context, service *corev1.Service, steps []plan.Step) (plan.Reason, error) {
	var refusals []error
	for _, step := range steps {
		if (step.Action != plan.Unassign && step.Action != plan.Delete) || b.backoffs.inError(step) ||
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
// may be refused for some seconds.
func (b *Balancer) retag(
	ctx context.Context, service *corev1.Service, block network.Block, tags map[string]string,
) error {
	if tags[contract.TagRetain] != "" {
		if err := b.config.Cloud.EnsureTags(ctx, contract.TagRetain); err != nil {
			return fmt.Errorf("create tag %s: %w", contract.TagRetain, err)
		}
	}
	err := b.config.Cloud.SetBlockTags(ctx, block.ID, tags)
	b.config.Account.Invalidate()
	if err != nil {
		return fmt.Errorf("set the tags of IP block %s (%s): %w", block.ID, block.CIDR, err)
	}
	klog.FromContext(ctx).Info("Changed the tags of an IP block", "service", klog.KObj(service), "block", block.ID,
		"tags", tags)
	if tags[contract.TagRetain] != "" {
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventRetained,
			"IP block %s (%s) is retained after the Service is deleted", block.ID, block.CIDR)
	}
	return nil
}

// buy buys a block for the Service or its pool.
func (b *Balancer) buy(ctx context.Context, o plan.Observed, p plan.ServicePlan) error {
	own := &serviceRecord{balancer: b, service: o.Service}
	record := purchase.Record(own)
	order := purchase.Order{Owner: p.Owner, Location: o.Desired.Location, LocationSource: o.Desired.LocationSource,
		Size: o.Desired.Size, Subject: string(o.Service.UID)}
	if p.Owner.Pool != "" {
		pool := b.poolRecord()
		if _, err := pool.Load(ctx); err != nil {
			return err
		}
		record = pool
		order.Subject = ""
		order.Size = o.DesiredOfPool().Size
	}
	block, err := b.config.Buyer.Buy(ctx, order, record)
	b.config.Account.InvalidateBlocks()
	service := own.service // as it is since the purchase was recorded there
	if err != nil {
		return b.notBought(ctx, service, err)
	}
	b.config.Events.Eventf(service, corev1.EventTypeNormal, eventBought, "Bought IP block %s (%s) in %s", block.ID,
		block.CIDR, block.Location)
	if o.Published.IsValid() {
		b.config.Metrics.repaired(repairReplaced)
	}
	return b.wait(ctx, service, plan.Step{Action: plan.Wait, Reason: plan.BlockCreating, Block: block})
}

// notBought says on the Service why nothing was bought, or that this is not known.
func (b *Balancer) notBought(ctx context.Context, service *corev1.Service, failure error) error {
	var pause *purchase.Pause
	var refusal *purchase.Refused
	switch {
	case errors.As(failure, &pause):
		b.notePurchasePause(ctx, service, pause)
	case errors.As(failure, &refusal):
		return b.refuse(ctx, service, plan.Step{Action: plan.Refuse, Reason: refusal.Reason, Detail: refusal.Detail})
	default:
		b.noteFailure(ctx, service, plan.PurchaseDue, failure)
	}
	return failure
}

func (b *Balancer) notePurchasePause(ctx context.Context, service *corev1.Service, pause *purchase.Pause) {
	if pnap.IsPaused(pause.Cause) {
		b.notePause(ctx, service, pause.Cause)
		return
	}
	b.note(ctx, service, pause.Reason, words(pause.Reason))
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
	encoded := ""
	if intent != nil {
		var err error
		if encoded, err = intent.Encode(); err != nil {
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
	if err := purchase.Kept("Service "+updated.Namespace+"/"+updated.Name, encoded, updated.Annotations); err != nil {
		return err
	}
	if intent != nil && !contract.WrittenForThis(updated) {
		return fmt.Errorf("the API server did not keep annotation %s of Service %s/%s, so that nothing is bought; "+
			"exclude Services from the admission webhook that removes it", contract.ServiceIPOwner, updated.Namespace,
			updated.Name)
	}
	return nil
}
