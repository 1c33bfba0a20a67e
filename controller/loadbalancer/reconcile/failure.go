package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// lookupFailed says on a Service that the account could not be read, and returns the error. live is the Service to
// write on; nil when it is gone.
func (b *Balancer) lookupFailed(ctx context.Context, known, live *corev1.Service, err error) error {
	b.noteFailure(ctx, live, reasonLookupFailed, err)
	var again *api.RetryError
	if errors.As(err, &again) {
		return err
	}
	return fmt.Errorf("look for the IP block of Service %s/%s: %w", known.Namespace, known.Name, err)
}

// noteFailure says on a Service what failed, in the words of the API, and what to do. reason is the reason of the
// condition, unless the API requires a pause. What only asks to be called again is no failure.
func (b *Balancer) noteFailure(ctx context.Context, service *corev1.Service, reason plan.Reason, err error) {
	var again *api.RetryError
	switch {
	case service == nil, ctx.Err() != nil, errors.As(err, &again), pnap.IsDryRun(err), errors.Is(err, errOutdated),
		errors.Is(err, purchase.ErrOutdated), errors.Is(err, allocation.ErrConflict):
	case pnap.IsPaused(err):
		b.notePause(ctx, service, err)
	case pnap.IsRepeated(err) && hasReason(service, reason): // the condition has the words of the request that failed
	default:
		b.note(ctx, service, reason, words(reason)+": "+pnap.Explain(err))
	}
}

// notePause says on a Service that the API requires a pause and, where known, until when.
func (b *Balancer) notePause(ctx context.Context, service *corev1.Service, err error) {
	message := words(purchase.APIPaused)
	var failure *pnap.Error
	if errors.As(err, &failure) && failure.RetryAfter > 0 {
		until := b.config.Now().Add(failure.RetryAfter).Round(time.Second).UTC()
		message += ", until " + until.Format(time.RFC3339)
	}
	b.note(ctx, service, purchase.APIPaused, message+": "+pnap.Explain(err))
}

// hasReason reports whether the Service says that its block waits for that reason.
func hasReason(service *corev1.Service, reason plan.Reason) bool {
	have := meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionBlockAssigned)
	return have != nil && have.Reason == string(reason)
}
