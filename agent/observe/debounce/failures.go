package debounce

import (
	"math"
	"time"
)

const (
	// memory is how long a failure is held against what comes and goes.
	memory = time.Hour
	// Patience is how many failures within an hour are forgiven: somebody may be at work on the machine.
	Patience = 8
	// firstHold is how long what failed more often must be well before it is believed; it doubles with each further failure.
	firstHold = 2 * time.Second
	// LastHold is the longest that it must be well.
	LastHold = 5 * time.Minute
	// maxRemembered is how many failures are remembered: more could not matter.
	maxRemembered = 64
)

// Failures are the times at which something failed of late.
type Failures struct{ at []time.Time }

// Note remembers a failure.
func (f *Failures) Note(now time.Time) {
	f.at = append(f.recent(now), now)
	if len(f.at) > maxRemembered {
		f.at = f.at[1:]
	}
}

// Hold is how long it must be well, without a break, before that is believed. It grows the more often it failed within an
// hour, so that what flaps changes its state at most 60 times an hour.
func (f *Failures) Hold(now time.Time) time.Duration {
	beyond := len(f.recent(now)) - Patience
	if beyond <= 0 {
		return 0
	}
	return time.Duration(min(float64(firstHold)*math.Pow(2, float64(beyond-1)), float64(LastHold)))
}

func (f *Failures) recent(now time.Time) []time.Time {
	for i, at := range f.at {
		if now.Sub(at) < memory {
			return f.at[i:]
		}
	}
	return nil
}
