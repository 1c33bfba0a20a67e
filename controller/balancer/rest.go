package balancer

import (
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"

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

// refusal is a purchase that the API refused lately.
type refusal struct {
	rest
	// location in which it was tried; a purchase elsewhere may succeed.
	location string
	// text is the reason, constant as long as it lasts.
	text string
}

// restPurchase makes the next purchase for the Service wait: for pause, or where that is 0 for a time that
// doubles with each refusal.
func (b *Balancer) restPurchase(e ensuring, text string, pause time.Duration) {
	b.restsMu.Lock()
	defer b.restsMu.Unlock()
	now := b.config.Now()
	next := rest{until: now.Add(pause)}
	if last := b.refusals[e.service.UID]; pause == 0 {
		if last.location != e.wish.Location {
			last = refusal{}
		}
		next = last.after(now)
	}
	b.refusals[e.service.UID] = refusal{rest: next, location: e.wish.Location, text: text}
	maps.DeleteFunc(b.refusals, func(_ types.UID, r refusal) bool { return now.Sub(r.until) > lastRest })
}

// purchaseRests tells whether the purchase was refused lately. What time heals asks to be called again when the rest is
// over; what needs a person is the same error as before, and the framework calls again ever more seldom.
func (b *Balancer) purchaseRests(e ensuring) (resting bool, err error) {
	b.restsMu.Lock()
	defer b.restsMu.Unlock()
	last, known := b.refusals[e.service.UID]
	left := last.until.Sub(b.config.Now())
	if !known || last.location != e.wish.Location || left <= 0 {
		return false, nil
	}
	if last.length > 0 {
		return true, errors.New(last.text)
	}
	return true, api.NewRetryError(last.text, left)
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
