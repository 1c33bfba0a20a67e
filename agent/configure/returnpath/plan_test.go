//go:build linux

package returnpath

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

func block(cidr, gateway string) contract.NetworkBlock {
	return contract.NetworkBlock{CIDR: netip.MustParsePrefix(cidr), Gateway: netip.MustParseAddr(gateway)}
}

var blocks = []contract.NetworkBlock{
	block("192.0.2.0/28", "192.0.2.1"), block("203.0.113.0/29", "203.0.113.1"), block("203.0.113.8/29", "203.0.113.9"),
	block("198.51.100.32/28", "198.51.100.33"), block("203.0.113.64/28", "203.0.113.65"),
}

func expected(blocks ...contract.NetworkBlock) check.Expected {
	return check.Expected{Published: true, Network: contract.NodeNetwork{VLAN: 100, Member: true, Blocks: blocks}}
}

// aim is the target of a node with one network.
type aim struct {
	target
	bits Bits
}

func targetFor(t *testing.T, bits Bits, blocks ...contract.NetworkBlock) aim {
	t.Helper()
	targets, known := targetsOf([]check.Expected{expected(blocks...)})
	if !known || len(targets) != 1 {
		t.Fatal("a published network is not known")
	}
	return aim{targets[0], bits}
}

func (a aim) want(o observed) wanted { return want([]target{a.target}, a.bits, o) }

// TestConverges starts anywhere: one pass reaches the target, the second changes nothing, and what is not ours stays.
func TestConverges(t *testing.T) {
	first := rand.Uint64()
	for i := range seeds.Count(t, 1000) {
		seed := first + uint64(i)
		r := rand.New(rand.NewPCG(seed, 0))
		target := targetFor(t, []Bits{0xf0, 0x2000, 0x3000}[r.IntN(3)], someBlocks(r)...)
		m := &model{observed: anywhere(r, target)}
		foreign, hadRuleset := m.foreign(), slices.Clone(m.ruleset)
		m.apply(t, plan(m.observed, target.want(m.observed)))
		if again := plan(m.observed, target.want(m.observed)); len(again) != 0 {
			t.Errorf("seed %d: the second pass wants %d changes, the first is %q", seed, len(again), again[0].text)
		}
		if m.foreign() != foreign || len(m.touched) != 0 {
			t.Errorf("seed %d: what is not ours was touched (%q):\n%s\nwas:\n%s", seed, m.touched, m.foreign(), foreign)
		}
		verify(t, m, target, hadRuleset)
		m.apply(t, plan(m.observed, wanted{ruleset: &ruleset{}}))
		if m.foreign() != foreign || m.ruleset != nil ||
			slices.ContainsFunc(m.rules, kernelRule.ours) || slices.ContainsFunc(m.routes, kernelRoute.ours) {
			t.Errorf("seed %d: after the removal something of ours is left, or something else was removed: %+v", seed,
				m.observed)
		}
		if t.Failed() {
			t.Fatalf("seed %d with the target %+v", seed, target)
		}
	}
}

