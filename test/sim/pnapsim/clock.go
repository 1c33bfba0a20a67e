package pnapsim

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Clock is the model time of a simulation: it runs with the machine's clock, or stands still until it is advanced.
type Clock struct {
	start time.Time
	speed float64 // seconds of model time in a second; 0 stands still

	mu     sync.Mutex
	leap   time.Duration
	leaped chan struct{} // closed and replaced by Advance
}

// NewManualClock returns a clock that shows start and stands still; its clients live in model time.
func NewManualClock(start time.Time) *Clock { return &Clock{start: start, leaped: make(chan struct{})} }

// NewRealClock returns a clock that shows the machine's time now and runs scale times as fast; a scale
// of 0 or less means 1.
func NewRealClock(scale float64) *Clock {
	if scale <= 0 {
		scale = 1
	}
	return &Clock{start: time.Now(), speed: scale, leaped: make(chan struct{})}
}

func (c *Clock) look() (now time.Time, leaped <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start.Add(c.leap + time.Duration(float64(time.Since(c.start))*c.speed)), c.leaped
}

// Now is the model time.
func (c *Clock) Now() time.Time {
	now, _ := c.look()
	return now
}

// Advance makes the model time leap forward; what was due in between happens, in its order.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leap += d
	close(c.leaped)
	c.leaped = make(chan struct{})
}

// Wait returns when the model time has reached until, or with the error of ctx when that ends first.
func (c *Clock) Wait(ctx context.Context, until time.Time) error {
	for {
		now, leaped := c.look()
		left := until.Sub(now)
		var timer <-chan time.Time
		if c.speed > 0 {
			left = time.Duration(float64(left) / c.speed)
			timer = time.After(left)
		}
		if left <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-leaped:
		case <-timer:
		}
	}
}

// Scale is how many seconds of model time pass in a second of the clients' time. Token lifetimes and
// Retry-After are given in the clients' seconds, because clients keep them by their own clocks.
func (c *Clock) Scale() float64 { return cmp.Or(c.speed, 1) }

// Shown is a model time as the clients' clocks showed it: the API returns times so, or with a fast model clock its
// objects would be made in the clients' future. A leap makes everything before it older for clients too.
func (c *Clock) Shown(t time.Time) time.Time {
	if c.speed == 0 {
		return t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start.Add(time.Duration(float64(t.Sub(c.start)-c.leap) / c.speed))
}

// event is something that happens at a model time, after the request that caused it.
type event struct {
	at   time.Time
	fire func()
}
