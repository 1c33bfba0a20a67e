//go:build linux

package returnpath

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// someNetworks are networks of a node, with VLAN interfaces that are up.
func someNetworks(r *rand.Rand) (networks []check.Expected, vlans map[int]*link) {
	vlans = map[int]*link{}
	for i, vlan := range r.Perm(4000)[:1+r.IntN(4)] {
		vlan += 2
		e := check.Expected{Published: true, TableBase: 1000, Network: contract.NodeNetwork{VLAN: vlan}}
		for b := range r.IntN(6) {
			e.Network.Blocks = append(e.Network.Blocks, blockOf(i, b))
		}
		networks = append(networks, e)
		vlans[vlan] = &link{index: 10 + i, name: fmt.Sprintf("bond0.%d", vlan), up: true}
	}
	return networks, vlans
}

func blockOf(network, n int) contract.NetworkBlock {
	first := netip.AddrFrom4([4]byte{198, 18, byte(network), byte(16 * n)})
	return contract.NetworkBlock{CIDR: netip.PrefixFrom(first, 28), Gateway: first.Next()}
}

// ways are the numbers by which replies of each block leave: its table, and the mark that leads there.
func (m *model) ways() map[netip.Prefix]string {
	marks := map[int]uint32{}
	for _, r := range m.rules {
		if r.priority == markPriority {
			marks[r.table] = r.mark
		}
	}
	ways := map[netip.Prefix]string{}
	for _, r := range m.rules {
		if r.priority == sourcePriority {
			ways[r.source] = fmt.Sprintf("table %d mark %#x by %s", r.table, marks[r.table], m.defaultOf(r.table))
		}
	}
	return ways
}

// pass brings about what the networks want.
func (m *model) pass(t *testing.T, networks []check.Expected, bits Bits) wanted {
	t.Helper()
	targets, known := targetsOf(networks)
	if !known {
		t.Fatal("published networks are not known")
	}
	w := want(targets, bits, m.observed)
	m.apply(t, plan(m.observed, w))
	return w
}

