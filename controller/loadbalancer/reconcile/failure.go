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
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// lookupFailed says on a Service that the account could not be read, and returns the error.
func (b *Balancer) lookupFailed(ctx context.Context, d *Draft, err error) error {
	b.setFailure(ctx, d, reasonLookupFailed, err)
	return lookupError(d.Service, err)
}

// lookupError names the Service of whose blocks the account could not be read.
func lookupError(service *corev1.Service, err error) error {
	var again *api.RetryError
	if errors.As(err, &again) {
		return err
	}
	return fmt.Errorf("look for the IP block of Service %s/%s: %w", service.Namespace, service.Name, err)
}

// setFailure says on a Service what failed, in the words of the API, and what to do. reason is the reason of the
// condition, unless the API requires a pause. What only asks to be called again is no failure.
func (b *Balancer) setFailure(ctx context.Context, d *Draft, reason ipblock.Reason, err error) {
	var again *api.RetryError
	switch {
	case ctx.Err() != nil, errors.As(err, &again), pnap.IsDryRun(err), errors.Is(err, ErrOutdated),
		errors.Is(err, allocation.ErrConflict):
	case pnap.IsPaused(err):
		b.setPause(d, err)
	case pnap.IsRepeated(err) && hasReason(d.Service, reason): // the condition has the words of the request that failed
	default:
		b.setBlockCondition(d, reason, words(reason)+": "+pnap.Explain(err))
	}
}

// setPause says on a Service that the API requires a pause and, where known, until when.
func (b *Balancer) setPause(d *Draft, err error) {
	message := words(purchase.APIPaused)
	var failure *pnap.Error
	if errors.As(err, &failure) && failure.RetryAfter > 0 {
		until := b.config.Now().Add(failure.RetryAfter).Round(time.Second).UTC()
		message += ", until " + until.Format(time.RFC3339)
	}
	b.setBlockCondition(d, purchase.APIPaused, message+": "+pnap.Explain(err))
}

// hasReason reports whether the Service says that its block waits for that reason.
func hasReason(service *corev1.Service, reason ipblock.Reason) bool {
	have := meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionBlockAssigned)
	return have != nil && have.Reason == string(reason)
}
