package account

import (
	"context"
	"sync"
	"time"
)

// reading is one object that is read from the API for all callers: one request at a time, whose answer is kept for a
// window and whose failure is kept for failureWindow.
type reading[T any] struct {
	config Config
	object string // the name of the object in metrics
	read   func(ctx context.Context, askedAt time.Time) (T, error)

	mu      sync.Mutex
	changes int // the number of calls of expire
	last    *outcome[T]
	failure *outcome[T]
	flight  *outcome[T] // of the request in progress
}

// outcome is the result of one request. The value and the error are set before done is closed.
type outcome[T any] struct {
	value            T
	err              error
	askedAt, endedAt time.Time // when the request was sent, and when it was answered
	changes          int       // the count of changes when it was sent
	done             chan struct{}
}

func newReading[T any](config Config, object string,
	read func(ctx context.Context, askedAt time.Time) (T, error)) *reading[T] {
	return &reading[T]{config: config, object: object, read: read}
}

// get returns an answer that was requested at or after the given time, see Account.Blocks.
func (r *reading[T]) get(ctx context.Context, after time.Time) (T, error) {
	var none T
	if after.IsZero() {
		after = r.config.Now().Add(time.Nanosecond - r.config.Window)
	}
	for waited := false; ; waited = true {
		known, current := r.look(ctx, after)
		if known != nil {
			if !waited && known.err == nil {
				r.config.Metrics.hit(r.object)
			}
			return known.value, known.err
		}
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case <-current.done:
			if current.err != nil {
				return none, current.err
			}
			// A request that was already in progress may have been sent too early: check again.
		}
	}
}

// look returns a usable outcome, or the request to wait for.
func (r *reading[T]) look(ctx context.Context, after time.Time) (known, current *outcome[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != nil && r.config.Now().Sub(r.failure.endedAt) < failureWindow {
		return r.failure, nil
	}
	if r.serves(r.last, after) {
		return r.last, nil
	}
	if r.flight == nil {
		r.flight = r.start(ctx)
	}
	return nil, r.flight
}

func (r *reading[T]) serves(o *outcome[T], after time.Time) bool {
	return o != nil && o.changes == r.changes && !o.askedAt.Before(after)
}

// start sends a request. It serves all waiting callers, so it does not end because the first of them gives up.
func (r *reading[T]) start(ctx context.Context) *outcome[T] {
	sent := &outcome[T]{askedAt: r.config.Now(), changes: r.changes, done: make(chan struct{})}
	detached := context.WithoutCancel(ctx)
	go func() {
		sent.value, sent.err = r.read(detached, sent.askedAt)
		r.land(sent)
	}()
	return sent
}

func (r *reading[T]) land(o *outcome[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.endedAt = r.config.Now()
	r.flight = nil
	if o.err != nil {
		r.failure = o
		r.config.Metrics.failed(r.object)
	} else {
		r.config.Metrics.fetched(r.object, o.askedAt)
		r.last = o
		r.failure = nil
	}
	close(o.done)
}

// expire makes the results of all earlier requests too old.
func (r *reading[T]) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
}
