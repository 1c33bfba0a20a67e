package election

import (
	"testing"
	"time"
)

// traps are courses of events in which one rule alone prevents a second answer. They are too rare for chance to find often.
var traps = map[string]func(w *world){
	// The first member takes in a second one and never learns that it did, so it is still content with its own voice.
	"a lost answer": func(w *world) {
		a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
		a.start()
		w.run(4 * time.Second)
		b.start()
		w.until(func() bool { return len(w.object.view.Members) == 2 })
		a.noAPI = true
		w.isolate(a, true)
		c.start()
	},
	// The first member takes in a second one, learns that it did by what it hears, and is then cut off.
	"a lost answer, found out": func(w *world) {
		a, b := w.nodes[0], w.nodes[1]
		a.start()
		w.run(4 * time.Second)
		b.start()
		w.until(func() bool { return len(w.object.view.Members) == 2 })
		a.noAPI = true
		w.run(500 * time.Millisecond)
		w.isolate(a, true)
	},
	// Who said that the holder is silent hears it again, and knows nothing of the new view.
	"a changed mind": func(w *world) {
		if w.settle() == nil {
			return
		}
		a := w.holder(address(0))
		b, x := w.other(a), w.other(w.other(a))
		b.deaf[a.index], x.deaf[a.index] = true, true
		number := w.object.view.Number
		w.until(func() bool { return w.object.view.Number > number })
		if writer := w.object.view; writer.Owners[address(0)].Node != b.name {
			b, x = x, b
		}
		x.deaf[a.index], x.deaf[b.index], a.deaf[b.index] = false, true, true
		a.noAPI, x.noAPI = true, true
	},
	// An agent is started anew within a lease, and does not hear whom its former life supported.
	"a short life": func(w *world) {
		if w.settle() == nil {
			return
		}
		a := w.holder(address(0))
		b, x := w.other(a), w.other(w.other(a))
		b.deaf[a.index], a.deaf[b.index], a.noAPI = true, true, true
		w.run(400 * time.Millisecond)
		x.deaf[a.index] = true
		x.stop()
		x.start()
	},
	// The owner gives its address away and does not hear that the new owner wants it.
	"an unheard wish": func(w *world) { handOverUnheard(w, false) },
	// Nor does it hear that it gave it away.
	"an unheard order": func(w *world) { handOverUnheard(w, true) },
	// The owner is replaced while it stands still, and goes on a minute later with what was queued.
	"a long sleep": func(w *world) {
		if w.settle() == nil {
			return
		}
		a := w.holder(address(0))
		a.pause()
		w.run(time.Minute)
		a.resume()
	},
	// A second machine runs an agent by the name of the owner; each is heard by another member.
	"a second machine of one name": func(w *world) {
		spare := w.spare()
		if w.settle() == nil {
			return
		}
		a := w.holder(address(0))
		b, c := w.other(a), w.other(w.other(a))
		w.nodes = append(w.nodes, spare)
		spare.name = a.name
		b.deaf[a.index], c.deaf[spare.index] = true, true
		spare.start()
	},
}

func handOverUnheard(w *world, noAPI bool) {
	if w.settle() == nil {
		return
	}
	a, number := w.holder(address(0)), w.object.view.Number
	a.facts.Candidate, a.noAPI = false, noAPI
	a.tell()
	w.until(func() bool { return w.object.view.Number > number })
	w.deafen(a, true)
}

// spare takes the fourth node away, if it is there.
func (w *world) spare() *machine {
	spare := w.nodes[:4][3]
	w.nodes = w.nodes[:3:4]
	return spare
}

// until lets time pass until something is the case, for a minute at most.
func (w *world) until(is func() bool) {
	for range 60_000 {
		if is() {
			return
		}
		w.run(time.Millisecond)
	}
}

// spring lets a trap happen and tells what is wrong.
func spring(seed uint64, r rules, trap func(w *world)) (w *world, wrong string) {
	w = newWorld(seed, 4, 1, r)
	w.keepLog = true
	w.spare()
	trap(w)
	w.run(5 * time.Second)
	return w, w.violation
}

func TestTraps(t *testing.T) {
	for name, trap := range traps {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				if w, wrong := spring(seed, standardRules(), trap); wrong != "" {
					t.Fatalf("seed %d: %s\n%s", seed, wrong, w.tail())
				}
			}
		})
	}
}
