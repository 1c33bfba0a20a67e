package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Ensure takes the Service one step nearer to a published address: at most one change of the account. It
// returns the status only once the block is assigned and a node can carry its traffic. A status beside an
// error is to be written as well: the address works, and something else is to be done or cannot be had.
//
// Errors: *api.RetryError while something takes its time, to be called again after its RetryAfter; one
// for which pnap.IsDryRun holds, unchanged; *plan.Refusal when a person has to act; anything else is a failure of
// the API or the cluster, to be tried again after a pause.
func (b *Balancer) Ensure(ctx context.Context, service *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	status, err := b.ensure(ctx, service)
	return status, b.pacing(service, err)
}

// ensure first decides on the picture at hand, which costs nothing. Only when that is not enough it looks
// closely, with the account to itself.
func (b *Balancer) ensure(ctx context.Context, service *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	if !contract.WantsAddress(service) {
		return nil, b.retry(service, reasonOutdated)
	}
	start := b.config.Now()
	s, err := b.glance(ctx, service)
	if err != nil {
		return nil, b.lookupFailed(service, err)
	}
	if v := decide(s); v.settled(s) {
		return b.carryOut(ctx, s, v)
	}
	done, err := b.config.Account.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if s, err = b.lookClosely(ctx, service); err != nil {
		return nil, b.lookupFailed(service, err)
	}
	v := decide(s)
	if v.changesAccount() && !s.fresh(start) {
		if s, err = b.look(ctx, s, depth{after: start, close: true}); err != nil {
			return nil, b.lookupFailed(service, err)
		}
		v = decide(s)
	}
	return b.carryOut(ctx, s, v)
}

func (b *Balancer) lookupFailed(service *corev1.Service, err error) error {
	var again *api.RetryError
	if errors.As(err, &again) {
		return err
	}
	return fmt.Errorf("look for the IP block of Service %s/%s: %w", service.Namespace, service.Name, err)
}

// glance looks with the copies at hand.
func (b *Balancer) glance(ctx context.Context, service *corev1.Service) (scene, error) {
	s, err := b.sceneToEnsure(ctx, service)
	if err != nil {
		return scene{}, err
	}
	return b.look(ctx, s, depth{after: b.pace.freshness(service.UID, b.config.Now())})
}

// lookClosely reads the Service afresh: the informer's copy may be old, and money is at stake.
func (b *Balancer) lookClosely(ctx context.Context, service *corev1.Service) (scene, error) {
	live, err := b.current(ctx, service)
	if err != nil {
		return scene{}, err
	}
	if live == nil || !contract.WantsAddress(live) {
		return scene{}, b.retry(service, reasonOutdated)
	}
	s, err := b.sceneToEnsure(ctx, live)
	if err != nil {
		return scene{}, err
	}
	after := b.pace.freshness(service.UID, s.now)
	if after.IsZero() {
		after = s.now
	}
	return b.look(ctx, s, depth{after: after, close: true})
}

func (b *Balancer) sceneToEnsure(ctx context.Context, service *corev1.Service) (scene, error) {
	s, err := b.sceneOf(ctx, service)
	if err != nil {
		return scene{}, err
	}
	var unreadable error
	if s.purchase, unreadable = recordedPurchase(service); unreadable != nil {
		s.problem = errors.Join(s.problem, unreadable)
	}
	return s, nil
}

// carryOut does what the verdict says.
func (b *Balancer) carryOut(ctx context.Context, s scene, v verdict) (*corev1.LoadBalancerStatus, error) {
	klog.FromContext(ctx).V(2).Info("Decided about a Service", "service", klog.KObj(s.service), "close", s.close,
		"action", v.step.Action, "reason", v.step.Reason, "block", v.step.Block.ID)
	var err error
	if s.service, err = b.prepare(ctx, s, v); err != nil {
		return nil, err
	}
	switch v.step.Action {
	case plan.Done:
		return b.publish(ctx, s, v)
	case plan.Buy:
		return nil, b.buy(ctx, s, v)
	case plan.Refuse:
		return b.withhold(ctx, s, v.step)
	case plan.Wait:
		return nil, b.waitUntil(ctx, s.service, v.step)
	case plan.Assign, plan.Unassign, plan.Delete:
		return nil, b.advance(ctx, s, v)
	default:
		return nil, fmt.Errorf("no way to carry out %q for Service %s/%s", v.step.Action, s.service.Namespace, s.service.Name)
	}
}

