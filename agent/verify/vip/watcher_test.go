package vip

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/debounce"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// world is a cluster of two nodes and a machine that is no Node. srv-1 announces the address of a Service.
type world struct {
	*segment
	a, b, foreign *machine
	address       netip.Addr
}

func newWorld(t *testing.T) *world {
	s := newSegment(t)
	w := &world{segment: s, a: s.node(1), b: s.node(2), foreign: s.machine(3), address: s.serve(3)}
	w.a.hold(w.address)
	return w
}

// TestStates makes each state of kube-vip and expects either node to name it, in time, and to take it back when it is
// over.
func TestStates(t *testing.T) {
	const soon, turns = 8 * time.Second, 30 * time.Second
	for name, tc := range map[string]struct {
		state func(w *world)
		a, b  string // reasons
		limit time.Duration
	}{
		"healthy": {func(*world) {}, ReasonAnswered, ReasonAnswered, soon},
		"killed: the kernel keeps answering, another node takes over": {func(w *world) {
			delete(w.a.announces, w.address)
			w.b.hold(w.address)
		}, ReasonStaleAddress, ReasonDuplicate, soon},
		"killed, and no node takes over": {func(w *world) {
			delete(w.a.announces, w.address)
			w.lease(w.address, announcer.Expired, w.a.name)
		}, ReasonLeaseExpired, "", soon},
		"the address is taken by hand": {func(w *world) { delete(w.a.carries, w.address) }, ReasonHolderSilent,
			ReasonHolderSilent, turns},
		"the kernel does not answer": {func(w *world) { w.a.deaf = true }, ReasonAnswered, ReasonHolderSilent, turns},
		"no machine": {func(w *world) { w.a.drop(w.address); w.lease(w.address, announcer.Released, "") },
			ReasonNoAnswer, ReasonNoAnswer, turns},
		"a second claim": {func(w *world) { w.b.carries[w.address] = []string{vif} }, ReasonDuplicate,
			ReasonStaleAddress, turns},
		"a second claim, announced": {func(w *world) {
			w.b.carries[w.address] = []string{vif}
			w.b.announces[w.address] = true
		},
			ReasonDuplicate, ReasonStaleAddress, soon},
		"a foreign claim, announced": {func(w *world) {
			w.foreign.carries[w.address] = []string{vif}
			w.foreign.announces[w.address] = true
		},
			ReasonForeignOwner, ReasonForeignOwner, turns},
		"only a foreign machine": {func(w *world) {
			w.a.drop(w.address)
			w.foreign.carries[w.address] = []string{vif}
			w.foreign.announces[w.address] = true
		}, ReasonForeignOwner, "", turns},
		"the wrong interface": {func(w *world) { w.a.drop(w.address); w.a.carries[w.address] = []string{"bond0"} },
			ReasonWrongInterface, ReasonHolderSilent, turns},
		"no way back": {func(w *world) { w.a.returnBy = "bond0" }, ReasonReturnPath, ReasonAnswered, soon},
		"another node answers": {func(w *world) {
			w.a.drop(w.address)
			w.b.hold(w.address)
			w.lease(w.address,
				announcer.Held, w.a.name)
		},
			ReasonWrongNode, ReasonStaleAddress, turns},
		"the VLAN is broken":   {func(w *world) { w.a.ready = false }, ReasonVLANNotReady, ReasonAnswered, soon},
		"nothing can be asked": {func(w *world) { w.lost = true }, ReasonNotAsked, ReasonNotAsked, turns},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.run()()
				after(20 * time.Second)
				w.expect("before", ReasonAnswered, ReasonAnswered)
				w.change(func() { tc.state(w) })
				after(tc.limit)
				w.expect("after "+tc.limit.String(), tc.a, tc.b)
				w.change(w.repair)
				after(turns)
				w.expect("repaired", ReasonAnswered, ReasonAnswered)
			})
		})
	}
}

// repair restores the initial state.
func (w *world) repair() {
	for _, m := range w.machines {
		m.drop(w.address)
		m.deaf = false
		m.ready = true
		m.returnBy = vif
	}
	w.lost = false
	w.a.hold(w.address)
}

func (w *world) expect(when, a, b string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for m, want := range map[*machine]string{w.a: a, w.b: b} {
		if want != "" && m.outcome.Reason != want {
			w.t.Errorf("%s: the result of %s is %s (%s), want %s", when, m.name, m.outcome.Reason, m.outcome.Message,
				want)
		}
	}
}

