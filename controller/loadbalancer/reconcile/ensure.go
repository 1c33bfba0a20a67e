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
// is not enough the account is read live. A Service that is held back is served from what is known, whatever it waits
// for.
func (b *Balancer) ensure(ctx context.Context, service *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	if !contract.WantsAddress(service) {
		return nil, b.retry(service, because(waitOutdated))
	}
	start := b.config.Now()
	s := scopeOf(service)
	wait := b.looks.wait(service, start)
	after := time.Time{}
	became := unknown
	if wait == 0 {
		after = b.pace.freshness(service, start)
		var err error
		if became, err = b.check(ctx, s); err != nil {
			return nil, b.lookupFailed(ctx, service, service, err)
		}
	}
	switch became {
	case pending:
		return nil, b.again(service)
	case unknown:
		o, err := b.observe(ctx, s.cached(after))
		if err != nil {
			return nil, b.lookupFailed(ctx, service, service, err)
		}
		p := plan.Decide(o)
		switch {
		case p.UpToDate(o) && (wait == 0 || p.Step.Action != plan.Wait):
			return b.applyPlan(ctx, o, p)
		case wait > 0 && p.Step.Action != plan.Assign: // others wait while a block is about to take its slot
			return b.meanwhile(ctx, o, p, wait)
		}
	case ended:
	}
	b.looks.spend(service, start)
	s = s.fresh(start)
	s.known = became == ended
	return b.ensureLive(ctx, s)
}

// ensureLive reads the Service and the account live, with the lock for changes: the informer's copy may be old, and
// money is at stake.
func (b *Balancer) ensureLive(ctx context.Context, s scope) (*corev1.LoadBalancerStatus, error) {
	service := s.service
	done, err := b.config.Account.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	live, err := b.current(ctx, service)
	if err != nil {
		return nil, b.lookupFailed(ctx, service, service, err)
	}
	if live == nil || !contract.WantsAddress(live) {
		return nil, b.retry(service, because(waitOutdated))
	}
	s.service = live
	o, err := b.observe(ctx, s)
	if err != nil {
		return nil, b.lookupFailed(ctx, service, service, err)
	}
	p := plan.Decide(o)
	if (p.ChangesAccount() || p.Step.Action == plan.Done && o.Purchase != nil) && !o.Fresh(s.after) {
		if o, p, err = b.refresh(ctx, s, o, p); err != nil {
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
func (b *Balancer) refresh(ctx context.Context, s scope, o plan.Observed, p plan.ServicePlan) (plan.Observed,
	plan.ServicePlan, error) {
	switch {
	case p.Step.Action == plan.Done && !p.ChangesAccount():
		listing, err := b.config.Account.Blocks(ctx, time.Time{})
		o.Blocks = listing.Blocks
		return o, p, err
	case p.Step.Action == plan.Assign:
		var err error
		if o.Networks, err = b.readNetworks(ctx, o.Account, s.cached(s.after.Add(-recent))); err != nil {
			return o, p, err
		}
		o = o.Complete()
		if p = plan.Decide(o); p.Step.Action == plan.Assign || !p.ChangesAccount() {
			return o, p, nil
		}
	}
	o, err := b.observe(ctx, s.fresh(s.after))
	if err != nil {
		return o, p, err
	}
	return o, plan.Decide(o), nil
}
