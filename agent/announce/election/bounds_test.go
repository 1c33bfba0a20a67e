package election

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"
)

// ahead are numbers of a view that no node has written, and how they differ from the newest one.
var ahead = map[string]func(number uint64) uint64{
	"far ahead":   func(number uint64) uint64 { return number + 1<<33 },
	"a day ahead": func(number uint64) uint64 { return number + 86_400 },
	"ten ahead":   func(number uint64) uint64 { return number + 10 },
}

// absurd are ahead, or numbers that no view can have. Heartbeats with these never get here (see heartbeat.Implausible).
func absurd() map[string]func(number uint64) uint64 {
	all := maps.Clone(ahead)
	all["the highest there is"] = func(uint64) uint64 { return math.MaxUint64 }
	all["the highest signed"] = func(uint64) uint64 { return math.MaxInt64 }
	all["one above it"] = func(uint64) uint64 { return math.MaxInt64 + 1 }
	all["above that of a view"] = func(uint64) uint64 { return MaxNumber + 1 }
	return all
}

// forge lets all other nodes receive one more heartbeat of a machine, changed.
func (w *world) forge(from *machine, change func(h *Heartbeat)) {
	h := *from.core.peers[IDOf(w.other(from).name)].last
	h.Node = from.name
	h.Boot = from.core.Boot
	h.Sequence = from.core.sequence + 1
	change(&h)
	for _, m := range w.nodes {
		if m != from {
			m.step(Heard{&h})
		}
	}
}

// expectSound checks what absurd numbers left: nothing that lasts.
func (w *world) expectSound(t *testing.T, silent, most time.Duration) {
	t.Helper()
	if w.violation != "" || silent > most || len(w.unanswered()) > 0 {
		t.Errorf("silent for %s, want at most %s %s\n%s", silent, most, w.violation, w.tail())
	}
	for _, m := range w.nodes {
		if n := max(m.core.seen, m.core.number()); n > MaxNumber/2 || m.core.view == nil || !m.core.view.has(m.name) {
			t.Errorf("%s works with number %d", m.name, n)
		}
	}
}

// TestAbsurdHeartbeat: one signed heartbeat with absurd numbers, in the name of the owner or of another node, makes no
// address silent and leaves no absurd number behind.
func TestAbsurdHeartbeat(t *testing.T) {
	changes := map[string]func(h *Heartbeat){
		"the highest sequence number": func(h *Heartbeat) { h.Sequence = math.MaxUint64 },
		"a sequence number far ahead": func(h *Heartbeat) { h.Sequence += 1 << 20 },
		"acknowledges what was not sent": func(h *Heartbeat) {
			for i := range h.Acks {
				h.Acks[i].Sequence = math.MaxUint32
			}
		},
	}
	for name, number := range ahead {
		changes["seen "+name] = func(h *Heartbeat) { h.Seen = number(h.Seen) }
		changes["view "+name] = func(h *Heartbeat) { h.Number = number(h.Number) }
	}
	longest := time.Duration(0)
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				w := newWorld(seed, 3, 1, standardRules())
				w.keepLog = true
				from := w.stabilize()
				if from == nil {
					t.Fatalf("seed %d: not stable", seed)
				}
				if seed%2 == 1 {
					from = w.other(from)
				}
				w.note("forged by %s", from.name)
				w.forge(from, change)
				silent := w.watch(10 * time.Second)
				longest = max(longest, silent)
				w.expectSound(t, silent, 0)
			}
		})
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_absurd_heartbeat_silent_ms %d ms\n", longest.Milliseconds())
}

// TestAbsurdObject: a person who writes an absurd number into the view makes no address silent, and the number does not
// last.
func TestAbsurdObject(t *testing.T) {
	longest := time.Duration(0)
	for name, number := range absurd() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				w := newWorld(seed, 3, 1, standardRules())
				w.keepLog = true
				if w.stabilize() == nil {
					t.Fatalf("seed %d: not stable", seed)
				}
				w.edit(func(v *View) { v.Number = number(v.Number) })
				silent := w.watch(10 * time.Second)
				longest = max(longest, silent)
				w.expectSound(t, silent, 0)
			}
		})
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_absurd_view_silent_ms %d ms\n", longest.Milliseconds())
}

// edit stores a changed view, as a person would; as for ParseView, one that contradicts itself is unreadable.
func (w *world) edit(change func(v *View)) {
	v := *w.object.view
	change(&v)
	o := object{true, w.object.version + 1, &v}
	if v.validate() != nil {
		o.view = nil
	}
	w.store(o)
}

// TestAbsurdObjectAtStart: what was written while no agent ran is replaced, too, or leaves room for all changes.
func TestAbsurdObjectAtStart(t *testing.T) {
	for name, number := range absurd() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1, 3, 1, standardRules())
			w.keepLog = true
			if w.stabilize() == nil {
				t.Fatal("not stable")
			}
			for _, m := range w.nodes {
				m.stop()
			}
			w.run(time.Second)
			w.edit(func(v *View) { v.Number = number(v.Number) })
			for _, m := range w.nodes {
				m.start()
			}
			w.run(20 * time.Second)
			if len(w.unanswered()) > 0 || w.violation != "" || w.object.view.Number > MaxNumber/2 {
				t.Errorf("after 20 s %v are silent %s\n%s", w.unanswered(), w.violation, w.tail())
			}
		})
	}
}