// TestHandover: that an address moves cleanly from node to node is never a fault, on any node.
func TestHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		after(20 * time.Second)
		from := w.a
		to := w.b
		for i := range 50 {
			w.change(func() { from.drop(w.address); w.lease(w.address, announcer.Released, "") })
			after([]time.Duration{700 * time.Millisecond, 4400 * time.Millisecond}[i%2])
			w.change(func() { to.hold(w.address) })
			after(11*time.Second + 137*time.Millisecond)
			from, to = to, from
		}
		if w.a.conditions != 1 || w.b.conditions != 1 {
			t.Errorf("the results changed %d and %d times: %s, %s", w.a.conditions, w.b.conditions, w.a.outcome.Message,
				w.b.outcome.Message)
		}
		for _, m := range []*machine{w.a, w.b} {
			if slices.ContainsFunc(m.events, func(reason string) bool { return reason != EventAnnounced }) {
				t.Errorf("%s records %v, want only that it announces the address", m.name, m.events)
			}
		}
	})
}

// TestNewService: a Service whose address no node has added yet changes nothing for the others, and is named
// when there was time to take it up.
func TestNewService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		after(time.Minute)
		w.change(func() { w.a.deaf = true })
		after(30 * time.Second)
		w.expect("a fault", ReasonAnswered, ReasonHolderSilent)
		w.change(func() { w.a.deaf = false; w.serve(4) })
		for range 6 {
			after(2 * time.Second)
			w.expect("a new Service", ReasonAnswered, "")
		}
		after(startupTime + spread)
		w.expect("without an announcer", ReasonNoAnswer, ReasonNoAnswer)
		w.change(func() { w.b.hold(netip.AddrFrom4([4]byte{203, 0, 113, 4})) })
		after(20 * time.Second)
		w.expect("taken up", ReasonAnswered, ReasonAnswered)
	})
}

// TestNoEndpoints: that kube-vip announces nothing for a Service without endpoints is no fault of any node: the agents
// wait until the controller has reported why, and warn. Without a controller they report that no machine answers.
func TestNoEndpoints(t *testing.T) {
	for name, controller := range map[string]bool{"a controller": true, "no controller": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.run()()
				after(20 * time.Second)
				w.change(func() { w.a.drop(w.address); w.lease(w.address, announcer.Released, "") })
				for range 40 {
					after(time.Second)
					if controller && (w.a.entry(w.address).State == contract.AddressSilent ||
						w.b.entry(w.address).State == contract.AddressSilent) {
						w.change(func() { w.say(w.address, metav1.ConditionFalse, contract.AnnouncedNoEndpoints) })
					}
				}
				if !controller {
					w.expect("no reason is known", ReasonNoAnswer, ReasonNoAnswer)
					return
				}
				for _, m := range []*machine{w.a, w.b} {
					if got := m.findings[w.address]; got.Status != check.Warn || got.Reason != ReasonNoEndpoints {
						t.Errorf("%s finds %+v, want a warning", m.name, got)
					}
					if m.conditions > 2 || m.outcome.Status != check.OK {
						t.Errorf("%s: the result changed %d times and is %+v", m.name, m.conditions, m.outcome)
					}
				}
				w.change(func() { w.b.hold(w.address) })
				after(20 * time.Second)
				w.expect("endpoints again", ReasonAnswered, ReasonAnswered)
			})
		})
	}
}

// TestFlapping: an address that comes and goes all the time does not change the result all the time.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		after(time.Minute)
		begun := w.a.changes()
		for range 180 {
			w.change(func() { w.a.returnBy = "bond0" })
			after(10 * time.Second)
			w.change(func() { w.a.returnBy = vif })
			after(10 * time.Second)
		}
		if got := w.a.changes() - begun; got < 16 || got > 60 {
			t.Errorf("the result changed %d times in an hour of flapping, want 16 to 60", got)
		}
		after(debounce.LastHold + 10*time.Second)
		w.expect("after the last", ReasonAnswered, ReasonAnswered)
	})
}

// changes is how often the result has changed.
func (m *machine) changes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conditions
}

