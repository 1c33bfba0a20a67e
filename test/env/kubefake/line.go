package kubefake

import (
	"context"
	"sync"
	"time"
)

// Lag is how late a reader learns of changes: each arrives By after it was made at the earliest, and none before Until.
type Lag struct {
	By    time.Duration
	Until time.Time
}

// Line is the way of one client to a Store, and an http.RoundTripper. What it carries can be late: reads, lists and
// changes are those of the moment, while the changes that a watch reports lag behind. This is what controllers see of
// an API server that is busy, or of a watch cache that falls behind.
type Line struct {
	store *Store

	mu   sync.Mutex
	lags map[string]Lag
	// changed is closed when a Lag changes, broken when all watches are to end.
	changed, broken chan struct{}
}

// Line returns a new way to the Store.
func (s *Store) Line() *Line {
	return &Line{store: s, lags: map[string]Lag{}, changed: make(chan struct{}), broken: make(chan struct{})}
}

// SetLag lets the watches of a resource, as "services", be late. The zero Lag ends that.
func (l *Line) SetLag(resource string, lag Lag) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lags[resource] = lag
	close(l.changed)
	l.changed = make(chan struct{})
}

// Break ends all watches, as a load balancer before the API server does. The client may go on where it was.
func (l *Line) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.broken)
	l.broken = make(chan struct{})
}

// breaks returns what is closed when the watches of now are to end.
func (l *Line) breaks() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// hold waits until a change of a resource arrives. It reports whether it does: the watch may end before.
func (l *Line) hold(ctx context.Context, resource string, made time.Time) bool {
	for {
		l.mu.Lock()
		lag := l.lags[resource]
		changed := l.changed
		l.mu.Unlock()
		due := made.Add(lag.By)
		if lag.Until.After(due) {
			due = lag.Until
		}
		if !time.Now().Before(due) {
			return true
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}
