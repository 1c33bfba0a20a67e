package vip

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kinds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// leave makes the Service of an address leave as one that is deleted does, or one that becomes another type and is not
// seen by agents any more.
func (s *segment) leave(a netip.Addr, deleted bool) {
	for i, service := range s.services {
		if service.Annotations[contract.ServiceIPAddress] != a.String() {
			continue
		}
		if !deleted {
			s.services = append(s.services[:i:i], s.services[i+1:]...)
			return
		}
		going := service.DeepCopy()
		going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		s.services[i] = going
		return
	}
}

// speaking are the nodes that report an answer for an address.
func (s *segment) speaking(a netip.Addr) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		if entry := m.reported[a]; entry.State == contract.AddressAnswered || entry.State == contract.AddressDuplicate {
			names = append(names, m.name)
		}
	}
	return names
}

// TestLeaving: when the agents stop answering for the address of a Service that leaves, all of those that reported that
// it is answered take that back within seconds, because the controller waits for them; and none does while it is
// answered still.
func TestLeaving(t *testing.T) {
	for how, deleted := range map[string]bool{"deleted": true, "not listed any more": false} {
		t.Run(how, func(t *testing.T) {
			for range seeds.Count(t, 10) {
				seed := rand.Uint64()
				synctest.Test(t, func(t *testing.T) {
					t.Logf("seed %d", seed)
					random := rand.New(rand.NewPCG(seed, 0))
					s := newSegment(t)
					s.agents = true
					nodes := []*machine{s.node(1), s.node(2), s.node(3)}
					address := s.serve(3)
					nodes[0].answers[address] = true
					defer s.run()()
					// The controller is slow: all have had their turn to probe and to report that the address answers.
					after(10*time.Minute + time.Duration(random.Int64N(int64(time.Minute))))
					s.change(func() { s.say(address, metav1.ConditionTrue, string(contract.AddressAnswered)) })
					after(time.Duration(random.Int64N(int64(time.Minute))))
					if got := s.speaking(address); len(got) != len(nodes) {
						t.Fatalf("%q report that the address answers, want all nodes", got)
					}
					s.change(func() { s.leave(address, deleted) })
					for range 5 {
						after(time.Duration(random.Int64N(int64(2 * time.Second))))
						if got := s.speaking(address); len(got) != len(nodes) {
							t.Fatalf("%q report that the address answers, which it does, want all nodes", got)
						}
					}
					s.mu.Lock()
					delete(nodes[0].answers, address)
					s.mu.Unlock()
					after(4 * time.Second)
					if got := s.speaking(address); len(got) > 0 {
						t.Errorf("4 s after the last answer %q still report one", got)
					}
				})
			}
		})
	}
}

// TestLeavingIsAskedForAWhile: an address that is answered although its Service left long ago is not probed every
// second.
func TestLeavingIsAskedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(t)
		s.agents = true
		node, address := s.node(1), s.serve(3)
		node.answers[address] = true
		stranger := s.machine(2)
		defer s.run()()
		after(30 * time.Second)
		s.change(func() {
			s.leave(address, true)
			delete(node.answers, address)
			stranger.carries[address] = []string{vif}
		})
		after(5 * time.Minute)
		before := s.asked()
		after(5 * time.Minute)
		if n := s.asked() - before; n > 30 {
			t.Errorf("in five minutes %d questions for an address that left ten minutes ago", n)
		}
	})
}

// TestNoteLeaving: an address leaves when no Service has it, agents announce, and this node reports an answer.
func TestNoteLeaving(t *testing.T) {
	for name, tc := range map[string]struct {
		phase     phase
		announcer string
		said      contract.AddressState
		want      bool
	}{
		"leaves":               {gone, contract.AnnouncerAgent, contract.AddressAnswered, true},
		"published":            {published, contract.AnnouncerAgent, contract.AddressAnswered, false},
		"kube-vip announces":   {gone, contract.AnnouncerKubeVIP, contract.AddressAnswered, false},
		"nothing was reported": {gone, contract.AnnouncerAgent, "", false},
		"no announcer":         {gone, contract.AnnouncerNone, contract.AddressAnswered, false},
		"silent":               {gone, contract.AnnouncerAgent, contract.AddressSilent, false},
	} {
		var st addressState
		st.noteLeaving(subject{phase: tc.phase}, View{By: kinds.All(nil).Of(tc.announcer)}, tc.said)
		if got := !st.leftAt.IsZero(); got != tc.want || st.atWire != tc.want {
			t.Errorf("%s: leaves %t, asks the wire at once %t; want %t", name, got, st.atWire, tc.want)
		}
	}
}