// verify compares the state with what replies need, independently of how it is planned.
func verify(t *testing.T, m *model, target aim, hadRuleset []string) {
	t.Helper()
	for _, b := range target.blocks {
		table := 0
		for _, r := range m.rules {
			if r.ours() && r.priority == sourcePriority && r.source == b.CIDR {
				if table != 0 {
					t.Errorf("block %s has two tables", b.CIDR)
				}
				table = r.table
			}
		}
		if table == 0 {
			t.Errorf("block %s has no rule by source", b.CIDR)
		}
		if got := m.defaultOf(table); m.vlans[100] != nil && m.vlans[100].up && got != b.Gateway {
			t.Errorf("block %s leaves by %s, want its gateway %s", b.CIDR, got, b.Gateway)
		}
	}
	tables := map[uint32]int{}
	for _, r := range m.rules {
		if !r.ours() || r.priority != markPriority {
			continue
		}
		if r.mark == 0 || r.mark&^uint32(target.bits) != 0 || r.mask != uint32(target.bits) || tables[r.mark] != 0 {
			t.Errorf("rule %s with the bits %s, beside %v", r, target.bits, tables)
		}
		tables[r.mark] = r.table
	}
	if want := min(len(target.blocks), target.bits.Count()); len(tables) > want || len(target.blocks) > 0 &&
		len(tables) == 0 {
		t.Errorf("%d rules by mark, want %d at most", len(tables), want)
	}
	switch {
	case m.vlans[100] == nil && len(target.blocks) > 0 && !slices.Equal(m.ruleset, hadRuleset):
		t.Error("without an interface the nftables table was changed")
	case m.vlans[100] != nil && len(target.blocks) > 0 && (m.vlans[100].strict || len(m.ruleset) == 0):
		t.Errorf("strict filter %t, %d lines of nftables", m.vlans[100].strict, len(m.ruleset))
	}
}

// defaultOf is the gateway of the agent's default route in a table.
func (m *model) defaultOf(table int) netip.Addr {
	for _, r := range m.routes {
		if r.table == table && r.destination.Bits() == 0 && r.metric == 0 {
			return r.gateway
		}
	}
	return netip.Addr{}
}

func someBlocks(r *rand.Rand) []contract.NetworkBlock {
	some := slices.Clone(blocks)
	r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return some[:r.IntN(len(some)+1)]
}

// anywhere is a state that crashes, other settings and other programs may leave.
func anywhere(r *rand.Rand, target aim) observed {
	o := observed{}
	if r.IntN(5) > 0 {
		o.vlans = map[int]*link{100: {index: 1 + r.IntN(3), name: "bond0.100", up: r.IntN(4) > 0,
			strict: r.IntN(2) == 0}}
	}
	tables := []int{target.table(0), target.table(1), target.table(2), 1, 77, target.table(0) + 1}
	protocols := []int{ownership.Protocol, ownership.Protocol, 3, 4, 16}
	for range r.IntN(12) {
		s := kernelRule{protocol: protocols[r.IntN(len(protocols))], hasExtras: r.IntN(10) == 0, rule: rule{
			priority: 1054 + r.IntN(5), table: append(tables, check.TableMain)[r.IntN(len(tables)+1)],
			noDefault: r.IntN(6) == 0}}
		if r.IntN(2) == 0 {
			s.source = blocks[r.IntN(len(blocks))].CIDR
		} else {
			s.mark = target.bits.Value(r.IntN(target.bits.Count()))
			s.mask = uint32(target.bits)
		}
		same := func(x kernelRule) bool {
			return x.rule == s.rule && x.protocol == s.protocol && x.hasExtras == s.hasExtras
		}
		if !slices.ContainsFunc(o.rules, same) {
			o.rules = append(o.rules, s)
		}
	}
	for range r.IntN(16) {
		b := blocks[r.IntN(len(blocks))]
		s := kernelRoute{protocol: protocols[r.IntN(len(protocols))], hasExtras: r.IntN(10) == 0, route: route{
			table: tables[r.IntN(len(tables))], destination: b.CIDR, link: 1 + r.IntN(3),
			metric: []int{0, 0, 0, 50}[r.IntN(4)]}}
		if r.IntN(2) == 0 {
			s.destination = netip.MustParsePrefix("0.0.0.0/0")
			s.gateway = b.Gateway
		}
		// The kernel has one route at a place, and none on a link that is down.
		l := o.vlans[100]
		down := l == nil || s.link == l.index && !l.up
		if !down && !slices.ContainsFunc(o.routes, func(x kernelRoute) bool { return x.place() == s.place() }) {
			o.routes = append(o.routes, s)
		}
	}
	switch r.IntN(4) {
	case 0:
		o.ruleset = []string{"something"}
	case 1:
		gateways := target.gateways(o)
		allot([][]gateway{gateways}, target.bits, o)
		o.ruleset = marking([]link{{name: "bond0.100"}}, gateways, target.bits).lines()
	}
	return o
}