// TestNetworksShareNoNumber: with any networks no table and no mark is given to two, every block leaves by its own
// gateway, a restart changes nothing, and neither does a network that comes or goes for the others.
func TestNetworksShareNoNumber(t *testing.T) {
	start := rand.Uint64()
	for i := range seeds.Count(t, 500) {
		seed := start + uint64(i)
		r := rand.New(rand.NewPCG(seed, 0))
		bits := []Bits{0xf0, 0xff0, 0x3000}[r.IntN(3)]
		networks, vlans := someNetworks(r)
		m := &model{observed: observed{vlans: vlans}}
		// One after the other, as a person attaches them.
		unmarked := map[int]bool{}
		for n := range networks {
			before := m.ways()
			for _, vlan := range m.pass(t, networks[:n+1], bits).unmarked {
				unmarked[vlan] = true
			}
			for block, way := range before {
				if after := m.ways()[block]; after != way {
					t.Errorf("seed %d: when network %d came, %s became %s", seed, n, way, after)
				}
			}
		}
		users := map[string]int{}
		for _, rule := range m.rules {
			if rule.priority == localPriority {
				continue
			}
			key := fmt.Sprint("table ", rule.table)
			vlan := (rule.table - 1000) % check.TableStep
			if user, used := users[key]; used && user != vlan {
				t.Errorf("seed %d: %s is of the VLANs %d and %d", seed, key, user, vlan)
			}
			users[key] = vlan
			if rule.mask == 0 {
				continue
			}
			if user, used := users[fmt.Sprint(rule.mark)]; used {
				t.Errorf("seed %d: the mark %#x is of the VLANs %d and %d", seed, rule.mark, user, vlan)
			}
			users[fmt.Sprint(rule.mark)] = vlan
		}
		for n, e := range networks {
			for _, b := range e.Network.Blocks {
				way := m.ways()[b.CIDR]
				if !strings.HasSuffix(way, "by "+b.Gateway.String()) {
					t.Errorf("seed %d: replies from %s leave by %s", seed, b.CIDR, way)
				}
			}
			if bits.Count() >= len(networks)*5 && unmarked[e.Network.VLAN] {
				t.Errorf("seed %d: network %d has no mark of %d", seed, n, bits.Count())
			}
		}
		if again := plan(m.observed, want(mustTargets(networks), bits, m.observed)); len(again) != 0 {
			t.Errorf("seed %d: after a restart it wants %q", seed, again[0].text)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

func mustTargets(networks []check.Expected) []target {
	targets, _ := targetsOf(networks)
	return targets
}

// TestAFaultOfOneVLANMovesNothingElse: an interface that goes down, is deleted or comes back changes no route, rule or
// mark of another network.
func TestAFaultOfOneVLANMovesNothingElse(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var moves, faults int
	for range seeds.Count(t, 200) {
		networks, vlans := someNetworks(r)
		m := &model{observed: observed{vlans: vlans}}
		m.pass(t, networks, DefaultBits)
		before := m.ways()
		faulty := networks[r.IntN(len(networks))].Network
		intact := *vlans[faulty.VLAN]
		for _, fault := range []*link{{index: intact.index, name: intact.name}, nil, &intact} {
			faults++
			vlans[faulty.VLAN] = fault
			// The kernel deletes the routes of an interface that goes down.
			m.routes = slices.DeleteFunc(m.routes, func(k kernelRoute) bool {
				return k.link == intact.index && (fault == nil || !fault.up)
			})
			m.pass(t, networks, DefaultBits)
			for block, way := range m.ways() {
				own := slices.ContainsFunc(faulty.Blocks, func(b contract.NetworkBlock) bool { return b.CIDR == block })
				if !own && way != before[block] {
					moves++
					t.Errorf("a fault of VLAN %d: %s became %s", faulty.VLAN, before[block], way)
				}
			}
		}
		if !maps.Equal(m.ways(), before) {
			t.Errorf("once VLAN %d is back, %v became %v", faulty.VLAN, before, m.ways())
		}
	}
	if faults == 0 {
		t.Error("there was no fault")
	}
	fmt.Fprintf(t.Output(), "figure return_path_unrelated_changes %d ways\n", moves)
}

// wayBack is how the kernel finds that a client can be reached if the main table has no default route any more: by
// rules that match an unmarked packet of the machine itself (fib_validate_source of Linux). It is invalid where the
// kernel drops what the client sends.
func (m *model) wayBack() netip.Addr {
	byPriority := slices.Clone(m.rules)
	slices.SortStableFunc(byPriority, func(a, b kernelRule) int { return a.priority - b.priority })
	for _, r := range byPriority {
		if way := m.defaultOf(r.table); way.IsValid() && r.mask == 0 && !r.source.IsValid() && !r.hasExtras {
			return way
		}
	}
	return netip.Addr{}
}

// TestTheDefaultRouteGoesWithItsVLAN: the default route leads by one of the networks, and the kernel deletes it with
// the interface. Clients of the others are still reached. Where the default route leads elsewhere, packets without a
// route have none by a public network, and nothing that the agent made is left.
func TestTheDefaultRouteGoesWithItsVLAN(t *testing.T) {
	of := func(n, vlan int) check.Expected {
		return check.Expected{Published: true, TableBase: 1000, Network: contract.NodeNetwork{VLAN: vlan,
			Blocks: []contract.NetworkBlock{blockOf(n, 0)}}}
	}
	const elsewhere = 9
	networks := []check.Expected{of(0, 56), of(1, 57)}
	m := &model{observed: observed{defaults: []int{elsewhere}, vlans: map[int]*link{
		56: {index: 1, name: "bond0.56", up: true}, 57: {index: 2, name: "bond0.57", up: true}}}}
	for _, defaults := range [][]int{{elsewhere}, nil} {
		m.defaults = defaults
		if m.pass(t, networks, DefaultBits); m.wayBack().IsValid() {
			t.Errorf("packets without a route leave by %s", m.wayBack())
		}
	}
	for vlan, left := range map[int]check.Expected{56: networks[1], 57: networks[0]} {
		m.vlans[vlan].up = true
		m.defaults = []int{m.vlans[vlan].index}
		m.pass(t, networks, DefaultBits)
		m.vlans[vlan].up = false
		m.defaults = nil
		m.routes = slices.DeleteFunc(m.routes, func(k kernelRoute) bool { return k.link == m.vlans[vlan].index })
		m.pass(t, networks, DefaultBits)
		if got, want := m.wayBack(), left.Network.Blocks[0].Gateway; got != want {
			t.Errorf("without VLAN %d clients are reached by %s, want %s", vlan, got, want)
		}
		m.vlans[vlan].up = true
		m.pass(t, networks, DefaultBits)
	}
	m.defaults = []int{elsewhere}
	m.pass(t, networks, DefaultBits)
	for _, r := range m.rules {
		if r.priority == lastPriority {
			t.Errorf("the rule %s is left", r)
		}
	}
}

// TestTooFewMarks: one value serves one network. Another one has none, and the first keeps what it has.
func TestTooFewMarks(t *testing.T) {
	of := func(vlan, n int) check.Expected {
		return check.Expected{Published: true, Network: contract.NodeNetwork{VLAN: vlan,
			Blocks: []contract.NetworkBlock{blockOf(n, 0), blockOf(n, 1)}}}
	}
	m := &model{observed: observed{vlans: map[int]*link{5: {index: 1, name: "a", up: true},
		6: {index: 2, name: "b", up: true}}}}
	m.pass(t, []check.Expected{of(6, 1)}, 0x2000)
	before := m.ways()
	w := m.pass(t, []check.Expected{of(5, 0), of(6, 1)}, 0x2000)
	if !slices.Equal(w.unmarked, []int{5}) {
		t.Errorf("without marks are %v, want VLAN 5", w.unmarked)
	}
	for block, way := range before {
		if m.ways()[block] != way {
			t.Errorf("%s became %s", way, m.ways()[block])
		}
	}
}
