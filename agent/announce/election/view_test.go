package election

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var compareAddresses = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestViewRoundTrip(t *testing.T) {
	v := &View{Number: 9, Members: []string{"srv-a", "srv-b"}, Changed: 7, Removed: "srv-c",
		Owners: map[netip.Addr]Owner{
			address(0): {Node: "srv-a", Epoch: 7, Before: []string{"srv-c"}},
			address(1): {Epoch: 9},
		}}
	v.Stamp(time.Date(2026, 1, 2, 3, 4, 5, 6_007_008, time.UTC))
	raw, err := v.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseView(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v, got, compareAddresses); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if since := got.Owners[address(0)].Since; since.IsZero() {
		t.Error("the time of the owner was not written")
	}
}

func TestParseViewRefuses(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`"a",`, MaxMembers+1), ",")
	clash := sameIDs()
	var addressList strings.Builder
	for i := range MaxAddresses + 1 {
		_, _ = fmt.Fprintf(&addressList, `"10.0.%d.%d":{},`, i>>8, i&255)
	}
	addresses := strings.TrimSuffix(addressList.String(), ",")
	for raw, want := range map[string]string{
		`{"number":18446744073709551615,"members":["a"]}`:                                      "1 to 9007199254740991",
		`{"number":18446744073709551616,"members":["a"]}`:                                      "read the view",
		`{"number":9007199254740992,"members":["a"]}`:                                          "1 to 9007199254740991",
		`{"number":-1,"members":["a"]}`:                                                        "read the view",
		`{"number":1e3,"members":["a"]}`:                                                       "read the view",
		`{"number":2,"changed":18446744073709551615,"members":["a"]}`:                          "since 18446744073",
		`{"number":2,"changed":-1,"members":["a"]}`:                                            "read the view",
		`{"number":2,"members":["a"],"owners":{"203.0.113.3":{"epoch":-1}}}`:                   "read the view",
		`{"number":2,"members":["a"],"owners":{"203.0.113.3":{"epoch":18446744073709551615}}}`: "203.0.113.3 since",
		`{"number":2,"members":[` + many + `]}`:                                                "at most 120",
		`{"number":2,"members":["a"],"owners":{"2001:db8::3":{"node":"a"}}}`:                   "want IPv4",
		`{"number":2,"members":["a"],"owners":{"::ffff:203.0.113.3":{"node":"a"}}}`:            "want IPv4",
		`{"number":2,"members":["","a"]}`:                                                      "a name of 0 bytes",
		`{"number":2,"members":["` + strings.Repeat("a", MaxName+1) + `"]}`:                    "a name of 254 bytes",
		`{"number":2,"members":["a","b"],"removed":"a"}`:                                       `"a" left the members`,
		`{"number":2,"members":["a","b"],"joined":"c"}`:                                        `"c" joined them`,
		`{"number":2,"members":["a","b"],"joined":"a","removed":"c"}`:                          "want one of both",
		`{"number":2,"members":[` + clash + `]}`:                                               "cannot distinguish",
		`{"number":2,"members":["a"],"owners":{` + addresses + `}}`:                            "at most 4096",
		``:                             "read the view",
		`7`:                            "read the view",
		`{"number":0,"members":["a"]}`: "number 0",
		`{"number":2,"changed":3,"members":["a"]}`:                                     "members since 3",
		`{"number":2,"members":[]}`:                                                    "want one or more",
		`{"number":2,"members":["b","a"]}`:                                             "sorted",
		`{"number":2,"members":["a","a"]}`:                                             "each once",
		`{"number":2,"members":["a"],"owners":{"203.0.113.3":{"node":"a","epoch":3}}}`: "203.0.113.3 since 3",
		`{"number":2,"members":["a"],"owners":{"none":{"node":"a"}}}`:                  "read the view",
	} {
		if _, err := ParseView(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}

// sameIDs returns two names with one ID, sorted, as JSON.
func sameIDs() string {
	names := map[ID]string{}
	for i := 0; ; i++ {
		name := fmt.Sprintf("node-%d", i)
		if other, found := names[IDOf(name)]; found {
			return fmt.Sprintf("%q,%q", min(name, other), max(name, other))
		}
		names[IDOf(name)] = name
	}
}

// FuzzParseView: a view that was read can be written, and is the same when it is read again.
func FuzzParseView(f *testing.F) {
	f.Add(`{"number":2,"members":["a"],"changed":1,"owners":{"203.0.113.3":{"node":"a","epoch":2,"since":"2026-01-02T03:04:05Z","before":["b"]}}}`)
	f.Add(`{"number":18446744073709551615,"members":["a","b"]}`)
	f.Add(`{"number":9007199254740991,"changed":9007199254740991,"members":["a","b"]}`)
	f.Add(`{"number":2,"members":["a"],"owners":{"203.0.113.3":{"since":"9999-12-31T23:59:59.999999999-23:59"}}}`)
	f.Add(`{"number":2,"members":["a"],"owners":{"203.0.113.3":{"since":"0000-01-01T00:00:00+23:59"}}}`)
	f.Fuzz(func(t *testing.T, raw string) {
		v, err := ParseView(raw)
		if err != nil {
			return
		}
		written, err := v.Encode()
		if err != nil {
			t.Fatalf("%s was read and cannot be written: %v", raw, err) // no view could be changed any more
		}
		again, err := ParseView(written)
		if err != nil || !same(v, again) {
			t.Errorf("%s was read as %s: %v", raw, written, err)
		}
	})
}

// TestEveryMajorityMeets: two majorities have a member in common, and so have a majority and a blocking set, also
// when one member joins or leaves.
func TestEveryMajorityMeets(t *testing.T) {
	for n := 1; n <= 200; n++ {
		if 2*majority(n) <= n || majority(n)+blocking(n) <= n || majority(n)+majority(n+1) <= n+1 {
			t.Errorf("of %d members %d are a majority and %d block", n, majority(n), blocking(n))
		}
	}
}

// TestSpread: addresses are spread evenly, and the failure of a node moves only its own addresses.
func TestSpread(t *testing.T) {
	for _, nodes := range []int{1, 2, 3, 7} {
		w := newWorld(uint64(nodes), nodes, 40, standardRules())
		w.stabilizeAll(t)
		before := w.object.view
		if nodes == 1 {
			continue
		}
		w.nodes[0].stop()
		w.run(3 * time.Second)
		for a, o := range before.Owners {
			if now := w.object.view.Owners[a]; o.Node != w.nodes[0].name && now.Node != o.Node {
				t.Errorf("%d nodes: %s moved from %s to %s as %s died", nodes, a, o.Node, now.Node, w.nodes[0].name)
			}
		}
		least := 1000
		most := 0
		loads := map[string]int{}
		for _, o := range w.object.view.Owners {
			loads[o.Node]++
		}
		for _, n := range loads {
			least, most = min(least, n), max(most, n)
		}
		if len(loads) != nodes-1 || most-least > 1 {
			t.Errorf("%d nodes: loads %v after a death, from %d to %d", nodes, loads, least, most)
		}
	}
}

// stabilizeAll starts all nodes and adds the addresses when all are members.
func (w *world) stabilizeAll(t *testing.T) {
	t.Helper()
	wanted := w.wanted
	w.wanted = map[netip.Addr]bool{}
	for _, m := range w.nodes {
		m.start()
	}
	w.run(15 * time.Second)
	w.wanted = wanted
	for _, m := range w.nodes {
		m.sendFacts()
	}
	w.run(2 * time.Second)
	if w.violation != "" || len(w.unanswered()) > 0 || len(w.object.view.Members) != len(w.nodes) {
		t.Fatalf("not stable: %s %v %s", w.violation, w.unanswered(), describe(w.object.view))
	}
	loads := map[string]int{}
	for _, o := range w.object.view.Owners {
		loads[o.Node]++
	}
	for name, n := range loads {
		if n < len(wanted)/len(w.nodes) || n > (len(wanted)+len(w.nodes)-1)/len(w.nodes) {
			t.Errorf("%s has %d of %d addresses with %d nodes", name, n, len(wanted), len(w.nodes))
		}
	}
}

// TestLateAnswer: a change that was made, although the answer came too late, is recorded when it is read. A change
// that was not made, or was replaced by another one, is not.
func TestLateAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		read     func(asked *View) *View
		recorded bool
	}{
		"made":         {func(asked *View) *View { return asked }, true},
		"another one":  {func(asked *View) *View { v := *asked; v.Members = []string{"node-b"}; return &v }, false},
		"two in a row": {func(asked *View) *View { v := *asked; v.Number++; return &v }, false},
		"not made":     {func(*View) *View { return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{Node: "node-a", Boot: 1, First: 1000})
			now := time.Duration(0)
			asked := (*View)(nil)
			out := c.Step(now, Facts{Link: true, Candidate: true, Known: true})
			for ; now < time.Minute; now += 100 * time.Millisecond {
				if out.Write != nil {
					asked = out.Write.View
					break
				}
				if out.Read {
					out = c.Step(now, Read{Asked: true})
					continue
				}
				out = c.Step(now, Tick{})
			}
			if asked == nil {
				t.Fatal("the first node writes no view")
			}
			recorded := 0
			count := func(out Output) Output {
				for _, e := range out.Events {
					if e.Kind == ViewRebuilt {
						recorded++
					}
				}
				return out
			}
			count(c.Step(now, Wrote{Err: errors.New("too late")}))
			if recorded > 0 {
				t.Error("the event is recorded before it is known")
			}
			view := test.read(asked)
			for range 2 {
				now += 100 * time.Millisecond
				count(c.Step(now, Read{Asked: true, Found: view != nil, View: view, Version: "1"}))
			}
			if (recorded == 1) != test.recorded || recorded > 1 {
				t.Errorf("the event is recorded %d times, want recorded %t", recorded, test.recorded)
			}
		})
	}
}
