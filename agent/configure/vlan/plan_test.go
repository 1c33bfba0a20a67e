package vlan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

var byValue = cmp.Options{
	cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

var (
	somePrefixes = []netip.Prefix{
		netip.MustParsePrefix("192.0.2.2/28"), netip.MustParsePrefix("192.0.2.2/32"),
		netip.MustParsePrefix("192.0.2.3/28"),
		netip.MustParsePrefix("203.0.113.2/29"), netip.MustParsePrefix("169.254.7.9/32"),
		netip.MustParsePrefix("203.0.113.3/32"),
	}
	someNames = []string{"bond0.100", "bond0.101", "vlan100", "lan", "bond1.100"}
)

// randomWorld is a server as people set them up, correctly or not: two bonds with a member each, and random VLAN
// interfaces.
func randomWorld(r *rand.Rand) *model {
	m := newModel()
	for i, name := range []string{"bond0", "bond1"} {
		mac := fmt.Sprintf("02:00:00:00:00:0%d", i)
		bond := m.add(Link{Link: check.Link{Name: name, Type: "bond", MAC: mac, MTU: pick(r, 1500, 9000, 1400),
			Up: r.IntN(8) > 0}})
		m.add(Link{Link: check.Link{Name: fmt.Sprintf("eno%d", i), MAC: mac, MTU: 9000, Up: true, Master: bond.Index}})
	}
	for range r.IntN(4) {
		l := check.Link{
			Name: pick(r, someNames...), Type: "vlan", Parent: 1 + r.IntN(4), MTU: pick(r, 1280, 1500),
			Up: r.IntN(3) > 0, MAC: "02:00:00:00:00:0f",
			VLAN:  &check.VLAN{ID: pick(r, 100, 101, 102), Protocol: pick(r, "802.1q", "802.1q", "802.1q", "802.1ad")},
			Alias: pick(r, "", "to rack 7"),
		}
		taken := func(o Link) bool {
			return o.Name == l.Name || o.VLAN != nil && *o.VLAN == *l.VLAN && o.Parent == l.Parent
		}
		if slices.ContainsFunc(m.links, taken) {
			continue
		}
		made := m.add(Link{Link: l, Settings: someSettings(r)})
		if r.IntN(2) == 0 {
			m.addresses = append(m.addresses, check.Address{LinkIndex: made.Index, Prefix: pick(r, somePrefixes...)})
		}
	}
	return m
}

func someSettings(r *rand.Rand) ownership.Settings {
	s := cloned(inherited)
	for key := range s {
		s[key] = r.IntN(3)
	}
	return s
}

func someWant(r *rand.Rand) want {
	w := want{ID: pick(r, 100, 100, 101), Uplink: pick(r, 1, 1, 3),
		Virtual: []netip.Addr{netip.MustParseAddr("203.0.113.3")}}
	switch r.IntN(8) {
	case 0:
		return want{}
	case 1:
		w.Name = pick(r, someNames...)
		w.Fixed = true
	default:
		w.Name = fmt.Sprintf("bond%d.%d", w.Uplink/2, w.ID)
	}
	for _, p := range []netip.Prefix{somePrefixes[0], somePrefixes[2], somePrefixes[3]} {
		switch r.IntN(6) {
		case 0, 1:
			w.Addresses = append(w.Addresses, p)
		case 2:
			w.NoBlock = append(w.NoBlock, p.Addr())
		}
	}
	if len(w.Addresses) == 0 {
		w.Fallback = somePrefixes[4]
	}
	return w
}

// pass makes one pass, which ends early when the agent is killed.
func pass(t *testing.T, m *model, w want) (killed bool, problems []string) {
	t.Helper()
	seen, _ := m.Look(t.Context()) // the model never fails
	actions, problems := plan(w, seen)
	r := &run{kernel: m}
	for _, a := range actions {
		err := a.do(t.Context(), r)
		if err == errKilled { //nolint:errorlint // the model returns it bare
			return true, problems
		}
		if err != nil {
			t.Fatalf("%s: %v\nplan: %v\nwant %+v\nobserved %+v", a, err, actions, w, seen)
		}
	}
	return false, problems
}

// TestConverges starts with any server, runs the agent with random targets and kills it at random, then checks: does
// one pass reach the target, does a second find nothing to do, and does the clean-up restore the server as people had
// set it up?
func TestConverges(t *testing.T) {
	complete := 0
	blocked := 0
	for seed := range uint64(seeds.Count(t, 2000)) {
		r := rand.New(rand.NewPCG(seed, 4))
		m := randomWorld(r)
		before := m.clone()
		for range r.IntN(4) {
			m.left = r.IntN(12)
			pass(t, m, someWant(r))
		}
		m.left = -1
		w := someWant(r)
		if _, problems := pass(t, m, w); len(problems) == 0 {
			complete++
			m.mustMatch(t, seed, w)
		} else {
			blocked++
		}
		seen, _ := m.Look(t.Context())
		if again, _ := plan(w, seen); len(again) > 0 {
			t.Fatalf("seed %d: the second pass still wants: %v\nwant %+v", seed, again, w)
		}
		m.left = r.IntN(10)
		_, _ = Cleanup(t.Context(), m) // killed at any moment
		m.left = -1
		if _, err := Cleanup(t.Context(), m); err != nil {
			t.Fatalf("seed %d: clean up: %v", seed, err)
		}
		if diff := cmp.Diff(before.world(), m.world(), byValue); diff != "" {
			t.Fatalf("seed %d: after the clean-up (-before +after):\n%s", seed, diff)
		}
	}
	if complete < 500 || blocked < 100 {
		t.Errorf("%d starts converged completely and %d were blocked: the starts do not cover both", complete, blocked)
	}
}

// world is what people see.
func (m *model) world() Observed {
	return Observed{Links: m.links, Addresses: m.addresses}
}

// mustMatch compares the node with what was wanted.
func (m *model) mustMatch(t *testing.T, seed uint64, w want) {
	t.Helper()
	seen, _ := m.Look(t.Context())
	if w.ID == 0 {
		if at := slices.IndexFunc(seen.Links, func(l Link) bool { return l.Ours }); at >= 0 {
			t.Fatalf("seed %d: %s still belongs to the agent", seed, seen.Links[at].Name)
		}
		return
	}
	l := w.target(seen)
	if l == nil {
		t.Fatalf("seed %d: there is no interface for %+v", seed, w)
	}
	if !l.Up && m.isUp(w.Uplink) {
		t.Errorf("seed %d: %s is down", seed, l.Name)
	}
	if s := l.Settings; s[ownership.RPFilter] != 2 || s[ownership.ARPIgnore] > 1 || s[ownership.ARPAnnounce] != 2 ||
		s[ownership.ProxyARP] != 0 {
		t.Errorf("seed %d: settings %s", seed, s)
	}
	for _, p := range w.Addresses {
		if !seen.has(l.Index, p) {
			t.Errorf("seed %d: %s lacks %s", seed, l.Name, p)
		}
	}
	if !seen.anyOn(l.Index, func(a check.Address) bool { return !slices.Contains(w.Virtual, a.Prefix.Addr()) }) {
		t.Errorf("seed %d: %s has no address of its own", seed, l.Name)
	}
	for _, p := range l.Record.Addresses {
		if p != w.Fallback && !slices.Contains(w.Addresses, p) && !slices.Contains(w.NoBlock, p.Addr()) {
			t.Errorf("seed %d: %s of the agent is unwanted and still there", seed, p)
		}
	}
}

// TestObstacles: what a person configured wrongly is reported and not changed.
func TestObstacles(t *testing.T) {
	address := netip.MustParsePrefix("192.0.2.2/28")
	vlan := func(name string, parent, id int) Link {
		return Link{Link: check.Link{Name: name, Parent: parent, MTU: 1500,
			VLAN: &check.VLAN{ID: id, Protocol: "802.1q"}}}
	}
	for name, tc := range map[string]struct {
		link Link
		on   []netip.Prefix
		want string
	}{
		"name taken":     {vlan("bond0.100", 1, 101), nil, "bond0.100 exists and is not a VLAN interface with ID 100"},
		"on a member":    {vlan("eno1.100", 2, 100), nil, "eno1.100 takes the frames of VLAN 100"},
		"address in use": {vlan("bond0.101", 1, 101), []netip.Prefix{address}, "192.0.2.2 is on bond0.101"},
		"another length": {vlan("bond0.100", 1, 100), []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")},
			"192.0.2.2 is on bond0.100 with a prefix length other than"},
		"unreadable words": {Link{Link: check.Link{Name: "bond0.100", Parent: 1, Alias: "phoenixnap-agent made x=1",
			VLAN: &check.VLAN{ID: 100, Protocol: "802.1q"}}}, nil, "x=1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			m.add(Link{Link: check.Link{Name: "bond0", Type: "bond", MTU: 9000, Up: true}})
			m.add(Link{Link: check.Link{Name: "eno1", MTU: 9000, Up: true, Master: 1}})
			l := m.add(tc.link)
			for _, p := range tc.on {
				m.addresses = append(m.addresses, check.Address{LinkIndex: l.Index, Prefix: p})
			}
			before := m.clone()
			_, problems := pass(t, m, want{ID: 100, Uplink: 1, Name: "bond0.100", Addresses: []netip.Prefix{address}})
			if !strings.Contains(strings.Join(problems, "; "), tc.want) {
				t.Errorf("problems %q, want one with %q", problems, tc.want)
			}
			if got := m.world().Addresses; !cmp.Equal(before.world().Addresses, got, byValue) ||
				len(m.links) != len(before.links) {
				t.Errorf("links %+v, addresses %v: something was changed", m.links, got)
			}
		})
	}
}
