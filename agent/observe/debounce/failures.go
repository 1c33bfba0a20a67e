package debounce

import (
	"math"
	"time"
)

const (
	// memory is how long a failure counts.
	memory = time.Hour
	// Patience is how many failures within an hour are tolerated: someone may be working on the machine.
	Patience = 8
	// firstHold is how long a check that failed more often must be good before it counts as good; it doubles with
	// each further failure.
	firstHold = 2 * time.Second
	// LastHold is the longest that it must be good.
	LastHold = 5 * time.Minute
	// maxRemembered is how many failures are remembered: more cannot matter.
	maxRemembered = 64
)

// Failures are the recent times at which something failed.
type Failures struct{ at []time.Time }

// Note records a failure.
func (f *Failures) Note(now time.Time) {
	f.at = append(f.recent(now), now)
	if len(f.at) > maxRemembered {
		f.at = f.at[1:]
	}
}

// Hold is how long a check must be good, without a break, before it counts as good. It grows with the number of
// failures within an hour, so that a flapping check changes its state at most 60 times an hour.
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