// TestKeepsIndex: blocks that come and go never change the tables of the others.
func TestKeepsIndex(t *testing.T) {
	m := &model{observed: observed{vlans: map[int]*link{100: {index: 6, name: "bond0.100", up: true}}}}
	ways := func(set ...contract.NetworkBlock) map[string]int {
		target := targetFor(t, DefaultBits, set...)
		m.apply(t, plan(m.observed, target.want(m.observed)))
		tables := map[string]int{}
		for _, r := range m.rules {
			if r.priority == sourcePriority {
				tables[r.source.String()] = r.table
			}
		}
		return tables
	}
	both := ways(blocks[1], blocks[2])
	if both["203.0.113.0/29"] != 1100 || both["203.0.113.8/29"] != 5196 {
		t.Errorf("tables %v, want 1100 and 5196", both)
	}
	if more := ways(blocks[0], blocks[1], blocks[2]); more["203.0.113.0/29"] != 1100 ||
		more["203.0.113.8/29"] != 5196 || more["192.0.2.0/28"] != 9292 {
		t.Errorf("with a smaller block before them the tables are %v", more)
	}
	if less := ways(blocks[0], blocks[2]); less["203.0.113.8/29"] != 5196 || less["192.0.2.0/28"] != 9292 ||
		len(less) != 2 {
		t.Errorf("without the first the tables are %v", less)
	}
}

// TestUnpublished: missing annotations change nothing.
func TestUnpublished(t *testing.T) {
	if _, known := targetsOf(nil); known {
		t.Error("without a network a target is known")
	}
	for name, e := range map[string]check.Expected{
		"nothing": {}, "unreadable": {Published: true, Unreadable: "no number"},
		"unreached": {Published: true, Unreached: true},
	} {
		if _, known := targetsOf([]check.Expected{expected(blocks[0]), e}); known {
			t.Errorf("%s: a target is known", name)
		}
	}
}

func TestClash(t *testing.T) {
	marked := func(mark, mask uint32, protocol int) observed {
		r := rule{priority: 1055, mark: mark, mask: mask, table: 7}
		return observed{rules: []kernelRule{{rule: r, protocol: protocol}}}
	}
	for name, tc := range map[string]struct {
		observed observed
		want     bool
	}{
		"our own":                        {marked(0x10, 0xf0, ownership.Protocol), false},
		"the same by hand":               {marked(0x10, 0xf0, 3), true},
		"Cilium's proxy":                 {marked(0x200, 0xf00, 0), false},
		"a whole mark with bits of ours": {marked(0xca6c, 0xffffffff, 3), true},
		"a whole mark beside ours":       {marked(0x1, 0xffffffff, 3), false},
		"no mark":                        {marked(0, 0, 3), false},
		"Calico, whose bits are others":  {observed{links: []string{"eth0", "cali12345"}}, false},
		"a rule of nftables":             {observed{marker: "a rule of the chain x"}, true},
	} {
		if got := clash(tc.observed, DefaultBits); (got != "") != tc.want {
			t.Errorf("%s: clash %q", name, got)
		}
	}
	if clash(observed{links: []string{"cali12345"}}, 0x10000) == "" {
		t.Error("Calico is no clash for a bit of its own")
	}
}

// TestCaveat: where Services may be balanced in eBPF, marks do not show that replies leave by them.
func TestCaveat(t *testing.T) {
	for want, links := range map[string][]string{
		"": {"eth0", "cali12345"},
		"; not verified for Services that Cilium balances in eBPF, see PN505": {"eth0", "cilium_host"},
		"; not verified for Services that Calico balances in eBPF, see PN505": {"bpfin.cali", "bpfout.cali"},
	} {
		if got := (observed{links: links}).caveat(); got != want {
			t.Errorf("with %v: %q, want %q", links, got, want)
		}
	}
}
