package loop

import (
	"context"
	"time"
)

// Wake wakes one loop. Signals that come while the loop is busy become one. A nil Wake never wakes anything.
type Wake chan struct{}

// NewWake returns a Wake without a signal.
func NewWake() Wake { return make(Wake, 1) }

// Signal wakes the loop, or has it woken when it waits next. It never blocks.
func (w Wake) Signal() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Event is what ended a wait.
type Event int

// What ends a wait.
const (
	// Ended means that the context ended.
	Ended Event = iota
	// Due means that the time is up.
	Due
	// Woken means that there was a signal. It is used up.
	Woken
)

// Wait waits for a signal, at most for d.
func (w Wake) Wait(ctx context.Context, d time.Duration) Event {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return Ended
	case <-timer.C:
		return Due
	case <-w:
		return Woken
	}
}

// Await waits for a signal, and reports false when ctx ended before.
func (w Wake) Await(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-w:
		return true
	}
}

// Debounce waits for d and forgets the signals that came until then, so that one look serves a burst of them. It
// reports false when ctx ended before.
func (w Wake) Debounce(ctx context.Context, d time.Duration) bool {
	if !Sleep(ctx, d) {
		return false
	}
	select {
	case <-w:
	default:
	}
	return true
}

// Run calls step at once and then again and again until ctx ends: after the pause that step returned or, when that is
// earlier, some time after a signal. The error is always nil, which suits an errgroup.
func (w Wake) Run(ctx context.Context, after time.Duration, step func(ctx context.Context) time.Duration) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w:
			if early := time.Now().Add(after); early.Before(next) {
				next = early
				timer.Reset(after)
			}
		case <-timer.C:
			pause := step(ctx)
			next = time.Now().Add(pause)
			timer.Reset(pause)
		}
	}
}
