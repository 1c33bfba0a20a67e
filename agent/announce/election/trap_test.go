package election

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// traps are sequences of events in which a single rule prevents a second answer. Random walks seldom find them.
var traps = map[string]func(w *world){
	// The first member adds a second one and never learns that it did, so its own acknowledgement is still enough for
	// it.
	"a lost answer": func(w *world) {
		a := w.nodes[0]
		b := w.nodes[1]
		c := w.nodes[2]
		a.start()
		w.run(4 * time.Second)
		b.start()
		w.until(func() bool { return len(w.object.view.Members) == 2 })
		a.noAPI = true
		w.isolate(a, true)
		c.start()
	},
	// The first member adds a second one, learns that from heartbeats, and is then cut off.
	"a lost answer, found out": func(w *world) {
		a := w.nodes[0]
		b := w.nodes[1]
		a.start()
		w.run(4 * time.Second)
		b.start()
		w.until(func() bool { return len(w.object.view.Members) == 2 })
		a.noAPI = true
		w.run(500 * time.Millisecond)
		w.isolate(a, true)
	},
	// A node that reported the holder as silent hears it again, and knows nothing of the new view.
	"a holder that is heard again": func(w *world) {
		if w.stabilize() == nil {
			return
		}
		a := w.holder(address(0))
		b := w.other(a)
		x := w.other(w.other(a))
		b.deaf[a.index] = true
		x.deaf[a.index] = true
		number := w.object.view.Number
		w.until(func() bool { return w.object.view.Number > number })
		if writer := w.object.view; writer.Owners[address(0)].Node != b.name {
			b, x = x, b
		}
		x.deaf[a.index] = false
		x.deaf[b.index] = true
		a.deaf[b.index] = true
		a.noAPI = true
		x.noAPI = true
	},
	// An agent restarts within a lease and does not hear the node that its earlier run supported.
	"a restart within a lease": func(w *world) {
		if w.stabilize() == nil {
			return
		}
		a := w.holder(address(0))
		b := w.other(a)
		x := w.other(w.other(a))
		b.deaf[a.index] = true
		a.deaf[b.index] = true
		a.noAPI = true
		w.run(400 * time.Millisecond)
		x.deaf[a.index] = true
		x.stop()
		x.start()
	},
	// The owner gives its address away and does not hear that the new owner wants it.
	"a lost request": func(w *world) { handOverUnnoticed(w, false) },
	// The same, and the owner does not hear that it gave the address away.
	"a lost request and view":               func(w *world) { handOverUnnoticed(w, true) },
	"an update of an agent that knew more":  updateUnaware,
	"an update of an owner without network": updateCut,
	// The owner is replaced while it stands still, and continues a minute later with what was queued.
	"a long pause": func(w *world) {
		if w.stabilize() == nil {
			return
		}
		a := w.holder(address(0))
		a.pause()
		w.run(time.Minute)
		a.resume()
	},
	// An owner gives its address away, and hears nothing any more. The next owner gives it away at once, before it is
	// known whether the first one has stopped.
	"an address that moves on at once": func(w *world) {
		if w.stabilize() == nil {
			return
		}
		first := w.holder(address(0))
		first.noAPI = true
		w.giveAway(first)
		w.deafen(first, true)
		w.until(func() bool { return w.object.view.Owners[address(0)].Node != first.name })
		for _, m := range w.nodes {
			if m.name == w.object.view.Owners[address(0)].Node {
				w.giveAway(m)
			}
		}
	},
	// A second machine runs an agent by the name of the owner; each is heard by another member.
	"a second machine of one name": func(w *world) {
		spare := w.takeSpare()
		if w.stabilize() == nil {
			return
		}
		a := w.holder(address(0))
		b := w.other(a)
		c := w.other(w.other(a))
		w.nodes = append(w.nodes, spare)
		spare.name = a.name
		b.deaf[a.index] = true
		c.deaf[spare.index] = true
		spare.start()
	},
}

// giveAway has a node become unable to serve any address, and report so.
func (w *world) giveAway(m *machine) {
	m.facts.Candidate = false
	m.sendFacts()
	w.run(10 * time.Millisecond)
}

// updateUnaware replaces an agent that has seen the removal of the owner by one that has not, and hears only the owner.
func updateUnaware(w *world) {
	if w.stabilize() == nil {
		return
	}
	c := w.holder(address(0))
	b := w.other(c)
	a := w.other(b)
	a.facts.Candidate = false
	a.sendFacts()
	next := w.update(a, time.Hour)
	next.deaf = slices.Clone(a.deaf)
	w.run(2 * time.Second)
	next.noAPI = true
	next.deaf[b.index] = true
	c.noAPI = true
	w.isolate(c, true)
	w.until(func() bool { return b.answers(address(0)) })
	c.deaf[a.index] = false
	next.deaf[c.index] = false
	w.replace(a, next)
}

// updateCut replaces the owner of an address by an agent that must not answer for it, while the owner hears nothing any
// more and answers until its lease expires.
func updateCut(w *world) {
	if w.stabilize() == nil {
		return
	}
	a := w.holder(address(0))
	next := w.update(a, time.Hour)
	next.deaf = slices.Clone(a.deaf)
	w.run(2 * time.Second)
	for i := range a.deaf {
		a.deaf[i] = true
	}
	a.noAPI = true
	next.facts.Wanted = map[netip.Addr]bool{address(0): false}
	w.replace(a, next)
}

func handOverUnnoticed(w *world, noAPI bool) {
	if w.stabilize() == nil {
		return
	}
	a := w.holder(address(0))
	number := w.object.view.Number
	a.facts.Candidate = false
	a.noAPI = noAPI
	a.sendFacts()
	w.until(func() bool { return w.object.view.Number > number })
	w.deafen(a, true)
}

// takeSpare removes and returns the fourth node.
func (w *world) takeSpare() *machine {
	spare := w.nodes[:4][3]
	w.nodes = w.nodes[:3:4]
	return spare
}

// until runs the world until a condition holds, for a minute at most.
func (w *world) until(is func() bool) {
	for range 60_000 {
		if is() {
			return
		}
		w.run(time.Millisecond)
	}
}

// runTrap runs a trap and returns what is wrong.
func runTrap(seed uint64, r rules, trap func(w *world)) (w *world, wrong string) {
	w = newWorld(seed, 4, 1, r)
	w.keepLog = true
	w.takeSpare()
	trap(w)
	w.run(5 * time.Second)
	return w, w.violation
}

func TestTraps(t *testing.T) {
	for name, trap := range traps {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				if w, wrong := runTrap(seed, standardRules(), trap); wrong != "" {
					t.Fatalf("seed %d: %s\n%s", seed, wrong, w.tail())
				}
			}
		})
	}
}
