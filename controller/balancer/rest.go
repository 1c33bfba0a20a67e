package balancer

import (
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// A block whose assignment or unassignment ended in an error is tried again at once, then after a rest
// that doubles. Each try keeps the network BUSY: without rests one block that is stuck would keep all
// others from being assigned or released.
const (
	firstRest = time.Minute
	lastRest  = 16 * time.Minute
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

// rests tells whether the step is to be taken later, because its block is in error and was tried lately.
func (b *Balancer) rests(step ipblock.Step) bool {
	if !inError(step.Block.Status) || step.Action != ipblock.Unassign {
		return false
	}
	b.restsMu.Lock()
	defer b.restsMu.Unlock()
	return b.config.Now().Before(b.restsByID[step.Block.ID].until)
}

// tried remembers that a step was taken.
func (b *Balancer) tried(step ipblock.Step) {
	b.restsMu.Lock()
	defer b.restsMu.Unlock()
	switch {
	case step.Action == ipblock.Delete:
		delete(b.restsByID, step.Block.ID)
	case inError(step.Block.Status):
		b.restsByID[step.Block.ID] = b.restsByID[step.Block.ID].after(b.config.Now())
	}
}

// standing is where a block stands when the step is what comes next.
func (b *Balancer) standing(step ipblock.Step) ipblock.Reason {
	if b.rests(step) {
		return reasonResting
	}
	return step.Reason
}

func inError(status ipblock.Status) bool {
	return status == ipblock.ErrorAssigning || status == ipblock.ErrorUnassigning
}
