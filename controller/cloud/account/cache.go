package account

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
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

// known returns the value of the last answer, however old, and when it was requested.
func (r *reading[T]) known() (value T, askedAt time.Time, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return value, time.Time{}, false
	}
	return r.last.value, r.last.askedAt, true
}

// latest returns what known does, with the zero time before the first answer, and the error of the latest request if
// that failed.
func (r *reading[T]) latest() (value T, askedAt time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != nil {
		err = r.failure.err
	}
	if r.last == nil {
		return value, time.Time{}, err
	}
	return r.last.value, r.last.askedAt, err
}

// expire makes the results of all earlier requests too old.
func (r *reading[T]) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
}

// lookups read single blocks and the index of a tag, which are not delayed as the list of blocks may be. Only in this
// way is a block found that was bought for a Service, a pool or the nodes.
type lookups struct {
	api Cloud
	now func() time.Time

	mu     sync.Mutex
	blocks map[string]result[shown]
	tags   map[string]result[map[string]string]
	// changes counts the calls of forget: results of requests before the last one are not kept.
	changes int
}

// result is the result of a request at a time.
type result[T any] struct {
	value T
	at    time.Time
}

// shown is a block that was read by its ID; found is false when the API did not show it.
type shown struct {
	block network.Block
	found bool
}

// look returns the known result for a key, or reads it.
func look[T any](l *lookups, results map[string]result[T], key string, after time.Time,
	read func() (T, error)) (T, error) {
	next := result[T]{at: l.now()}
	l.mu.Lock()
	known, found := results[key]
	changes := l.changes
	l.mu.Unlock()
	if found && !after.IsZero() && !known.at.Before(after) {
		return known.value, nil
	}
	var err error
	if next.value, err = read(); err != nil {
		return next.value, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes == changes {
		results[key] = next
	}
	return next.value, nil
}

// Block reads a block by its ID, requested at or after the given time and after the last change; with the zero time,
// now. A block that the API does not show is not an error.
func (l *lookups) Block(ctx context.Context, id string, after time.Time) (block network.Block, found bool, err error) {
	read, err := look(l, l.blocks, id, after, func() (shown, error) {
		block, err := l.api.Block(ctx, id)
		if pnap.IsInaccessible(err) {
			return shown{}, nil
		}
		return shown{block: block, found: err == nil}, err
	})
	return read.block, read.found, err
}

// tagged reads the values of a tag by the ID of the block, under the same conditions as Block.
func (l *lookups) tagged(ctx context.Context, name string, after time.Time) (map[string]string, error) {
	return look(l, l.tags, name, after, func() (map[string]string, error) { return l.api.TagAssignments(ctx, name) })
}

// updated returns a list with the blocks as they were read by their ID since. Without that, a Service whose block was
// just read as assigned would still wait according to an older list.
func (l *lookups) updated(listing Listing) Listing {
	l.mu.Lock()
	defer l.mu.Unlock()
	listing.Blocks = slices.Clone(listing.Blocks) // the list is shared
	for i, block := range listing.Blocks {
		if read := l.blocks[block.ID]; read.value.found && read.at.After(listing.AskedAt) {
			listing.Blocks[i] = read.value.block
		}
	}
	return listing
}

// forget removes everything: the account was changed.
func (l *lookups) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.blocks)
	clear(l.tags)
	l.changes++
}
