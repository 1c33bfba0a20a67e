// Package debounce holds a value until enough samples in a row say otherwise.
package debounce

// Value is a value of type T that belongs to a class, such as good or bad. Samples of the class that is held replace the
// value at once; another class must be seen several times in a row.
type Value[T any] struct {
	held    T
	class   string
	settled bool
	rival   string
	count   int
}

// Observe takes a sample and the number of samples in a row that its class needs to be believed. It returns the value
// that is held; settled is false while no class has been believed yet, and pending is true while a rival class is
// being counted, so that the caller should take the next sample soon.
func (v *Value[T]) Observe(sample T, class string, needed int) (held T, settled, pending bool) {
	if v.settled && class == v.class {
		v.held, v.rival, v.count = sample, "", 0
		return v.held, true, false
	}
	if class != v.rival {
		v.rival, v.count = class, 0
	}
	v.count++
	if v.count >= needed {
		*v = Value[T]{held: sample, class: class, settled: true}
		return v.held, true, false
	}
	return v.held, v.settled, true
}

// Held returns the value that is held; settled is false while no class has been believed yet.
func (v *Value[T]) Held() (held T, settled bool) { return v.held, v.settled }

// Class returns the class that is held, empty while none is.
func (v *Value[T]) Class() string { return v.class }
