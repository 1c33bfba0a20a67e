package reconcile

import (
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

const (
	// A block whose assignment or unassignment ended in an error is tried again at once, then after a rest
	// that doubles. Each try keeps the network BUSY: without rests one block that is stuck would keep all
	// others from being assigned or released.
	firstRest = time.Minute
	lastRest  = 16 * time.Minute
	// conflictRest is how long the same request is not repeated after the answer 409.
	conflictRest = 1200 * time.Millisecond
)

// rest is what is remembered of a block in error.
type rest struct {
	until  time.Time
	length time.Duration
}

// after returns the rest that follows one more try.
func (r rest) after(now time.Time) rest {
	length := min(max(2*r.length, firstRest), lastRest)
	return rest{until: now.Add(length), length: length}
}

// rests remembers which blocks are not to be changed for a while.
type rests struct {
	now func() time.Time

	mu        sync.Mutex
	errors    map[string]rest
	conflicts map[string]time.Time
}

func newRests(now func() time.Time) *rests {
	return &rests{now: now, errors: map[string]rest{}, conflicts: map[string]time.Time{}}
}

// inError reports whether the step must be taken later, because its block is in error and was tried lately.
func (r *rests) inError(step plan.Step) bool {
	if !inErrorState(step.Block.Status) || step.Action != plan.Unassign {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now().Before(r.errors[step.Block.ID].until)
}

// inConflict reports whether the API said a moment ago that the block or its network cannot be changed now.
func (r *rests) inConflict(step plan.Step) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now().Before(r.conflicts[step.Block.ID])
}

// tried remembers that a step was taken.
func (r *rests) tried(step plan.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conflicts, step.Block.ID)
	switch {
	case step.Action == plan.Delete:
		delete(r.errors, step.Block.ID)
	case inErrorState(step.Block.Status):
		r.errors[step.Block.ID] = r.errors[step.Block.ID].after(r.now())
	}
}

// refused remembers that the API answered 409.
func (r *rests) refused(step plan.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conflicts[step.Block.ID] = r.now().Add(conflictRest)
}

// standing is where a block stands when the step is what comes next.
func (r *rests) standing(step plan.Step) plan.Reason {
	switch {
	case r.inError(step):
		return reasonResting
	case (step.Action == plan.Assign || step.Action == plan.Unassign || step.Action == plan.Delete) &&
		r.inConflict(step):
		return plan.NetworkChanging
	default:
		return step.Reason
	}
}

func inErrorState(status plan.Status) bool {
	return status == plan.ErrorAssigning || status == plan.ErrorUnassigning
}
