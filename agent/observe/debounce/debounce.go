// Package debounce holds a value until enough samples in a row differ.
package debounce

import (
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Value is a value of type T that belongs to a class with a name, such as good or bad. Samples of the current class
// replace the value at once; another class must be observed several times in a row.
type Value[T any] struct {
	held  T
	class string
	rival string
	count int
}

// Observe takes a sample and the number of samples in a row that its class needs. It returns the current value;
// stable is false while no class has been accepted yet, and pending is true while a rival class is being counted, so
// that the caller should take the next sample soon.
func (v *Value[T]) Observe(sample T, class string, needed int) (held T, stable, pending bool) {
	if class == v.class {
		v.held = sample
		v.rival = ""
		v.count = 0
		return v.held, true, false
	}
	if class != v.rival {
		v.rival = class
		v.count = 0
	}
	v.count++
	if v.count >= needed {
		*v = Value[T]{held: sample, class: class}
		return v.held, true, false
	}
	return v.held, v.class != "", true
}

// Held returns the current value; stable is false while no class has been accepted yet.
func (v *Value[T]) Held() (held T, stable bool) { return v.held, v.class != "" }

// Class returns the current class, empty while there is none.
func (v *Value[T]) Class() string { return v.class }

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
	return loop.Backoff(firstHold, LastHold, beyond-1)
}

func (f *Failures) recent(now time.Time) []time.Time {
	for i, at := range f.at {
		if now.Sub(at) < memory {
			return f.at[i:]
		}
	}
	return nil
}
