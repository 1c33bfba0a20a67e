package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// refuse says what a person has to change.
func (b *Balancer) refuse(ctx context.Context, service *corev1.Service, step plan.Step) error {
	told := b.tellRefusal(ctx, service, service, step)
	b.pace.arrived(service.UID)
	return &plan.Refusal{Reason: step.Reason, Detail: step.Detail, Reported: told}
}

// refuseRelease says what a person has to do before the release can go on. live is nil when the Service is
// gone and can say nothing.
func (b *Balancer) refuseRelease(ctx context.Context, known, live *corev1.Service, step plan.Step) error {
	told := b.tellRefusal(ctx, known, live, step)
	klog.FromContext(ctx).V(2).Info("Release refused", "service", klog.KObj(known), "reason", step.Reason)
	return &plan.Refusal{Reason: step.Reason, Detail: step.Detail, Reported: told}
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
