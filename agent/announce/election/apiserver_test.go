package election

import (
	"fmt"
	"maps"
	"net/netip"
	"time"
)

// object is what the API server stores.
type object struct {
	exists  bool
	version int
	view    *View // nil when it cannot be read
}

// request carries a request to the API server and its answer back. A late request times out first and is carried out
// later.
func (w *world) request(m *machine, failed Input, do func() (answer func() Input)) {
	const timeout = 300 * time.Millisecond
	boot := m.boot
	if m.noAPI || w.apiDown {
		w.later(m, timeout, failed)
		return
	}
	way := w.between(w.apiDelay/10, w.apiDelay)
	back := w.between(w.apiDelay/10, w.apiDelay)
	if w.chance(w.apiLate) {
		way = w.between(0, 5*time.Second)
	}
	if way+back >= timeout {
		w.later(m, timeout, failed)
	}
	w.after(way, func() {
		answer := do()
		if way+back >= timeout {
			w.lateAt = w.now
			return
		}
		w.after(back, func() {
			switch {
			case m.boot != boot:
			case m.noAPI || w.apiDown:
				w.later(m, timeout-way-back, failed)
			default:
				m.step(answer())
			}
		})
	})
}

func (w *world) read(m *machine) {
	w.request(m, Read{Asked: true, Err: errTimeout}, func() func() Input {
		o := w.object
		return func() Input { return o.read(true) }
	})
}

// list answers with the Services as they are.
func (w *world) list(m *machine) {
	w.request(m, Listed{Err: errTimeout}, func() func() Input {
		all := maps.Clone(w.wanted)
		maps.DeleteFunc(all, func(a netip.Addr, _ bool) bool { return m.blind[a] })
		return func() Input { return Listed{Addresses: all} }
	})
}

func (o object) read(asked bool) Read {
	r := Read{Asked: asked, Found: o.exists, View: o.view}
	if o.exists {
		r.Version = fmt.Sprint(o.version)
	}
	return r
}

type modelError string

func (m modelError) Error() string { return string(m) }

const (
	errTimeout  modelError = "timeout"
	errConflict modelError = "conflict"
)

func (w *world) write(m *machine, write *Write) {
	w.request(m, Wrote{Err: errTimeout}, func() func() Input {
		current := ""
		if w.object.exists {
			current = fmt.Sprint(w.object.version)
		}
		if current != write.Version {
			return func() Input { return Wrote{Err: errConflict} }
		}
		w.count(w.object.view, write.View)
		w.store(object{true, w.object.version + 1, write.View})
		version := fmt.Sprint(w.object.version)
		w.note("%s wrote %s", m.name, describe(write.View))
		return func() Input { return Wrote{View: write.View, Version: version} }
	})
}

// store changes the object and notifies the watches.
func (w *world) store(o object) {
	w.object = o
	for _, m := range w.nodes {
		w.after(w.between(w.apiDelay/10, 2*w.apiDelay), func() {
			if !m.noAPI && !w.apiDown {
				m.step(o.read(false))
			}
		})
	}
}

// relist delivers the current state to a watch that was cut.
func (w *world) relist(m *machine) {
	w.after(w.between(w.apiDelay, 2*time.Second), func() {
		if !m.noAPI && !w.apiDown {
			m.step(w.object.read(false))
		}
	})
}
