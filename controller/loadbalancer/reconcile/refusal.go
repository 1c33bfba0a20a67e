package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// Refusal is the error of a Service for which nothing more is done until a person has acted.
type Refusal struct {
	// Reason is the reason of the condition BlockAssigned.
	Reason plan.Reason
	// Detail is a sentence for the user: what is refused, and what to do.
	Detail string

	told bool
}

// Error is the sentence for the user.
func (r *Refusal) Error() string { return r.Detail }

// Told tells whether the Service says the same in its condition, with an event when that changed. Nobody has
// to tell users again.
func (r *Refusal) Told() bool { return r.told }

// refuse says what a person has to change.
func (b *Balancer) refuse(ctx context.Context, service *corev1.Service, step plan.Step) error {
	told := b.tellRefusal(ctx, service, service, step)
	b.pace.arrived(service.UID)
	return &Refusal{Reason: step.Reason, Detail: step.Detail, told: told}
}

// refuseRelease says what a person has to do before the release can go on. live is nil when the Service is
// gone and can say nothing.
func (b *Balancer) refuseRelease(ctx context.Context, known, live *corev1.Service, step plan.Step) error {
	told := b.tellRefusal(ctx, known, live, step)
	klog.FromContext(ctx).V(2).Info("Release refused", "service", klog.KObj(known), "reason", step.Reason)
	return &Refusal{Reason: step.Reason, Detail: step.Detail, told: told}
}

// tellRefusal writes a refusal on the Service and, when it did not say that before, sends an event. It
// returns whether users know.
func (b *Balancer) tellRefusal(ctx context.Context, known, live *corev1.Service, step plan.Step) (told bool) {
	said := live != nil && says(live, blockCondition(step.Reason, step.Detail))
	if b.note(ctx, live, step.Reason, step.Detail) && !said {
		b.config.Events.Event(known, corev1.EventTypeWarning, eventOf(step.Reason), step.Detail)
		return true
	}
	return said
}
