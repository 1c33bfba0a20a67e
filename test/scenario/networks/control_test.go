//go:build linux

package networks

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

// Whether a machine that shares two processors with other tests stands still is measured, because an agent that misses
// heartbeats for that reason has to move addresses. The control are requests to the gateway, which answers them itself:
// no server and no announcer has to do with them.
const (
	// slow is how long a request of the control takes at least if the machine stands still.
	slow = time.Second
	// aftermath is how long addresses may still move after that. An agent is suspected after three seconds.
	aftermath = 10 * time.Second
	// tries is how often a fault is made at most until the machine does not stand still.
	tries = 3
)

// harm is what a fault did where it should do nothing: when addresses moved, and when requests were lost.
type harm struct{ moves, requests []span }

// span is a stretch of time.
type span struct{ from, to time.Time }

func (s span) overlaps(o span) bool { return !s.to.Before(o.from) && !o.to.Before(s.from) }

func (s span) String() string {
	const layout = "15:04:05.000"
	return s.from.Format(layout) + " to " + s.to.Format(layout)
}

func spanOf(a lab.Attempt) span { return span{a.At, a.At.Add(a.Took)} }

// standstills are when the machine stood still, and a while after it, as the control shows; none overlaps another.
func standstills(control []lab.Attempt) []span {
	var all []span
	for _, a := range control {
		if a.OK && a.Took < slow {
			continue
		}
		s := spanOf(a)
		s.to = s.to.Add(aftermath)
		if last := len(all) - 1; last >= 0 && all[last].overlaps(s) {
			all[last].to = latest(all[last].to, s.to)
			continue
		}
		all = append(all, s)
	}
	return all
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// outside are those stretches of time that overlap none of others.
func outside(some, others []span) []span {
	return slices.DeleteFunc(slices.Clone(some), func(s span) bool { return slices.ContainsFunc(others, s.overlaps) })
}

// startControl begins to send requests to the gateway.
func (h *harness) startControl() {
	h.Helper()
	h.must("start a backend on the gateway", h.StartBackend(h.Context(), lab.Gateway, lab.Gateway))
	h.control = h.probe(netip.AddrPortFrom(lab.GatewayAddress, cluster.BackendPort), pace, 10*patience)
	h.row(h.control, "the gateway answers", true)
}

// harmOf makes a fault and returns the harm for which the machine is not to blame. If there is only harm while the
// machine stood still, which proves nothing, the fault is made again.
func (h *harness) harmOf(fault func() harm) harm {
	h.Helper()
	for range tries {
		seen := fault()
		if len(seen.moves)+len(seen.requests) == 0 {
			return seen
		}
		still := h.stoodStill()
		h.Logf("addresses moved at %v, and requests had no answer at %v; the machine stood still at %v", seen.moves,
			seen.requests, still)
		ours := harm{outside(seen.moves, still), outside(seen.requests, still)}
		if len(ours.moves)+len(ours.requests) > 0 {
			return ours
		}
		h.until("the emulated machine no longer stands still, which it may on a busy computer", func() (bool, string) {
			still := h.stoodStill()
			return still[len(still)-1].to.Before(time.Now()), fmt.Sprint(still)
		})
	}
	h.Fatalf("this computer is too busy: its emulated machine stood still during each of %d faults", tries)
	return harm{}
}

// stoodStill are when the machine has stood still since the control began.
func (h *harness) stoodStill() []span {
	h.Helper()
	return standstills(h.attempts(h.control))
}

func TestStandstills(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	request := func(begins, takes float64, ok bool) lab.Attempt {
		return lab.Attempt{At: at(begins), Took: at(takes).Sub(at(0)), OK: ok}
	}
	for name, test := range map[string]struct {
		control []lab.Attempt
		want    []span
	}{
		"no request":                {},
		"answered at once":          {control: []lab.Attempt{request(0, 0.1, true), request(1, 0.9, true)}},
		"one waits":                 {control: []lab.Attempt{request(0, 0.1, true), request(1, 2, true)}, want: []span{{at(1), at(13)}}},
		"one has no answer":         {control: []lab.Attempt{request(5, 0.1, false)}, want: []span{{at(5), at(15.1)}}},
		"the earlier one is longer": {control: []lab.Attempt{request(0, 9, true), request(1, 1, true)}, want: []span{{at(0), at(19)}}},
		"twice in a row":            {control: []lab.Attempt{request(0, 1, true), request(8, 1, true)}, want: []span{{at(0), at(19)}}},
		"twice":                     {control: []lab.Attempt{request(0, 1, true), request(12, 1, true)}, want: []span{{at(0), at(11)}, {at(12), at(23)}}},
	} {
		got := standstills(test.control)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: stood still at %v, want %v", name, got, test.want)
		}
	}
}

func TestOutside(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1000+int64(seconds), 0) }
	still := []span{{at(10), at(20)}, {at(30), at(40)}}
	for name, test := range map[string]struct {
		harm span
		want bool
	}{
		"before":                {span{at(1), at(9)}, true},
		"ends as it begins":     {span{at(1), at(10)}, false},
		"begins before":         {span{at(1), at(11)}, false},
		"within":                {span{at(12), at(13)}, false},
		"a moment within":       {span{at(35), at(35)}, false},
		"ends after":            {span{at(19), at(22)}, false},
		"begins as it ends":     {span{at(20), at(22)}, false},
		"between":               {span{at(21), at(29)}, true},
		"longer than all of it": {span{at(1), at(50)}, false},
		"after":                 {span{at(41), at(41)}, true},
	} {
		if got := len(outside([]span{test.harm}, still)) == 1; got != test.want {
			t.Errorf("%s: the machine is not to blame: %t, want %t", name, got, test.want)
		}
	}
	if got := len(outside([]span{{at(1), at(2)}}, nil)); got != 1 {
		t.Error("without a standstill the machine is to blame")
	}
}
