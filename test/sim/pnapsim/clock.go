package pnapsim

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Clock is the model time of a simulation.
type Clock interface {
	// Now is the model time.
	Now() time.Time
	// Wait returns when the model time has reached until, or with the error of ctx when that ends first.
	Wait(ctx context.Context, until time.Time) error
	// Advance makes the model time leap forward; what was due in between happens, in its order.
	Advance(d time.Duration)
	// Scale is how many seconds of model time pass in a second of the clients' time. Token lifetimes and
	// Retry-After are given in the clients' seconds, because clients keep them by their own clocks.
	Scale() float64
	// Shown is a model time as the clients' clocks showed it: the API returns times so, or with a fast model
	// clock its objects would be made in the clients' future.
	Shown(t time.Time) time.Time
}

// ManualClock stands still except when it is advanced. Its zero value starts at the Unix epoch.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Time
	leaped chan struct{}
}

// NewManualClock returns a clock that shows start.
func NewManualClock(start time.Time) *ManualClock { return &ManualClock{now: start} }

// Now implements Clock.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance implements Clock.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	if c.leaped != nil {
		close(c.leaped)
		c.leaped = nil
	}
}

// Wait implements Clock.
func (c *ManualClock) Wait(ctx context.Context, until time.Time) error {
	for {
		leaped, due := c.next(until)
		if due {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-leaped:
		}
	}
}

func (c *ManualClock) next(until time.Time) (leaped <-chan struct{}, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaped == nil {
		c.leaped = make(chan struct{})
	}
	return c.leaped, !c.now.Before(until)
}

// Scale implements Clock: clients of a manual clock live in model time.
func (*ManualClock) Scale() float64 { return 1 }

// Shown implements Clock.
func (*ManualClock) Shown(t time.Time) time.Time { return t }

// RealClock runs with the machine's clock, scale times as fast.
type RealClock struct {
	start time.Time
	scale float64

	mu   sync.Mutex
	leap time.Duration
}

// NewRealClock returns a clock that shows the machine's time now and runs scale times as fast; a scale
// of 0 or less means 1.
func NewRealClock(scale float64) *RealClock {
	if scale <= 0 {
		scale = 1
	}
	return &RealClock{start: time.Now(), scale: scale}
}

// Now implements Clock.
func (c *RealClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start.Add(c.leap + time.Duration(float64(time.Since(c.start))*c.scale))
}

// Advance implements Clock.
func (c *RealClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leap += d
}

// Wait implements Clock. It checks the clock at least every 100 ms, because the clock may leap meanwhile.
func (c *RealClock) Wait(ctx context.Context, until time.Time) error {
	const look = 100 * time.Millisecond
	for {
		left := time.Duration(float64(until.Sub(c.Now())) / c.scale)
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(min(left, look))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// Scale implements Clock.
func (c *RealClock) Scale() float64 { return c.scale }

// Shown implements Clock. A leap makes everything before it older for clients too.
func (c *RealClock) Shown(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start.Add(time.Duration(float64(t.Sub(c.start)-c.leap) / c.scale))
}

// event is something that happens at a model time, after the request that caused it.
type event struct {
	at   time.Time
	fire func()
}

// eventQueue holds events by time; those of one time stay in the order in which they were scheduled.
type eventQueue struct {
	events []event
}

func (q *eventQueue) schedule(at time.Time, fire func()) {
	i, _ := slices.BinarySearchFunc(q.events, at, func(e event, at time.Time) int {
		if e.at.After(at) {
			return 1
		}
		return -1 // behind those of the same time
	})
	q.events = slices.Insert(q.events, i, event{at: at, fire: fire})
}

// due takes the earliest event that is not after now.
func (q *eventQueue) due(now time.Time) (event, bool) {
	if len(q.events) == 0 || q.events[0].at.After(now) {
		return event{}, false
	}
	first := q.events[0]
	q.events = slices.Delete(q.events, 0, 1)
	return first, true
}

// next is the time of the earliest event.
func (q *eventQueue) next() (time.Time, bool) {
	if len(q.events) == 0 {
		return time.Time{}, false
	}
	return q.events[0].at, true
}
