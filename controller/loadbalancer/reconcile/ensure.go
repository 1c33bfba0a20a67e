package reconcile

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
)

// reconciliation is one sync of a Service: what it changes, and what its phases have found.
type reconciliation struct {
	*Draft
	scope scope
	// start is when the sync began. What changes the account is decided on what was read since.
	start time.Time
	// progress is what became of what the Service waits for.
	progress progress
	observed plan.Observed
	// plan is what Ensure decided, and release what Release did. decided is true once there is one.
	plan    plan.ServicePlan
	release plan.ReleasePlan
	decided bool
	// acted is where a step of a release leaves the block; empty while none was taken.
	acted ipblock.Reason
	// status is what the status of the load balancer must be; nil for no change.
	status *corev1.LoadBalancerStatus
	// held is true when the sync ended before its live look.
	held   bool
	unlock func()
}

// phase is a part of a sync. After one that is done, the sync is at its end.
type phase func(ctx context.Context, r *reconciliation) (done bool, err error)

// run runs phases one after the other, with the lock of the account from the one that takes it on.
func (b *Balancer) run(ctx context.Context, r *reconciliation, phases ...phase) error {
	defer func() {
		if r.unlock != nil {
			r.unlock()
		}
	}()
	for _, next := range phases {
		if done, err := next(ctx, r); done || err != nil {
			return err
		}
	}
	return nil
}

// Ensure takes the Service one step nearer to a published address: at most one change of the account. It changes the
// draft, which the caller saves, with the status, also beside an error: the address works, but other work remains or
// is not possible. The status is there only once the block is assigned and a node can carry its traffic.
//
// Errors: *api.RetryError while something takes its time, to be called again after its RetryAfter; one
// for which pnap.IsDryRun holds, unchanged; *plan.Refusal when a person has to act; anything else is a failure of
// the API or the cluster, to be tried again after a pause.
func (b *Balancer) Ensure(ctx context.Context, d *Draft) (*corev1.LoadBalancerStatus, error) {
	version := d.Service.ResourceVersion
	r := &reconciliation{Draft: d, start: b.config.Now()}
	err := b.run(ctx, r, b.wanted, b.checkWait, b.decideFromCache, b.limitLooks, b.lock, b.readLive, b.decideLive,
		b.prepare, b.applyStep)
	klog.FromContext(ctx).V(5).Info("Ensured the address of a Service", "service", klog.KObj(d.Service), "result", err)
	b.show(ctx, r)
	err = b.end(r, err)
	b.pace.recordVersion(d.Service.UID, version)
	return r.status, err
}

// end ends a sync: an error that goes away with time becomes a request to call again.
func (b *Balancer) end(r *reconciliation, err error) error {
	if r.held {
		return err
	}
	result := b.pacing(r.Service, err)
	var due time.Time
	var again *api.RetryError
	if errors.As(result, &again) {
		due = b.config.Now().Add(again.RetryAfter())
	}
	served := func() { b.looks.served(r.Service, b.wantsOf(r.Service), due) }
	served()
	r.AfterSave(served)
	return result
}

// wanted checks that the Service is to have an address at all.
func (b *Balancer) wanted(_ context.Context, r *reconciliation) (bool, error) {
	r.scope = scopeOf(r.Service)
	if r.Gone || !b.wantsOf(r.Service).address {
		return true, b.waitFor(r.Service, waitOutdated)
	}
	return false, nil
}

// checkWait reads only what the Service waits for.
func (b *Balancer) checkWait(ctx context.Context, r *reconciliation) (bool, error) {
	var err error
	if r.progress, err = b.check(ctx, r.scope); err != nil {
		return true, b.lookupFailed(ctx, r.Draft, err)
	}
	if r.progress == pending {
		return true, b.keepWaiting(r.Service)
	}
	return false, nil
}

// decideFromCache decides on what is known, which costs nothing. A decision that changes the account does not count.
func (b *Balancer) decideFromCache(ctx context.Context, r *reconciliation) (bool, error) {
	if r.progress == ended {
		return false, nil
	}
	after := b.pace.freshness(r.Service, r.start)
	if b.looks.edited(r.Service, b.wantsOf(r.Service), r.start) {
		after = time.Time{} // nothing is read for an edit before its look, which has a budget
	}
	o, err := b.observe(ctx, r.scope.cached(after))
	if err != nil {
		return true, b.lookupFailed(ctx, r.Draft, err)
	}
	r.observed = o
	r.plan = plan.Decide(o)
	r.decided = r.plan.UpToDate
	return false, nil
}

// lock takes the lock for changes of the account, unless nothing is left to decide.
func (b *Balancer) lock(ctx context.Context, r *reconciliation) (bool, error) {
	if r.decided {
		return false, nil
	}
	var err error
	r.unlock, err = b.config.Account.Lock(ctx)
	return err != nil, err
}

// readLive reads the Service again: the informer's copy may be old, and money is at stake.
func (b *Balancer) readLive(ctx context.Context, r *reconciliation) (bool, error) {
	if r.decided {
		return false, nil
	}
	if err := r.Read(ctx); err != nil {
		return true, b.lookupFailed(ctx, r.Draft, err)
	}
	if r.Gone || !b.wantsOf(r.Service).address {
		return true, b.waitFor(r.Service, waitOutdated)
	}
	return false, nil
}

// decideLive decides on what the account shows now.
func (b *Balancer) decideLive(ctx context.Context, r *reconciliation) (bool, error) {
	if r.decided {
		return false, nil
	}
	r.scope = r.scope.fresh(r.start)
	r.scope.known = r.progress == ended
	o, err := b.observe(ctx, r.scope)
	if err != nil {
		return true, b.lookupFailed(ctx, r.Draft, err)
	}
	p := plan.Decide(o)
	if p.ChangesAccount() && !isFresh(o, r.start) {
		if o, p, err = b.refresh(ctx, r.scope, o, p); err != nil {
			return true, b.lookupFailed(ctx, r.Draft, err)
		}
	}
	r.observed = o
	r.plan = p
	return false, nil
}

// isFresh reports whether the account was read live since a time.
func isFresh(o plan.Observed, since time.Time) bool { return o.Live && !o.AskedAt.Before(since) }

// refresh reads what a decision may not take from an older reading, and decides again. To assign a block that was just
// read by its ID, that is the network.
func (b *Balancer) refresh(ctx context.Context, s scope, o plan.Observed, p plan.ServicePlan) (plan.Observed,
	plan.ServicePlan, error) {
	if p.Step.Action == ipblock.Assign {
		var err error
		if o.Networks, err = b.readNetworks(ctx, o.Account, s.cached(s.after.Add(-recent))); err != nil {
			return o, p, err
		}
		o = o.Complete()
		if p = plan.Decide(o); p.Step.Action == ipblock.Assign || !p.ChangesAccount() {
			return o, p, nil
		}
	}
	o, err := b.observe(ctx, s.fresh(s.after))
	if err != nil {
		return o, p, err
	}
	return o, plan.Decide(o), nil
}
