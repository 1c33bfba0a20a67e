package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
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
	return status, b.pacing(service, err)
}

// ensure first decides from the cache, which costs nothing. Only when that is not enough it reads the account live,
// with the lock for changes.
func (b *Balancer) ensure(ctx context.Context, service *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	if !contract.WantsAddress(service) {
		return nil, b.retry(service, waitOutdated)
	}
	start := b.config.Now()
	o, err := b.fromCache(ctx, service)
	if err != nil {
		return nil, b.lookupFailed(ctx, service, service, err)
	}
	if p := plan.Decide(o); p.UpToDate(o) {
		return b.applyPlan(ctx, o, p)
	}
	done, err := b.config.Account.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if o, err = b.observeLive(ctx, service); err != nil {
		return nil, b.lookupFailed(ctx, service, service, err)
	}
	p := plan.Decide(o)
	if p.ChangesAccount() && !o.Fresh(start) {
		if o, err = b.observe(ctx, o, depth{after: start, live: true}); err != nil {
			return nil, b.lookupFailed(ctx, service, service, err)
		}
		p = plan.Decide(o)
	}
	return b.applyPlan(ctx, o, p)
}
