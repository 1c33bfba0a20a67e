package reconcile

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Ensure takes the Service one step nearer to a published address: at most one change of the account. It
// returns the status only once the block is assigned and a node can carry its traffic. A status beside an
// error must be written as well: the address works, but other work remains or is not possible.
//
// Errors: *api.RetryError while something takes its time, to be called again after its RetryAfter; one
// for which pnap.IsDryRun holds, unchanged; *plan.Refusal when a person has to act; anything else is a failure of
// the API or the cluster, to be tried again after a pause.
func (b *Balancer) Ensure(ctx context.Context, service *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	status, err := b.ensure(ctx, service)
	klog.FromContext(ctx).V(5).Info("Ensured the address of a Service", "service", klog.KObj(service), "result", err)
	err = b.ended(service, err)
	b.pace.ensures(service)
	return status, err
}

// ensure first checks what the Service waits for, and then decides from the cache, which costs nothing. Only when that
// is not enough it reads the account live, with the lock for changes.
func (b *Balancer) ensure(ctx context.Context, service *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	if !contract.WantsAddress(service) {
		return nil, b.retry(service, because(waitOutdated))
	}
	start := b.config.Now()
	var cached plan.Observed
	var p plan.ServicePlan
	var progress progress
	var err error
	wait := b.looks.wait(service, start)
	if wait == 0 {
		progress, err = b.check(ctx, service)
	}
	switch {
	case err != nil:
		return nil, b.lookupFailed(ctx, service, service, err)
	case progress == pending:
		return nil, b.again(service)
	case progress == unknown:
		if cached, err = b.fromCache(ctx, service, wait > 0); err != nil {
			return nil, b.lookupFailed(ctx, service, service, err)
		}
		if p = plan.Decide(cached); p.UpToDate(cached) && (wait == 0 || p.Step.Action != plan.Wait) {
			return b.applyPlan(ctx, cached, p)
		}
	}
	if wait > 0 && p.Step.Action != plan.Assign { // others wait while a block is about to take its place
		return b.meanwhile(ctx, cached, p, wait)
	}
	b.looks.spend(service, start)
	done, err := b.config.Account.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	o, err := b.observeLive(ctx, service, depth{after: start, live: true, known: progress == ended})
	if err != nil {
		return nil, b.lookupFailed(ctx, service, service, err)
	}
	p = plan.Decide(o)
	if (p.ChangesAccount() || p.Step.Action == plan.Done && o.Purchase != nil) && !o.Fresh(start) {
		if o, p, err = b.refresh(ctx, o, p, start); err != nil {
			return nil, b.lookupFailed(ctx, service, service, err)
		}
	}
	return b.applyPlan(ctx, o, p)
}

// meanwhile keeps an address published while the account is not to be read live for the Service.
func (b *Balancer) meanwhile(ctx context.Context, o plan.Observed, p plan.ServicePlan,
	wait time.Duration) (*corev1.LoadBalancerStatus, error) {
	if p.Step.Action != plan.Done || len(p.Save) > 0 || o.HasForeignFields() {
		return nil, held(wait)
	}
	p.Tags = nil
	p.Surplus = nil
	status, err := b.applyPlan(ctx, o, p)
	var refusal *plan.Refusal
	if err == nil || errors.As(err, &refusal) {
		err = held(wait)
	}
	return status, err
}

// refresh reads what a decision may not take from an older reading, and decides again. To assign a block that was just
// read by its ID, that is the network; to forget its purchase, the list that shows it.
func (b *Balancer) refresh(ctx context.Context, o plan.Observed, p plan.ServicePlan, start time.Time) (plan.Observed,
	plan.ServicePlan, error) {
	switch {
	case p.Step.Action == plan.Done && !p.ChangesAccount():
		listing, err := b.config.Account.Blocks(ctx, time.Time{})
		o.Blocks = listing.Blocks
		return o, p, err
	case p.Step.Action == plan.Assign:
		var err error
		if o.Networks, err = b.readNetworks(ctx, o.View, depth{after: start.Add(-recent)}); err != nil {
			return o, p, err
		}
		if p = plan.Decide(o); p.Step.Action == plan.Assign || !p.ChangesAccount() {
			return o, p, nil
		}
	}
	o, err := b.observe(ctx, o, depth{after: start, live: true})
	if err != nil {
		return o, p, err
	}
	return o, plan.Decide(o), nil
}
