//go:build linux

package heartbeat

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
)

// viewsOfAnyShape are views as a person may write them, or an agent whose key was stolen.
var viewsOfAnyShape = []string{
	`{"number":2,"members":["a","b"],"owners":{"203.0.113.3":{"node":"a","epoch":2}}}`,
	`{"number":2,"members":["a","b"],"owners":{"2001:db8::3":{"node":"a","epoch":2}}}`,
	`{"number":2,"members":["a"],"owners":{"2001:db8::3":{"node":"a","epoch":1},"::ffff:203.0.113.3":{"node":"a"}}}`,
	`{"number":2,"members":["a"],"owners":{"fe80::1%eth0":{"node":"a"}}}`,
	`{"number":2,"members":["a","b"],"owners":{"203.0.113.3":{"node":"none","epoch":2,"before":["other","a"]}}}`,
	`{"number":2,"members":["none","other"],"owners":{"203.0.113.3":{"node":"a","before":["b"]}}}`,
	`{"number":2,"changed":2,"removed":"a","members":["a","b"],"owners":{}}`,
	`{"number":2,"changed":2,"joined":"none","members":["a","b"],"owners":{}}`,
	`{"number":2,"members":["","a"],"owners":{"203.0.113.3":{"node":""}}}`,
	`{"number":9007199254740990,"members":["a"]}`,
}

// large views have as much as they can, and a little more.
func largeViews() (all []string) {
	for _, n := range []int{1, election.MaxMembers, election.MaxMembers + 1} {
		for _, m := range []int{election.MaxListed + 1, election.MaxAddresses, election.MaxAddresses + 1} {
			members := make([]string, n)
			for i := range members {
				members[i] = fmt.Sprintf(`"a%03d"`, i)
			}
			owners := make([]string, m)
			for i := range owners {
				owners[i] = fmt.Sprintf(`"203.%d.%d.%d":{"node":"a%03d","epoch":2}`, i>>16, i>>8&255, i&255, i%(n+1))
			}
			all = append(all, fmt.Sprintf(`{"number":2,"members":[%s],"owners":{%s}}`, strings.Join(members, ","),
				strings.Join(owners, ",")))
		}
	}
	return all
}

// FuzzViewToWire: the agents that read any view that the parser takes send heartbeats that others read as they were,
// and write only views that can be read. Large views are those of TestLargeViews.
func FuzzViewToWire(f *testing.F) {
	for _, raw := range viewsOfAnyShape {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if v, err := election.ParseView(raw); err == nil && len(raw) < 4096 {
			playView(t, v, election.MaxListed+1)
		}
	})
}

// TestLargeViews: as FuzzViewToWire, with views of all sizes.
func TestLargeViews(t *testing.T) {
	taken := 0
	for _, raw := range slices.Concat(viewsOfAnyShape, largeViews()) {
		if v, err := election.ParseView(raw); err == nil {
			taken++
			playView(t, v, election.MaxAddresses+1)
		}
	}
	if taken < 5 {
		t.Errorf("%d views were taken, want all that contradict nothing", taken)
	}
}

// agents of a view, which hear each other and share what is stored.
type agents struct {
	t       *testing.T
	all     []*election.Election
	names   []string
	view    *election.View
	version int
}

// playView lets some of the nodes that a view names, and one that it does not, work with it for two seconds.
// The nodes know of some Services.
func playView(t *testing.T, v *election.View, services int) {
	t.Helper()
	names := map[string]bool{v.Members[0]: true, v.Members[len(v.Members)-1]: true, "newcomer": true}
	for _, owner := range v.Owners {
		if names[owner.Node] = true; len(names) > 3 {
			break
		}
	}
	delete(names, "")
	a := &agents{t: t, view: v, version: 1, names: slices.Sorted(maps.Keys(names))}
	wanted := map[netip.Addr]bool{netip.MustParseAddr("198.51.100.7"): true}
	for i := range services {
		wanted[netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})] = i%2 == 0
	}
	for i, name := range a.names {
		e := election.New(election.Config{Node: name, Boot: 1, First: 1, Seed: uint64(i)})
		a.all = append(a.all, e)
		a.step(i, 0, election.Facts{Link: true, Candidate: true, Known: true, Wanted: wanted})
	}
	for beat := range 20 {
		for i := range a.all {
			a.step(i, time.Duration(beat)*election.HeartbeatInterval, election.Tick{})
		}
	}
}

func (a *agents) step(i int, now time.Duration, in election.Input) {
	out := a.all[i].Step(now, in)
	if out.Send != nil {
		a.send(i, now, out.Send)
	}
	switch {
	case out.Read:
		a.step(i, now, election.Read{Found: true, View: a.view, Version: fmt.Sprint(a.version), Asked: true})
	case out.Write != nil:
		a.write(i, now, out.Write)
	case out.List:
		a.step(i, now, election.Listed{Addresses: map[netip.Addr]bool{netip.MustParseAddr("198.51.100.7"): true}})
	}
	if out.Examine != nil {
		a.step(i, now, election.Examined{})
	}
}

// write stores a view, as the store does.
func (a *agents) write(i int, now time.Duration, w *election.Write) {
	if w.Version != fmt.Sprint(a.version) {
		a.step(i, now, election.Wrote{Err: fmt.Errorf("conflict")})
		return
	}
	raw, err := w.View.Encode()
	if err != nil {
		a.t.Fatalf("%s writes a view that cannot be written: %v", a.names[i], err)
	}
	if _, err = election.ParseView(raw); err != nil {
		a.t.Fatalf("%s writes a view that cannot be read: %v", a.names[i], err)
	}
	a.view = w.View
	a.version++
	a.step(i, now, election.Wrote{View: w.View, Version: fmt.Sprint(a.version)})
}

// send carries a heartbeat to the others as the wire does.
func (a *agents) send(i int, now time.Duration, h *election.Heartbeat) {
	if err := check(h); err != nil {
		a.t.Fatalf("%s sends nothing: %v", a.names[i], err)
	}
	body := appendBody(nil, h)
	if parts := (len(body) + maxBody(h.Node) - 1) / maxBody(h.Node); parts > maxParts {
		a.t.Fatalf("%s sends %d parts, want at most %d", a.names[i], parts, maxParts)
	}
	got := &election.Heartbeat{Node: h.Node, Boot: h.Boot, Sequence: h.Sequence, Format: h.Format}
	if !parseBody(body, got) {
		a.t.Fatalf("%s sends what no other node can read: %+v", a.names[i], h)
	}
	if diff := cmp.Diff(h, got, compare); diff != "" {
		a.t.Fatalf("%s sends something else than it means (-want +got):\n%s", a.names[i], diff)
	}
	for j := range a.all {
		if j != i {
			a.step(j, now, election.Heard{Heartbeat: got})
		}
	}
}
