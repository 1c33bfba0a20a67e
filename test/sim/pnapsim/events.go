package pnapsim

import (
	"slices"
	"time"
)

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
