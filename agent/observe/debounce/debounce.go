// Package debounce holds a value until enough samples in a row differ.
package debounce

// Value is a value of type T that belongs to a class, such as good or bad. Samples of the current class replace the
// value at once; another class must be observed several times in a row.
type Value[T any] struct {
	held    T
	class   string
	settled bool
	rival   string
	count   int
}

// Observe takes a sample and the number of samples in a row that its class needs. It returns the current value;
// settled is false while no class has been accepted yet, and pending is true while a rival class is being counted, so
// that the caller should take the next sample soon.
func (v *Value[T]) Observe(sample T, class string, needed int) (held T, settled, pending bool) {
	if v.settled && class == v.class {
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
		*v = Value[T]{held: sample, class: class, settled: true}
		return v.held, true, false
	}
	return v.held, v.settled, true
}

// Held returns the current value; settled is false while no class has been accepted yet.
func (v *Value[T]) Held() (held T, settled bool) { return v.held, v.settled }

// Class returns the current class, empty while there is none.
func (v *Value[T]) Class() string { return v.class }
