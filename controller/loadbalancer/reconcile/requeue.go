package reconcile

import (
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
)

// waitFor asks to be called again, because of something that has nothing to do with a block.
func (b *Balancer) waitFor(service *corev1.Service, reason ipblock.Reason) error {
	return b.retry(service, ipblock.Step{Action: ipblock.Wait, Reason: reason})
}

// waitOn says that the Service waits for what a step began, or for what keeps it from being taken, and asks to be
// called again.
func (b *Balancer) waitOn(d *Draft, step ipblock.Step, reason ipblock.Reason) error {
	step = ipblock.Step{Action: ipblock.Wait, Reason: reason, Block: step.Block, Network: step.Network}
	err := b.retry(d.Service, step)
	b.setWaiting(d, step)
	return err
}

// waitUntil is waitOn for a step whose end may be known: then the condition names the time, and nothing is asked
// before.
func (b *Balancer) waitUntil(d *Draft, step ipblock.Step) error {
	if step.Detail != "" {
		err := b.retry(d.Service, step)
		b.setBlockCondition(d, step.Reason, step.Detail)
		return err
	}
	left := step.Until.Sub(b.config.Now())
	if left <= 0 { // not known, or it ended a moment ago
		return b.waitOn(d, step, step.Reason)
	}
	_ = b.waitFor(d.Service, step.Reason) // since when it waits counts
	b.setBlockCondition(d, step.Reason, words(step.Reason)+", until "+step.Until.UTC().Format(time.RFC3339)+
		" at the latest")
	return api.NewRetryError(words(step.Reason), left)
}

// pacing turns an error that goes away with time into a request to call again.
func (b *Balancer) pacing(service *corev1.Service, err error) error {
	var again *api.RetryError
	var pause *purchase.Pause
	var failure *pnap.Error
	switch {
	case err == nil:
		b.pace.done(service.UID)
		return nil
	case errors.As(err, &again):
		return again
	case errors.As(err, &pause):
		return api.NewRetryError(words(pause.Reason), pause.After)
	case pnap.IsDryRun(err):
		return err
	case errors.As(err, &failure) && failure.RetryAfter > 0:
		return api.NewRetryError(words(purchase.APIPaused), failure.RetryAfter)
	case errors.Is(err, ErrOutdated):
		return api.NewRetryError(words(waitOutdated), time.Second)
	case errors.Is(err, allocation.ErrConflict):
		return api.NewRetryError(words(waitLedger), leastPause)
	default:
		return err
	}
}

// conflictBackoff is how long the same request is not repeated after the answer 409.
const conflictBackoff = 1200 * time.Millisecond

// backoffs remembers which blocks are not to be changed for a while.
type backoffs struct {
	now func() time.Time

	mu sync.Mutex
	// errors are for blocks whose assignment or unassignment ended in an error: they are tried again once at once.
	errors    map[string]account.Backoff
	conflicts map[string]time.Time
}

func newBackoffs(now func() time.Time) *backoffs {
	return &backoffs{now: now, errors: map[string]account.Backoff{}, conflicts: map[string]time.Time{}}
}

// inError reports whether the step must be taken later, because its block is in error and was tried lately.
func (b *backoffs) inError(step ipblock.Step) bool {
	if !step.Block.Status.InError() || step.Action != ipblock.Unassign {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now().Before(b.errors[step.Block.ID].Until)
}

// inConflict reports whether the API said a moment ago that the block or its network cannot be changed now.
func (b *backoffs) inConflict(step ipblock.Step) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now().Before(b.conflicts[step.Block.ID])
}

// tried remembers that a step was taken.
func (b *backoffs) tried(step ipblock.Step) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conflicts, step.Block.ID)
	switch {
	case step.Action == ipblock.Delete:
		delete(b.errors, step.Block.ID)
	case step.Block.Status.InError():
		b.errors[step.Block.ID] = b.errors[step.Block.ID].After(b.now())
	}
}

// refused remembers that the API answered 409, or refused a fresh tag.
func (b *backoffs) refused(step ipblock.Step) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conflicts[step.Block.ID] = b.now().Add(conflictBackoff)
}

// reasonFor is where a block stands when the step is what comes next.
func (b *backoffs) reasonFor(step ipblock.Step) ipblock.Reason {
	switch {
	case b.inError(step):
		return reasonBackingOff
	case (step.Action == ipblock.Assign || step.Action == ipblock.Unassign || step.Action == ipblock.Delete) &&
		b.inConflict(step):
		return ipblock.NetworkChanging
	default:
		return step.Reason
	}
}
