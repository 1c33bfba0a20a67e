// Package loop holds what the loops of both programs share: being woken, debouncing, periodic runs, pauses, back-off.
package loop

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, and reports false when ctx ended before.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Run calls step at once and then again and again until ctx ends, each time after the pause that step returned. The
// error is always nil, which suits an errgroup.
func Run(ctx context.Context, step func(ctx context.Context) time.Duration) error {
	for ctx.Err() == nil {
		Sleep(ctx, step(ctx))
	}
	return nil
}

// Jitter returns d, more or less by chance: by at most the nth part of it. Processes that started together drift apart.
func Jitter(d, n time.Duration) time.Duration { return d - d/n + rand.N(2*d/n) }

// Backoff returns the pause after a failure that so many others in a row preceded: first, then twice as long each time,
// up to last.
func Backoff(first, last time.Duration, failures int) time.Duration {
	pause := first
	for ; failures > 0 && pause < last; failures-- {
		pause *= 2
	}
	return min(pause, last)
}

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
