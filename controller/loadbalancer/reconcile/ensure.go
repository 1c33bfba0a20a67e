package reconcile

import (
	"context"
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
	err = b.pacing(service, err)
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
	s := scopeOf(service)
	progress, err := b.check(ctx, s)
	switch {
	case err != nil:
		return nil, b.lookupFailed(ctx, service, service, err)
	case progress == pending:
		return nil, b.again(service)
	case progress == unknown:
		o, err := b.observe(ctx, s.cached(b.pace.freshness(service, start)))
		if err != nil {
			return nil, b.lookupFailed(ctx, service, service, err)
		}
		if p := plan.Decide(o); p.UpToDate(o) {
			return b.applyPlan(ctx, o, p)
		}
	}
	done, err := b.config.Account.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	// The informer's copy may be old, and money is at stake.
	live, err := b.current(ctx, service)
	if err != nil {
		return nil, b.lookupFailed(ctx, service, service, err)
	}
	if live == nil || !contract.WantsAddress(live) {
		return nil, b.retry(service, because(waitOutdated))
	}
	s = s.of(live).fresh(start)
	s.known = progress == ended
	o, err := b.observe(ctx, s)
	if err != nil {
		return nil, b.lookupFailed(ctx, service, service, err)
	}
	p := plan.Decide(o)
	if (p.ChangesAccount() || p.Step.Action == plan.Done && o.Purchase != nil) && !o.Fresh(start) {
		if o, p, err = b.refresh(ctx, s, o, p); err != nil {
			return nil, b.lookupFailed(ctx, service, service, err)
		}
	}
	return b.applyPlan(ctx, o, p)
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