// prepare writes what must stand before anything else is done.
func (b *Balancer) prepare(ctx context.Context, s scene, v verdict) (*corev1.Service, error) {
	service := s.service
	var err error
	if s.close && s.rubbish() {
		if service, err = b.removeForeign(ctx, s); err != nil {
			return nil, err
		}
	}
	if len(v.save) > 0 {
		if err := b.ledgers.save(ctx, v.save...); err != nil {
			return nil, err
		}
		if v.reused {
			b.config.Events.Eventf(service, corev1.EventTypeNormal, eventReused,
				"Address %s was given back more than %s ago and no agent reports that it is silent", v.step.Address, plan.Quarantine)
		}
	}
	return b.markUnassigned(ctx, service, v.step)
}

// advance changes the account.
func (b *Balancer) advance(ctx context.Context, s scene, v verdict) error {
	if standing := b.rests.standing(v.step); standing != v.step.Reason {
		return b.wait(ctx, s.service, standing)
	}
	reason, err := b.act(ctx, s.service, v.step)
	if err != nil {
		return err
	}
	if v.step.Action == plan.Assign && reason == plan.BlockAssigning && s.published().IsValid() {
		b.config.Metrics.repaired(repairReassigned)
	}
	return b.wait(ctx, s.service, reason)
}

// buy buys a block for the Service or its pool.
func (b *Balancer) buy(ctx context.Context, s scene, v verdict) error {
	wish, record := s.wish(), purchase.Record(&serviceRecord{balancer: b, service: s.service})
	order := purchase.Order{Owner: v.owner, Location: wish.Location, LocationSource: wish.LocationSource, Size: wish.Size, Subject: string(s.service.UID)}
	if v.owner.Pool != "" {
		pool := b.poolRecord()
		if _, err := pool.Load(ctx); err != nil {
			return err
		}
		record, order.Subject, order.Size = pool, "", s.poolWish().Size
	}
	block, err := b.config.Buyer.Buy(ctx, order, record)
	b.changed()
	service := s.service
	if own, is := record.(*serviceRecord); is {
		service = own.service
	}
	if err != nil {
		return b.notBought(ctx, service, err)
	}
	b.config.Events.Eventf(service, corev1.EventTypeNormal, eventBought, "Bought IP block %s (%s) in %s", block.ID, block.CIDR, block.Location)
	if s.published().IsValid() {
		b.config.Metrics.repaired(repairReplaced)
	}
	return b.wait(ctx, service, plan.BlockCreating)
}

// notBought says on the Service why nothing was bought, or that nobody knows.
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

// waitUntil is wait for a step whose end may be known: then the condition names the time, and nothing is asked before.
func (b *Balancer) waitUntil(ctx context.Context, service *corev1.Service, step plan.Step) error {
	err := b.retry(service, step.Reason)
	left := step.Until.Sub(b.config.Now())
	if left <= 0 { // not known, or it ended a moment ago
		b.note(ctx, service, step.Reason, words(step.Reason))
		return err
	}
	b.note(ctx, service, step.Reason, words(step.Reason)+", until "+step.Until.UTC().Format(time.RFC3339)+" at the latest")
	return api.NewRetryError(words(step.Reason), left)
}

// wait says why nothing more can be done now and asks to be called again.
func (b *Balancer) wait(ctx context.Context, service *corev1.Service, reason plan.Reason) error {
	b.note(ctx, service, reason, words(reason))
	return b.retry(service, reason)
}