// TestRequests: how many questions are on the wire does not grow with the number of nodes, whether announcements are
// received all the time or, with agents, only when an address moves.
func TestRequests(t *testing.T) {
	const nodes, addresses, hours = 40, 5, 1
	for kind, agents := range map[string]bool{"kube-vip": false, "agents": true} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSegment(t)
				s.agents = agents
				for n := range nodes {
					s.node(n + 1)
				}
				for n := range addresses {
					s.machines[n].answer(s.serve(n + 1))
				}
				stop := s.run()
				after(time.Minute)
				begun := s.asked()
				after(hours * time.Hour)
				stop()
				// Each holder asks every 14 to 20 s whether another machine answers, so does one of the others, and all
				// of them every half an hour.
				least := 2 * addresses * hours * 3600 / 20
				most := 2*addresses*hours*3600/14 + nodes*addresses*hours*2
				if got := s.requests - begun; got < least || got > most {
					t.Errorf("%d questions in %d h, want %d to %d", got, hours, least, most)
				}
				for _, m := range s.machines {
					if m.conditions != 1 || m.outcome.Status != check.OK {
						t.Errorf("%s: the result changed %d times and is %+v", m.name, m.conditions, m.outcome)
					}
				}
			})
		})
	}
}

// TestSilentWithoutAnnouncements: that an address falls silent of which there were no announcements is found by one
// node in time, and by all nodes soon after it, which hear that this one repeats its question.
func TestSilentWithoutAnnouncements(t *testing.T) {
	const nodes = 40
	for range seeds.Count(t, 3) {
		synctest.Test(t, func(t *testing.T) {
			s := newSegment(t)
			s.agents = true
			for n := range nodes {
				s.node(n + 1)
			}
			s.machines[0].answer(s.serve(3))
			defer s.run()()
			after(5*time.Minute + rand.N(time.Minute))
			s.mu.Lock()
			s.machines[0].deaf = true
			s.mu.Unlock()
			after(30 * time.Second)
			if s.knowing(ReasonNoAnswer) == 0 {
				t.Error("30 s later no node knows that no machine answers")
			}
			after(20 * time.Second)
			if got := s.knowing(ReasonNoAnswer); got != nodes-1 {
				t.Errorf("50 s later %d nodes know that no machine answers, want all but its owner", got)
			}
		})
	}
}

// knowing is how many nodes have a result for a reason.
func (s *segment) knowing(reason string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, m := range s.machines {
		if m.outcome.Reason == reason {
			count++
		}
	}
	return count
}

// TestFewReport: of many nodes a few report an address, once the controller has published what they report.
func TestFewReport(t *testing.T) {
	const nodes = 40
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(t)
		for n := range nodes {
			s.node(n + 1)
		}
		a := s.serve(3)
		s.machines[0].hold(a)
		stop := s.run()
		defer stop()
		for range 100 { // the controller publishes what is reported, a moment later
			after(200 * time.Millisecond)
			s.change(func() { s.control(a) })
		}
		// The holder dies with its network.
		s.change(func() {
			s.machines[0].ready = false
			s.machines[0].drop(a)
			s.lease(a, announcer.Expired, s.machines[0].name)
		})
		for range 200 {
			after(200 * time.Millisecond)
			s.change(func() { s.control(a) })
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		reporting := 0
		writes := 0
		events := 0
		for _, m := range s.machines[1:] {
			if entry, is := m.reported[a]; is {
				reporting++
				if entry.State != contract.AddressSilent {
					t.Errorf("%s reports %+v, want it silent", m.name, entry)
				}
			}
			writes, events = writes+m.reports, events+len(m.events)
			if m.outcome.Reason != ReasonNoAnswer {
				t.Errorf("%s: result %+v", m.name, m.outcome)
			}
		}
		if reporting < 1 || reporting > nodes/4 || writes > 2*reporting || events < 1 || events > reporting {
			t.Errorf("%d of %d nodes report, with %d changes and %d events; want few of each",
				reporting, nodes-1, writes, events)
		}
	})
}

// control sets the condition of the Service to what the nodes report.
func (s *segment) control(a netip.Addr) {
	states := map[contract.AddressState]bool{}
	for _, m := range s.machines {
		if entry, is := m.reported[a]; is {
			states[entry.State] = true
		}
	}
	switch {
	case states[contract.AddressAnswered]:
		s.say(a, metav1.ConditionTrue, "Answered")
	case states[contract.AddressSilent]:
		s.say(a, metav1.ConditionFalse, "Silent")
	default:
		s.say(a, metav1.ConditionUnknown, "NotReported")
	}
}

