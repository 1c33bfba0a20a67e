package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// How soon something that takes its time is looked at again: soon after a change, then ever more seldom.
// The API takes seconds to minutes to assign a block, yet whatever is quick is to be noticed at once.
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

// since returns since when the Service waits for the reason: now, when it does not.
func (p *pace) since(uid types.UID, reason plan.Reason, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, known := p.waits[uid]; known && w.reason == reason {
		return w.since
	}
	return now
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

// leavingSince returns since when the Service is known to leave; the zero Time when it is not.
func (p *pace) leavingSince(uid types.UID) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaving[uid]
}

// leaves records since when the Service leaves.
func (p *pace) leaves(uid types.UID, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving[uid] = since
}
