package election

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// answeredWithin is how long after the start of the agents all addresses are answered for, whatever the view was.
const answeredWithin = time.Minute

// anyView returns a view of any shape for a world: with members, owners and predecessors that exist or do not, with
// addresses of both families and of no Service, and with any numbers. It may contradict itself.
func (w *world) anyView(r *rand.Rand) *View {
	name := func() string {
		if r.IntN(3) > 0 {
			return w.nodes[r.IntN(len(w.nodes))].name
		}
		return fmt.Sprintf("ghost-%d", r.IntN(200))
	}
	v := &View{Number: 1 + r.Uint64N(2000), Owners: map[netip.Addr]Owner{}}
	v.Members = w.anyMembers(r)
	v.Changed = r.Uint64N(v.Number + 1)
	switch r.IntN(4) {
	case 0:
		v.Removed = name()
	case 1:
		v.Joined = name()
	case 2:
		v.Joined = v.Members[r.IntN(len(v.Members))]
	}
	for i := range w.addresses + 2 {
		if r.IntN(4) == 0 {
			continue
		}
		owner := Owner{Epoch: r.Uint64N(v.Number + 1)}
		if r.IntN(5) > 0 {
			owner.Node = name()
		}
		for range r.IntN(3) {
			owner.Before = append(owner.Before, name())
		}
		v.Owners[address(i)] = owner
	}
	if r.IntN(8) == 0 {
		v.Owners[netip.AddrFrom16([16]byte{0x20, 1, 15: byte(r.IntN(256))})] = Owner{Node: name()}
	}
	return v
}

// anyMembers returns nodes of the world, some that do not exist, or both; up to as many as a view can have.
func (w *world) anyMembers(r *rand.Rand) (members []string) {
	ghosts := []int{0, 0, 1, 2, 3, 10, MaxMembers}[r.IntN(7)]
	for i := range ghosts {
		members = append(members, fmt.Sprintf("ghost-%d", i))
	}
	for _, m := range w.nodes {
		if r.IntN(3) > 0 && len(members) < MaxMembers {
			members = append(members, m.name)
		}
	}
	if len(members) == 0 {
		members = []string{w.nodes[0].name}
	}
	slices.Sort(members)
	return members
}

// TestAnyView: whatever the view is when the agents start, all addresses are answered for within a minute, and two
// nodes never answer for one.
func TestAnyView(t *testing.T) {
	longest := time.Duration(0)
	refused := 0
	n := seeds.Count(t, 60)
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(seed, 1+r.IntN(5), 1+r.IntN(4), standardRules())
		w.keepLog = true
		w.keepLeases()
		v := w.anyView(r)
		w.object = object{exists: true, version: 1}
		if v.validate() == nil {
			w.object.view = v
		} else {
			refused++
		}
		w.note("starts with %s", describe(v))
		for _, m := range w.nodes {
			w.after(w.between(0, time.Second), m.start)
		}
		w.run(time.Second)
		took := w.silentFor(2 * answeredWithin)
		longest = max(longest, took)
		w.run(5 * time.Second)
		if took > answeredWithin || w.violation != "" || len(w.unanswered()) > 0 {
			t.Fatalf("seed %d: silent for %s %s\nit starts with %s\n%s", seed, took, w.violation, describe(v), w.tail())
		}
	}
	if refused == 0 || refused == n {
		t.Errorf("%d of %d views contradict themselves, want some", refused, n)
	}
	_, _ = fmt.Fprintf(t.Output(), "figure announcer_any_view_silent_max %.1f s\n", longest.Seconds())
}

// TestOwnerThatIsNoMember: an owner that is no member counts as none, also after the view was deleted.
func TestOwnerThatIsNoMember(t *testing.T) {
	for name, owner := range map[string]string{"does not exist": "ghost", "is not running": "node-d"} {
		for seed := range uint64(5) {
			w := newWorld(seed, 4, 1, standardRules())
			w.keepLog = true
			w.takeSpare()
			if w.stabilize() == nil {
				t.Fatal("not stable")
			}
			w.edit(func(v *View) {
				v.Number++
				v.Owners = map[netip.Addr]Owner{address(0): {Node: owner, Epoch: v.Number}}
			})
			w.run(10 * time.Millisecond)
			if took := w.silentFor(answeredWithin); took > 2*time.Second || w.violation != "" {
				t.Errorf("%s, seed %d: silent for %s %s\n%s", name, seed, took, w.violation, w.tail())
			}
		}
	}
}
