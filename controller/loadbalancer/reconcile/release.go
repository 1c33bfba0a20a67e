package reconcile

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
)

// Release takes the Service one step nearer to having nothing: at most one change of the account. It
// returns nil once nothing of it is left, in the account, in the ledgers and, once the caller has saved the draft, on
// the Service, so that the finalizer may go. Its errors are those of Ensure.
//
// It reads tags, ledgers and the recorded purchase, and of what the user wrote only whether the block is
// retained: nothing that can be written into a Service keeps it from being deleted.
func (b *Balancer) Release(ctx context.Context, d *Draft) error {
	r := &reconciliation{Draft: d}
	err := b.run(ctx, r, b.released, b.limitLooks, b.withdraw, b.lock, b.checkRelease, b.decideRelease, b.applyRelease,
		b.verifyDeletion, b.conclude)
	klog.FromContext(ctx).V(5).Info("Released the address of a Service", "service", klog.KObj(d.Service), "result", err)
	b.show(ctx, r)
	return b.end(r, err)
}

// released reads the Service again, and checks that it is to be released.
func (b *Balancer) released(ctx context.Context, r *reconciliation) (bool, error) {
	if err := r.Read(ctx); err != nil {
		return true, err
	}
	if !r.Gone && plan.WantsAddress(r.Service) {
		return true, b.waitFor(r.Service, waitOutdated)
	}
	// The Service was deleted and created again: the new one takes over what it had, address and all.
	return r.Successor != nil && plan.WantsAddress(r.Successor), nil
}

// withdraw takes our address off a Service that lives on as another type. A Service that is going keeps
// it: kube-vip stops announcing only when the object is gone, so there is nothing to wait for.
func (b *Balancer) withdraw(ctx context.Context, r *reconciliation) (bool, error) {
	if r.Gone || r.Service.DeletionTimestamp != nil {
		return false, nil
	}
	nodes, err := b.config.Nodes.List(labels.Everything())
	if err != nil {
		return true, fmt.Errorf("list Nodes: %w", err)
	}
	b.withdrawal(r.Service, nodes).apply(r.Draft)
	return false, r.Save(ctx) // before anything is given to another
}

// checkRelease is checkWait for a Service that is leaving. Another one may want the addresses of a shared block.
func (b *Balancer) checkRelease(ctx context.Context, r *reconciliation) (bool, error) {
	r.start = b.config.Now()
	r.scope = scopeOf(r.Service)
	r.scope.Releasing = true
	if w, _ := b.pace.waitsFor(r.Service.UID); !w.dedicated {
		return false, nil
	}
	return b.checkWait(ctx, r)
}

// decideRelease decides what is left to do.
func (b *Balancer) decideRelease(ctx context.Context, r *reconciliation) (bool, error) {
	since, err := b.commonSince(r.Service, r.start)
	if err != nil {
		return true, err
	}
	s := r.scope.fresh(since)
	s.known = r.progress == ended
	if err := b.planRelease(ctx, r, s); err != nil {
		return true, err
	}
	p := r.release
	common := since.Before(r.start)
	if common && p.NothingLeft() || !common && (p.Waits() || p.OneStep()) || isFresh(r.observed, r.start) {
		return false, nil
	}
	return false, b.planRelease(ctx, r, r.scope.fresh(r.start))
}

// planRelease observes and decides, and records what the decision notes of the history.
func (b *Balancer) planRelease(ctx context.Context, r *reconciliation, s scope) error {
	o, err := b.observe(ctx, s)
	if err != nil {
		return b.lookupFailed(ctx, r.Draft, err)
	}
	live := r.Service
	if r.Gone {
		live = nil
	}
	r.observed = o
	r.release = plan.PlanRelease(o, live)
	if !r.release.LeavingSince.IsZero() {
		b.pace.markReleasing(r.Service.UID, r.release.LeavingSince)
	}
	return nil
}

// applyRelease does one of the things that are left to do.
func (b *Balancer) applyRelease(ctx context.Context, r *reconciliation) (bool, error) {
	acted, err := b.releaseStep(ctx, r)
	if err != nil {
		b.setFailure(ctx, r.Draft, reasonReleaseFailed, err)
	}
	r.acted = acted
	return false, err
}

// verifyDeletion looks, when a block was deleted, whether that was the last of it: deleting is done at once.
func (b *Balancer) verifyDeletion(ctx context.Context, r *reconciliation) (bool, error) {
	if r.acted != ipblock.DeletionUnverified {
		return false, nil
	}
	s := r.scope.fresh(r.start)
	if r.release.OneStep() { // and the list has shown all others: only the index of the tag is needed
		s.known = true
		s.deleted = r.release.Steps[0].Block.ID
	}
	if err := b.planRelease(ctx, r, s); err != nil {
		return true, err
	}
	r.acted = ""
	return false, b.drop(ctx, r.release.Drop...)
}

// releaseStep returns where the Service is left; empty when there was nothing that could be done.
func (b *Balancer) releaseStep(ctx context.Context, r *reconciliation) (ipblock.Reason, error) {
	o := r.observed
	p := r.release
	switch {
	case p.Answering:
		return reasonAnnounced, nil
	case len(p.Save) > 0:
		return waitLedger, b.ledgers.save(ctx, p.Save...)
	case p.Tags != nil:
		if err := b.retag(ctx, o.Service, p.Retag, p.Tags); err != nil {
			return "", err
		}
		return reasonRetagging, nil
	}
	if err := b.drop(ctx, p.Drop...); err != nil {
		return "", err
	}
	reason, err := b.takeFirst(ctx, o.Service, p.Steps)
	if reason == ipblock.BlockUnassigning && p.Forgone.Action == ipblock.Refuse {
		b.config.Events.Event(o.Service, corev1.EventTypeWarning, eventRefused, p.Forgone.Detail)
	}
	return reason, err
}

// conclude says what the release waits for, or clears up after it.
func (b *Balancer) conclude(ctx context.Context, r *reconciliation) (bool, error) {
	step := r.release.Next()
	switch r.acted {
	case "":
	case waitLedger:
		return true, b.waitFor(r.Service, waitLedger)
	default:
		return true, b.waitOn(r.Draft, step, r.acted)
	}
	switch step.Action {
	case ipblock.Done:
		if err := b.forgetOwn(ctx, r.observed); err != nil {
			return true, err
		}
		b.clear(ctx, r.Draft)
		return true, nil
	case ipblock.Refuse:
		klog.FromContext(ctx).V(2).Info("Release refused", "service", klog.KObj(r.Service), "reason", step.Reason)
		return true, b.recordRefusal(r.Draft, step)
	default:
		return true, b.waitOn(r.Draft, step, b.backoffs.reasonFor(step))
	}
}

// forgetOwn removes the object of the Service's own block, which is gone. That of a retained block stays with it.
func (b *Balancer) forgetOwn(ctx context.Context, o plan.Observed) error {
	if o.Purchase == nil || len(o.Own) > 0 {
		return nil
	}
	defer b.ledgers.forget()
	return b.ownRecord(o).Forget(ctx)
}
