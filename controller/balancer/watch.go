package balancer

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// The longest and shortest time after which a Service is woken again though its block has not moved.
const (
	firstPause = 5 * time.Second
	lastPause  = time.Minute
)

// Run watches the blocks of Services that are being released, until ctx ends; only the leader may run it.
//
// Decision: the framework's service controller formats the error of a failed deletion with %v, so a
// RetryError in it is not honoured and the next attempt comes after 5 seconds to 5 minutes, ever later.
// Yet any update of a Service that carries the framework's finalizer and is going, or is no
// LoadBalancer any more, puts it in the queue at once (needsCleanup in its update handler). So the watch
// looks at the block and writes the Service's condition when the block has moved on; that update is the
// wake-up. Sleeping inside the deletion would hold one of few workers for minutes.
func (b *Balancer) Run(ctx context.Context) error {
	ticker := time.NewTicker(b.config.Interval)
	defer ticker.Stop()
	woken := map[types.UID]wake{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			b.wakeAll(ctx, woken)
		}
	}
}

// wake is the last wake-up of a Service.
type wake struct {
	reason ipblock.Reason
	at     time.Time
	pause  time.Duration
}

// next decides whether to wake a Service whose block stands at reason: at once when the block has moved
// on since the last time, else after a pause that doubles.
func (w wake) next(reason ipblock.Reason, now time.Time) (wake, bool) {
	if w.reason != reason {
		return wake{reason: reason, at: now, pause: firstPause}, true
	}
	if now.Sub(w.at) < w.pause {
		return w, false
	}
	return wake{reason: reason, at: now, pause: min(2*w.pause, lastPause)}, true
}

func (b *Balancer) wakeAll(ctx context.Context, woken map[types.UID]wake) {
	services, err := b.config.Services.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Services not listed")
		return
	}
	leaving := map[types.UID]bool{}
	for _, service := range services {
		if !beingReleased(service) {
			continue
		}
		leaving[service.UID] = true
		if err := b.wake(ctx, service, woken); err != nil {
			klog.FromContext(ctx).V(2).Info("Release not looked at", "service", klog.KObj(service), "err", err)
		}
	}
	for uid := range woken {
		if !leaving[uid] {
			delete(woken, uid)
		}
	}
}

// wake writes the condition of one Service if its block stands elsewhere than the condition says. It is a
// compare-and-swap: the release may be clearing up at this moment, and a Service that lives on as
// another type must not keep our condition.
func (b *Balancer) wake(ctx context.Context, service *corev1.Service, woken map[types.UID]wake) error {
	steps, err := b.releaseSteps(ctx, service)
	if err != nil {
		return err
	}
	live, err := b.current(ctx, service)
	if err != nil || live == nil || !beingReleased(live) {
		return err
	}
	step := steps[0]
	reason := b.standing(step)
	message := words(reason)
	if step.Action == ipblock.Refuse {
		message = step.Detail
	}
	condition, changed := nextCondition(live, reason, message, b.config.Now())
	if !changed || (step.Action == ipblock.Done && !bearsMarks(live)) {
		return nil
	}
	next, due := woken[live.UID].next(reason, b.config.Now())
	woken[live.UID] = next
	if !due {
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Waking the release of an IP block", "service", klog.KObj(live), "reason", reason)
	err = b.patchStatus(ctx, live, true, map[string]any{"conditions": []metav1.Condition{condition}})
	if err == nil && step.Action == ipblock.Refuse {
		b.config.Events.Event(live, corev1.EventTypeWarning, eventRefused, step.Detail)
	}
	return err
}
