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
