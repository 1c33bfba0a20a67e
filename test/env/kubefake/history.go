package kubefake

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// change is a change of an object, as watches report it. The objects are shared: no one may write to them.
type change struct {
	kind    watch.EventType
	key     key
	version int64
	at      time.Time
	object  runtime.Object
	before  runtime.Object // nil if the object is new
}

// history is all changes in the order of their versions.
type history struct {
	mu      sync.Mutex
	changes []change
	// compacted is the version up to which changes are forgotten.
	compacted int64
	// more is closed when a change is added.
	more chan struct{}
}

func newHistory() *history { return &history{more: make(chan struct{})} }

func (h *history) add(c change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.at = time.Now()
	c.object = c.object.DeepCopyObject()
	h.changes = append(h.changes, c)
	close(h.more)
	h.more = make(chan struct{})
}

// after returns the first change after a version, or what is closed when there may be one. It reports whether changes
// after that version are forgotten.
func (h *history) after(version int64) (next *change, more <-chan struct{}, forgotten bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if version < h.compacted {
		return nil, nil, true
	}
	at, _ := slices.BinarySearchFunc(h.changes, version+1, func(c change, v int64) int { return int(c.version - v) })
	if at == len(h.changes) {
		return nil, h.more, false
	}
	return &h.changes[at], nil, false
}

// Compact forgets all changes so far, as etcd does after a while: a watch that has not seen them ends with the status
// Expired.
func (s *Store) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	s.history.compacted = s.version
	s.history.changes = nil
}
