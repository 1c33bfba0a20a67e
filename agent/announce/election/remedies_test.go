package election

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestEventsEndByTheirRemedy makes the case of each Warning of the announcer, by the event from which package speaker
// words it, and does what the words say: then all nodes are members, the address answers, and the event does not come
// again.
func TestEventsEndByTheirRemedy(t *testing.T) {
	for warning, test := range map[string]struct {
		event EventKind
		// fault is made in a stable world, remedy is the advice.
		fault, remedy func(w *world, holder *machine)
	}{
		// The server of the node lost the VLAN, which diagnose reports there.
		"AnnouncerUnreachable": {MemberFailed, func(w *world, holder *machine) { w.isolate(holder, true) },
			func(w *world, holder *machine) { w.isolate(holder, false) }},
		"AnnouncerQuorumLost": {LeaseLost, func(w *world, holder *machine) {
			w.isolate(holder, true)
			holder.noAPI = true // or it learns that another node answers
		}, func(w *world, holder *machine) {
			w.isolate(holder, false)
			holder.noAPI = false
			w.relist(holder)
		}},
		// Too few nodes are left for a majority.
		"AnnouncerRemoved": {MemberOff, func(w *world, holder *machine) { w.powerOffAll(others(w, holder)) },
			func(w *world, holder *machine) {
				for _, m := range others(w, holder) {
					m.powerOn() // with its kubelet and its agent
				}
			}},
		"AnnouncerDuplicate": {DuplicateMember, startSecond, stopSecond},
		"AddressMovesOften": {MovesOften, func(w *world, _ *machine) {
			for i := range 60 {
				w.onlyEndpoint(w.nodes[i%3])
				w.run(time.Second)
			}
		}, func(w *world, _ *machine) {
			w.onlyEndpoint(w.nodes[0]) // which stays ready
		}},
	} {
		t.Run(warning, func(t *testing.T) {
			for seed := range uint64(5) {
				w := newWorld(seed, 3, 1, standardRules())
				w.keepLog = true
				w.keepLeases()
				holder := w.stabilize()
				if holder == nil {
					t.Fatalf("seed %d: not stable", seed)
				}
				test.fault(w, holder)
				w.run(3 * time.Minute)
				if w.reported(test.event) == 0 {
					t.Fatalf("seed %d: no event %s\n%s", seed, test.event, w.tail())
				}
				test.remedy(w, holder)
				w.run(time.Minute)
				w.log = nil
				w.run(20 * time.Minute)
				if n := w.reported(test.event); n > 0 || len(w.object.view.Members) != 3 || len(w.unanswered()) > 0 ||
					w.violation != "" {
					t.Errorf("seed %d: after the remedy there are %d events %s, members %q, unanswered %v %s\n%s",
						seed, n,
						test.event, w.object.view.Members, w.unanswered(), w.violation, w.tail())
				}
			}
		})
	}
}

// reported counts the events of a kind in the log.
func (w *world) reported(kind EventKind) (n int) {
	for _, line := range w.log {
		if strings.Contains(line, ": "+string(kind)+" ") {
			n++
		}
	}
	return n
}

// others are all machines but one.
func others(w *world, than *machine) (all []*machine) {
	for _, m := range w.nodes {
		if m != than {
			all = append(all, m)
		}
	}
	return all
}

// onlyEndpoint has the endpoints of the Service on one machine.
func (w *world) onlyEndpoint(on *machine) {
	for _, m := range w.nodes {
		m.facts.Wanted = map[netip.Addr]bool{address(0): m == on}
		m.sendFacts()
	}
}

// startSecond starts another agent with the name of the holder, on a machine of its own.
func startSecond(w *world, holder *machine) {
	second := *newWorld(1, 4, 1, w.rules).nodes[3]
	second.w = w
	second.name = holder.name
	for _, m := range append(w.nodes, &second) {
		m.deaf = append(m.deaf, false)
	}
	second.facts.Candidate = false
	w.nodes = append(w.nodes, &second)
	second.start()
}

// stopSecond stops that agent.
func stopSecond(w *world, _ *machine) {
	w.nodes[3].stop()
	w.nodes = w.nodes[:3]
}