// TestGone: an address whose Service is gone is watched until the quarantine is over, by those who reported it, also by
// an agent that was started meanwhile; and a node that still carries it reports that.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.b.before = contract.ReportedAddresses{w.address: {State: contract.AddressAnswered, MAC: w.a.mac,
			Since: time.Now()}}
		stop := w.run()
		after(20 * time.Second)
		w.change(func() { w.services = nil })
		after(11 * time.Second)
		if got := w.b.entry(w.address); got.State != contract.AddressAnswered || got.MAC != w.a.mac {
			t.Errorf("srv-2 reports %+v while it is answered", got)
		}
		if w.a.last().Status != check.OK {
			t.Errorf("srv-1 has a finding before kube-vip could remove the address: %+v", w.a.last())
		}
		after(20 * time.Second)
		if w.a.last().Reason != ReasonStaleAddress {
			t.Errorf("srv-1, which carries an address of no Service: %+v", w.a.last())
		}
		w.change(func() { w.a.drop(w.address) })
		after(11 * time.Second)
		if got := w.a.entry(w.address); got.State != contract.AddressSilent || got.Held {
			t.Errorf("srv-1 reports %+v after it released the address", got)
		}
		if w.a.last().Reason != ReasonNothingAnnounced {
			t.Errorf("srv-1 after it released the address: %+v", w.a.last())
		}
		after(time.Minute)
		if got := w.b.entry(w.address); got.State != contract.AddressSilent {
			t.Errorf("srv-2 reports %+v after the last answer", got)
		}
		after(remembered)
		stop()
		if len(w.a.reported) > 0 || len(w.b.reported) > 0 {
			t.Errorf("a quarter of an hour later there is reported: %v, %v", w.a.reported, w.b.reported)
		}
	})
}

// TestRestart: an agent that restarts changes nothing that holds, and records nothing again.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		after(20 * time.Second)
		stop()
		if len(w.a.reported) != 1 || !w.a.reported[w.address].Held ||
			!slices.Equal(w.a.events, []string{EventAnnounced}) {
			t.Fatalf("the first agent reports %v and records %v", w.a.reported, w.a.events)
		}
		first := w.a.reported
		again := New(w.a.watcher.Config)
		w.a.watcher = again
		w.a.before = first
		w.a.reports = 0
		w.a.events = nil
		stop = w.run()
		after(time.Minute)
		stop()
		if w.a.reports != 0 || len(w.a.events) != 0 {
			t.Errorf("the second agent reports %v (%d changes) and records %v", w.a.reported, w.a.reports, w.a.events)
		}
	})
}

// TestFlood: a storm of claims by ever other machines neither fills the memory nor makes the node ask without a pause.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		after(20 * time.Second)
		before := w.asked()
		for i := range 10_000 {
			mac := "02:ff:" + time.Unix(int64(i), 0).UTC().Format("15:04:05")
			w.mu.Lock()
			w.broadcast(arp.Announcement{Address: w.address, MAC: mac, Target: w.address})
			w.mu.Unlock()
			after(time.Millisecond)
		}
		o := Observation{Target: Target{Address: w.address}}
		if w.a.watcher.scheduler.Record(&o, time.Now()); len(o.MACs) > 2*maxClaimants {
			t.Errorf("%d machines are remembered", len(o.MACs))
		}
		if asked := w.asked() - before; asked > 2*2*11 {
			t.Errorf("%d questions in 10 s of flood", asked)
		}
		if v := w.a.last(); v.Reason != ReasonForeignOwner || len(v.Message) > 1024 {
			t.Errorf("result %s with a message of %d bytes, want the foreign claims named", v.Reason, len(v.Message))
		}
		stop()
	})
}

func TestFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		after(20 * time.Second)
		w.change(func() { w.b.hold(w.address) })
		after(30 * time.Second)
		stop()
		f := w.a.watcher.Figures()
		if f.Asked == 0 || len(f.Addresses) != 1 || f.Addresses[0].Machines != 2 ||
			f.Addresses[0].Mismatch < 15*time.Second || f.Addresses[0].Mismatch > 30*time.Second {
			t.Errorf("figures of a node that carries an address against the lease for 30 s: %+v", f)
		}
	})
}
