//go:build linux

package heartbeat

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// A segment is a VLAN on which two clusters announce, whose agents have the same names and the same key. Each frame of
// an agent comes to all others, also to those of the other cluster, through the code that reads frames from the wire.
type segment struct {
	*testing.T
	random   *rand.Rand
	now      time.Duration
	clusters [2]*cluster
	frames   []sentFrame
	wrong    string
}

type sentFrame struct {
	from  *agent
	frame []byte
}

// cluster is what the agents of one cluster share: an API server.
type cluster struct {
	s         *segment
	scope     Scope
	agents    []*agent
	addresses []netip.Addr
	view      *election.View
	version   int
	writes    int
	foreign   int
}

// agent is an agent, with its election and its receiver.
type agent struct {
	*cluster
	name     string
	boot     uint64
	election *election.Election // nil while it does not run
	receiver *receiver
	ring     *Ring
	grant    election.Grant
	next     time.Duration
}

// newSegment returns a segment with one to four agents in each cluster, which have not been started.
func newSegment(t *testing.T, seed uint64, scopes [2]Scope) *segment {
	t.Helper()
	s := &segment{T: t, random: rand.New(rand.NewPCG(seed, 1)), now: time.Hour}
	for i := range s.clusters {
		c := &cluster{s: s, scope: scopes[i]}
		for n := range 1 + s.random.IntN(4) {
			a := &agent{cluster: c, name: fmt.Sprintf("node-%c", 'a'+n), ring: ringOf(t, 1)}
			a.boot = s.random.Uint64N(1 << 40)
			a.ring.scope = c.scope
			c.agents = append(c.agents, a)
		}
		for n := range 1 + s.random.IntN(4) {
			c.addresses = append(c.addresses, netip.AddrFrom4([4]byte{203, 0, 113, byte(16*i + n)}))
		}
		s.clusters[i] = c
	}
	return s
}

// start starts an agent that does not run.
func (a *agent) start() {
	if a.election != nil {
		return
	}
	a.boot += 1 + a.s.random.Uint64N(1<<30)
	keys := NewKeys()
	keys.Set(keyOf(1), nil)
	transport := New(Config{Node: a.name, Boot: a.boot, Scope: a.scope, Keys: keys,
		Receive:       func(h *election.Heartbeat) { a.step(election.Heard{Heartbeat: h}) },
		ReplaySuspect: func(node string) { a.step(election.ReplaySuspect{Node: node}) },
		Foreign: func(node string) {
			a.foreign++
			a.step(election.Foreign{Node: node})
		}})
	a.receiver = newReceiver(transport)
	a.election = election.New(election.Config{Node: a.name, Boot: a.boot, First: uint64(a.s.now / time.Second),
		Seed: a.s.random.Uint64()})
	facts := election.Facts{Link: true, Candidate: true, Known: true, Wanted: map[netip.Addr]bool{}}
	for _, address := range a.addresses {
		facts.Wanted[address] = true
	}
	a.step(facts)
}

// crash ends an agent at once.
func (a *agent) crash() {
	a.election = nil
	a.grant = election.Grant{}
}

// step gives an input to the election and does what it requests. The API server answers at once.
func (a *agent) step(in election.Input) {
	if a.election == nil {
		return
	}
	out := a.election.Step(a.s.now, in)
	a.grant = out.Grant
	a.next = out.Next
	if out.Send != nil {
		a.receiver.transport.sent.Store(out.Send.Sequence)
		for _, frame := range framesOf(out.Send, a.ring) {
			a.s.frames = append(a.s.frames, sentFrame{a, frame})
		}
	}
	switch {
	case out.Read:
		a.step(election.Read{Found: a.view != nil, View: a.view, Version: a.current(), Asked: true})
	case out.Write != nil:
		a.write(out.Write)
	case out.List:
		all := map[netip.Addr]bool{}
		for _, address := range a.addresses {
			all[address] = true
		}
		a.step(election.Listed{Addresses: all})
	}
	if out.Examine != nil {
		a.step(election.Examined{}) // nothing is known of the silent ones
	}
	if out.Restart {
		a.crash()
		a.start()
	}
}

func (c *cluster) current() string {
	if c.view == nil {
		return ""
	}
	return fmt.Sprint(c.version)
}

func (a *agent) write(w *election.Write) {
	if w.Version != a.current() {
		a.step(election.Wrote{Err: fmt.Errorf("conflict")})
		return
	}
	c := a.cluster
	c.view = w.View
	c.version++
	c.writes++
	for _, other := range c.agents {
		if other != a {
			other.step(election.Read{Found: true, View: c.view, Version: c.current()})
		}
	}
	a.step(election.Wrote{View: c.view, Version: c.current()})
}

// run lets time pass, and stops when something is wrong. After each step, watch looks at what must hold then.
func (s *segment) run(d time.Duration, watch func() string) {
	for end := s.now + d; s.now < end && s.wrong == ""; s.now += 5 * time.Millisecond {
		for _, c := range s.clusters {
			for _, a := range c.agents {
				if s.now >= a.next {
					a.step(election.Tick{})
				}
			}
		}
		s.carry()
		for _, c := range s.clusters {
			s.note(c.unsafe())
		}
		s.note(watch())
	}
}

