package reconcile

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Release takes the Service one step nearer to having nothing: at most one change of the account. It
// returns nil once nothing of it is left, in the account, in the ledgers and on the Service, so that the
// finalizer may go. Its errors are those of Ensure.
//
// It reads tags, ledgers and the recorded purchase, and of what the user wrote only whether the block is
// retained: nothing that can be written into a Service keeps it from being deleted.
func (b *Balancer) Release(ctx context.Context, service *corev1.Service) error {
	err := b.release(ctx, service)
	klog.FromContext(ctx).V(5).Info("Released the address of a Service", "service", klog.KObj(service), "result", err)
	return b.pacing(service, err)
}

func (b *Balancer) release(ctx context.Context, service *corev1.Service) error {
	live, err := b.byName(ctx, service)
	if err != nil {
		return err
	}
	known := service
	switch {
	case live == nil:
	case live.UID == service.UID && contract.WantsAddress(live):
		return b.retry(service, because(waitOutdated))
	case live.UID == service.UID:
		if live, err = b.withdraw(ctx, live); err != nil {
			return err
		}
		known = live
	case contract.WantsAddress(live):
		// The Service was deleted and created again; the new one takes over what it had, address and all.
		return nil
	default:
		live = nil
	}
	done, err := b.config.Account.Lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	return b.giveBack(ctx, known, live)
}

// withdraw takes our address off a Service that lives on as another type. A Service that is going keeps
// it: kube-vip stops announcing only when the object is gone, so there is nothing to wait for.
func (b *Balancer) withdraw(ctx context.Context, live *corev1.Service) (*corev1.Service, error) {
	if live.DeletionTimestamp != nil {
		return live, nil
	}
	nodes, err := b.config.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	return b.patchService(ctx, live, b.withdrawal(live, nodes))
}

// giveBack observes, decides and applies. live is the Service to write on; nil when it is gone.
func (b *Balancer) giveBack(ctx context.Context, known, live *corev1.Service) error {
	start := b.config.Now()
	s := scopeOf(known)
	s.releasing = true
	progress, err := b.checkRelease(ctx, s)
	if err == nil && progress == pending {
		return b.again(known)
	}
	var o plan.Observed
	if err == nil {
		s = s.fresh(start)
		s.known = progress == ended
		o, err = b.observe(ctx, s)
	}
	if err != nil {
		return b.lookupFailed(ctx, known, live, err)
	}
	p := b.planRelease(o, live)
	if !p.Waits() && !p.OneStep() && !o.Fresh(start) {
		if o, err = b.observe(ctx, s.fresh(start)); err != nil {
			return b.lookupFailed(ctx, known, live, err)
		}
		p = b.planRelease(o, live)
	}
	acted, err := b.applyRelease(ctx, o, p)
	if err != nil {
		b.noteFailure(ctx, live, reasonReleaseFailed, err)
		return err
	}
	if acted == plan.DeletionUnverified {
		// Deleting is done at once: look whether that was the last of it.
		s = s.fresh(start)
		if p.OneStep() { // and the list has shown all others: only the index of the tag is needed
			s.known = true
			s.deleted = p.Steps[0].Block.ID
		}
		if o, err = b.observe(ctx, s); err != nil {
			return b.lookupFailed(ctx, known, live, err)
		}
		p = b.planRelease(o, live)
		acted = ""
		if err := b.drop(ctx, p.Drop...); err != nil {
			return err
		}
	}
	return b.conclude(ctx, known, live, p, acted)
}

// planRelease decides what is left to do and records what the decision notes of the history.
func (b *Balancer) planRelease(o plan.Observed, live *corev1.Service) plan.ReleasePlan {
	p := plan.PlanRelease(o, live)
	if !p.LeavingSince.IsZero() {
		b.pace.leaves(o.Service.UID, p.LeavingSince)
	}
	return p
}

// applyRelease does one of the things that are left to do. It returns where that leaves the Service; empty
// when there was nothing that could be done.
func (b *Balancer) applyRelease(ctx context.Context, o plan.Observed, p plan.ReleasePlan) (plan.Reason, error) {
	switch {
	case p.Answering:
		return reasonAnnounced, nil
	case len(p.Save) > 0:
		return reasonLedger, b.ledgers.save(ctx, p.Save...)
	case p.Tags != nil:
		if err := b.retag(ctx, o.Service, p.Retag, p.Tags); err != nil && !pnap.IsTagFresh(err) {
			return "", err
		}
		return reasonRetagging, nil
	}
	if err := b.drop(ctx, p.Drop...); err != nil {
		return "", err
	}
	reason, err := b.takeFirst(ctx, o.Service, p.Steps)
	if reason == plan.BlockUnassigning && p.Forgone.Action == plan.Refuse {
		b.config.Events.Event(o.Service, corev1.EventTypeWarning, eventRefused, p.Forgone.Detail)
	}
	return reason, err
}

// conclude says what the release waits for, or clears up after it.
func (b *Balancer) conclude(ctx context.Context, known, live *corev1.Service, p plan.ReleasePlan,
	acted plan.Reason) error {
	step := p.Next()
	if acted == "" {
		switch step.Action {
		case plan.Done:
			return b.clear(ctx, live)
		case plan.Refuse:
			klog.FromContext(ctx).V(2).Info("Release refused", "service", klog.KObj(known), "reason", step.Reason)
			return b.recordRefusal(ctx, known, live, step)
		default:
			acted = b.backoffs.reasonFor(step)
		}
	}
	err := b.retry(known, under(step, acted))
	b.noteWait(ctx, live, under(step, acted))
	return err
}
