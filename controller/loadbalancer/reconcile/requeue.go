package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
)

// How soon something that takes its time is checked again: soon after a change, then less and less often.
// The API takes seconds to minutes to assign a block, yet fast changes must be noticed at once.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 3 * time.Second
	// pauseShare is the part of the time waited so far that the next look may add to it.
	pauseShare = 3
)

// pace remembers what Services wait for and since when.
type pace struct {
	mu    sync.Mutex
	waits map[types.UID]waiting
	// leaving is since when Services are known to be on their way out.
	leaving map[types.UID]time.Time
}

type waiting struct {
	reason plan.Reason
	since  time.Time
	pause  time.Duration
}

func newPace() *pace {
	return &pace{waits: map[types.UID]waiting{}, leaving: map[types.UID]time.Time{}}
}

// next returns how long to wait for the reason before looking again.
func (p *pace) next(uid types.UID, reason plan.Reason, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, known := p.waits[uid]
	if !known || w.reason != reason {
		w = waiting{reason: reason, since: now}
	}
	w.pause = min(max(now.Sub(w.since)/pauseShare, firstPause), lastPause)
	p.waits[uid] = w
	return w.pause
}

// history returns since when the Service waits for an address that rests, now when it does not, and since when it is
// known to leave, the zero Time when it is not.
func (p *pace) history(uid types.UID, now time.Time) (resting, leaving time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, known := p.waits[uid]; known && w.reason == plan.AddressResting {
		now = w.since
	}
	return now, p.leaving[uid]
}

// freshness returns how old the picture of the account may be for the Service: the zero time while it
// waits for nothing that the account shows, else half its pause, so that those who wait at the same time look together.
func (p *pace) freshness(uid types.UID, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, known := p.waits[uid]
	if !known || w.reason == plan.AddressResting {
		return time.Time{}
	}
	return now.Add(-w.pause / 2)
}

// arrived says that the Service waits no more.
func (p *pace) arrived(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waits, uid)
	delete(p.leaving, uid)
}

// leaves records since when the Service leaves.
func (p *pace) leaves(uid types.UID, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving[uid] = since
}

// wait says why nothing more can be done now and asks to be called again.
func (b *Balancer) wait(ctx context.Context, service *corev1.Service, reason plan.Reason) error {
	b.note(ctx, service, reason, words(reason))
	return b.retry(service, reason)
}

// waitUntil is wait for a step whose end may be known: then the condition names the time, and nothing is asked before.
func (b *Balancer) waitUntil(ctx context.Context, service *corev1.Service, step plan.Step) error {
	err := b.retry(service, step.Reason)
	left := step.Until.Sub(b.config.Now())
	if left <= 0 { // not known, or it ended a moment ago
		b.note(ctx, service, step.Reason, words(step.Reason))
		return err
	}
	b.note(ctx, service, step.Reason, words(step.Reason)+", until "+step.Until.UTC().Format(time.RFC3339)+
		" at the latest")
	return api.NewRetryError(words(step.Reason), left)
}

// retry asks to be called again, soon after a change and then ever more seldom.
func (b *Balancer) retry(service *corev1.Service, reason plan.Reason) error {
	pause := b.pace.next(service.UID, reason, b.config.Now())
	if reason == plan.NetworkChanging {
		pause = max(pause, conflictBackoff)
	}
	return api.NewRetryError(words(reason), pause)
}

// pacing turns an error that goes away with time into a request to call again.
func (b *Balancer) pacing(service *corev1.Service, err error) error {
	var again *api.RetryError
	var pause *purchase.Pause
	var failure *pnap.Error
	switch {
	case err == nil:
		b.pace.arrived(service.UID)
		return nil
	case errors.As(err, &again):
		return again
	case errors.As(err, &pause):
		return api.NewRetryError(words(pause.Reason), pause.After)
	case pnap.IsDryRun(err):
		return err
	case errors.As(err, &failure) && failure.RetryAfter > 0:
		return api.NewRetryError(words(purchase.APIPaused), failure.RetryAfter)
	case errors.Is(err, errOutdated), errors.Is(err, purchase.ErrOutdated):
		return api.NewRetryError(words(waitOutdated), time.Second)
	case errors.Is(err, allocation.ErrConflict):
		return api.NewRetryError(words(reasonLedger), firstPause)
	default:
		return err
	}
}

const (
	// A block whose assignment or unassignment ended in an error is tried again at once, then after a pause
	// that doubles. Each try keeps the network BUSY: without pauses one block that is stuck would keep all
	// others from being assigned or released.
	firstBackoff = time.Minute
	lastBackoff  = 16 * time.Minute
	// conflictBackoff is how long the same request is not repeated after the answer 409.
	conflictBackoff = 1200 * time.Millisecond
)

// backoff is what is remembered of a block in error.
type backoff struct {
	until  time.Time
	length time.Duration
}

// after returns the back-off that follows one more try.
func (b backoff) after(now time.Time) backoff {
	length := min(max(2*b.length, firstBackoff), lastBackoff)
	return backoff{until: now.Add(length), length: length}
}

// backoffs remembers which blocks are not to be changed for a while.
type backoffs struct {
	now func() time.Time

	mu        sync.Mutex
	errors    map[string]backoff
	conflicts map[string]time.Time
}

func newBackoffs(now func() time.Time) *backoffs {
	return &backoffs{now: now, errors: map[string]backoff{}, conflicts: map[string]time.Time{}}
}

// inError reports whether the step must be taken later, because its block is in error and was tried lately.
func (b *backoffs) inError(step plan.Step) bool {
	if !step.Block.Status.InError() || step.Action != plan.Unassign {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now().Before(b.errors[step.Block.ID].until)
}

// inConflict reports whether the API said a moment ago that the block or its network cannot be changed now.
func (b *backoffs) inConflict(step plan.Step) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now().Before(b.conflicts[step.Block.ID])
}

// tried remembers that a step was taken.
func (b *backoffs) tried(step plan.Step) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conflicts, step.Block.ID)
	switch {
	case step.Action == plan.Delete:
		delete(b.errors, step.Block.ID)
	case step.Block.Status.InError():
		b.errors[step.Block.ID] = b.errors[step.Block.ID].after(b.now())
	}
}

// refused remembers that the API answered 409.
func (b *backoffs) refused(step plan.Step) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conflicts[step.Block.ID] = b.now().Add(conflictBackoff)
}

// reasonFor is where a block stands when the step is what comes next.
func (b *backoffs) reasonFor(step plan.Step) plan.Reason {
	switch {
	case b.inError(step):
		return reasonResting
	case (step.Action == plan.Assign || step.Action == plan.Unassign || step.Action == plan.Delete) &&
		b.inConflict(step):
		return plan.NetworkChanging
	default:
		return step.Reason
	}
}