func (s *segment) note(wrong string) {
	if s.wrong == "" && wrong != "" {
		s.wrong = fmt.Sprintf("after %s: %s", s.now-time.Hour, wrong)
	}
}

// carry brings all frames that were sent to all agents.
func (s *segment) carry() {
	for len(s.frames) > 0 {
		sent := s.frames
		s.frames = nil
		for _, f := range sent {
			for _, c := range s.clusters {
				for _, a := range c.agents {
					if a != f.from && a.election != nil {
						a.receiver.handle(s.Context(), slices.Clone(f.frame), time.Unix(0, 0).Add(s.now))
					}
				}
			}
		}
	}
}

// holders are the agents that answer for an address now, of any cluster.
func (s *segment) holders(address netip.Addr) (all []*agent) {
	for _, c := range s.clusters {
		for _, a := range c.agents {
			if a.election != nil && s.now < a.grant.Until && slices.Contains(a.grant.Addresses, address) {
				all = append(all, a)
			}
		}
	}
	return all
}

// unsafe returns what must never be: an address with two holders, or one of the other cluster, and a view with
// something of the other cluster.
func (c *cluster) unsafe() string {
	for _, address := range c.addresses {
		holders := c.s.holders(address)
		if len(holders) > 1 {
			return fmt.Sprintf("%d agents answer for %s", len(holders), address)
		}
		if len(holders) == 1 && holders[0].cluster != c {
			return fmt.Sprintf("an agent of the other cluster answers for %s", address)
		}
	}
	if c.view == nil {
		return ""
	}
	for _, member := range c.view.Members {
		if !slices.ContainsFunc(c.agents, func(a *agent) bool { return a.name == member }) {
			return fmt.Sprintf("%s of the other cluster is a member: %v", member, c.view.Members)
		}
	}
	for address := range c.view.Owners {
		if !slices.Contains(c.addresses, address) {
			return fmt.Sprintf("the view has %s of the other cluster", address)
		}
	}
	return ""
}

// silent returns an address for which no agent answers.
func (c *cluster) silent() string {
	for _, address := range c.addresses {
		if len(c.s.holders(address)) == 0 {
			return fmt.Sprintf("no agent of %d answers for %s", len(c.agents), address)
		}
	}
	return ""
}

// disturb crashes or starts an agent of a cluster.
func (c *cluster) disturb() {
	a := c.agents[c.s.random.IntN(len(c.agents))]
	if a.election != nil && c.s.random.IntN(2) == 0 {
		a.crash()
		return
	}
	a.start()
}

// play has one cluster work, starts the other one later, lets agents of it fail, and returns what is wrong.
func (s *segment) play() string {
	nothing := func() string { return "" }
	first := s.clusters[0]
	second := s.clusters[1]
	for _, a := range first.agents {
		a.start()
		s.run(time.Duration(s.random.IntN(int(300*time.Millisecond))), nothing)
	}
	s.run(10*time.Second, nothing)
	s.note(first.silent())
	writes := first.writes
	steady := func() string {
		switch {
		case first.writes != writes:
			return fmt.Sprintf("%d writes because of the other cluster", first.writes-writes)
		default:
			return first.silent()
		}
	}
	for _, a := range second.agents {
		a.start()
		s.run(time.Duration(s.random.IntN(int(300*time.Millisecond))), steady)
	}
	s.run(10*time.Second, steady)
	s.note(second.silent())
	for range 20 {
		second.disturb()
		s.run(time.Duration(s.random.IntN(int(4*time.Second))), steady)
	}
	for _, a := range second.agents {
		a.start()
	}
	s.run(15*time.Second, steady)
	s.note(second.silent())
	return s.wrong
}

// TestTwoClusters: two clusters on one VLAN with one key and the same names of Nodes, or one cluster on two networks
// whose frames reach each other, do not notice each other except that they report it: no view has anything of the other
// one, each address has one holder, and while agents of one cluster come and go, the other one writes nothing and never
// falls silent.
func TestTwoClusters(t *testing.T) {
	own := ScopeOf("cluster-a", "network-a")
	for name, other := range map[string]Scope{
		"another cluster": ScopeOf("cluster-b", "network-a"),
		"another network": ScopeOf("cluster-a", "network-b"),
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(seeds.Count(t, 20)) {
				s := newSegment(t, seed, [2]Scope{own, other})
				if wrong := s.play(); wrong != "" {
					t.Errorf("seed %d: %s", seed, wrong)
				}
				if s.wrong == "" && (s.clusters[0].foreign == 0 || s.clusters[1].foreign == 0) {
					t.Errorf("seed %d: the clusters reported each other %d and %d times, want both", seed,
						s.clusters[0].foreign, s.clusters[1].foreign)
				}
			}
		})
	}
}
