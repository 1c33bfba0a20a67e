package pnapsim

import (
	"container/heap"
	"time"
)

// event is something that happens at a model time, after the request that caused it.
type event struct {
	at   time.Time
	seq  uint64
	fire func()
}

// eventQueue orders events by time, then by the order in which they were scheduled.
type eventQueue struct {
	events []event
	seq    uint64
}

// Len implements heap.Interface.
func (q *eventQueue) Len() int { return len(q.events) }

// Less implements heap.Interface.
func (q *eventQueue) Less(i, j int) bool {
	a, b := q.events[i], q.events[j]
	if a.at.Equal(b.at) {
		return a.seq < b.seq
	}
	return a.at.Before(b.at)
}

// Swap implements heap.Interface.
func (q *eventQueue) Swap(i, j int) { q.events[i], q.events[j] = q.events[j], q.events[i] }

// Push implements heap.Interface.
func (q *eventQueue) Push(x any) { q.events = append(q.events, x.(event)) }

// Pop implements heap.Interface.
func (q *eventQueue) Pop() any {
	last := q.events[len(q.events)-1]
	q.events = q.events[:len(q.events)-1]
	return last
}

func (q *eventQueue) schedule(at time.Time, fire func()) {
	q.seq++
	heap.Push(q, event{at: at, seq: q.seq, fire: fire})
}

// due takes the earliest event that is not after now.
func (q *eventQueue) due(now time.Time) (event, bool) {
	if len(q.events) == 0 || q.events[0].at.After(now) {
		return event{}, false
	}
	return heap.Pop(q).(event), true
}

// next is the time of the earliest event.
func (q *eventQueue) next() (time.Time, bool) {
	if len(q.events) == 0 {
		return time.Time{}, false
	}
	return q.events[0].at, true
}
