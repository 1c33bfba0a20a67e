package check

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// TestAssume: only an interface that can be meant is taken for that of the public network.
func TestAssume(t *testing.T) {
	public := contract.NetworkBlock{CIDR: netip.MustParsePrefix("192.0.2.0/28"), Gateway: gateway}
	for name, tc := range map[string]struct {
		edit    func(*Expected, *Snapshot)
		assumed string
		blocks  []contract.NetworkBlock
	}{
		"the only public address": {func(*Expected, *Snapshot) {}, "bond0.100", []contract.NetworkBlock{public}},
		"API server read":         {func(e *Expected, _ *Snapshot) { e.Unreached = false }, "", nil},
		"two public networks, the default route by one": {addAddress(5, "198.51.100.2/29"), "bond0.100",
			[]contract.NetworkBlock{public}},
		"two public networks, no default route": {both(addAddress(5, "198.51.100.2/29"),
			func(_ *Expected, s *Snapshot) { s.Tables = nil }), "", nil},
		"named": {func(e *Expected, _ *Snapshot) { e.Interface = "bond0.11" }, "bond0.11",
			[]contract.NetworkBlock{{CIDR: netip.MustParsePrefix("10.0.0.0/24"),
				Gateway: netip.MustParseAddr("10.0.0.1")}}},
		"another uplink": {func(e *Expected, _ *Snapshot) { e.Uplink = "eno1" }, "", nil},
		"address of a Service": {both(removeAddress(nodeIP), addAddress(6, "203.0.113.3/32")),
			"", nil},
		"deprecated address": {editAddress(nodeIP, func(a *Address) { a.Deprecated = true }), "", nil},
		"two addresses of one block": {addAddress(6, "192.0.2.3/28"), "bond0.100",
			[]contract.NetworkBlock{public}},
		"gateway by a route": {func(_ *Expected, s *Snapshot) {
			s.Tables = map[int][]Route{7: {{Destination: everywhere, LinkIndex: s.LinkNamed("bond0.100").Index,
				Type: "unicast", Gateway: netip.MustParseAddr("192.0.2.14")}}}
		}, "bond0.100", []contract.NetworkBlock{{CIDR: public.CIDR, Gateway: netip.MustParseAddr("192.0.2.14")}}},
		"the first of two gateways, none outside the block": {func(_ *Expected, s *Snapshot) {
			s.Tables = map[int][]Route{7: {via(s, "192.0.2.13"), via(s, "192.0.2.14"), via(s, "192.0.1.1")}}
		}, "bond0.100", []contract.NetworkBlock{{CIDR: public.CIDR, Gateway: netip.MustParseAddr("192.0.2.13")}}},
		"own address where the gateway is expected": {both(removeAddress(nodeIP), both(
			addAddress(6, "192.0.2.1/28"), func(_ *Expected, s *Snapshot) { s.Tables = nil })),
			"bond0.100", nil},
		"no VLAN interface": {both(removeLink("bond0.100"), removeLink("bond0.11")), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := nodeWith()
			e := Expected{Unreached: true}
			tc.edit(&e, &s)
			got := Assume(e, s)
			if got.Assumed != tc.assumed || got.Published != (tc.assumed != "") {
				t.Errorf("assumed %q, published %t, want %q", got.Assumed, got.Published, tc.assumed)
			}
			if diff := cmp.Diff(tc.blocks, got.Network.Blocks, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
				cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
		})
	}
}

// via is a default route by the VLAN interface.
func via(s *Snapshot, gateway string) Route {
	return Route{Destination: everywhere, LinkIndex: s.LinkNamed("bond0.100").Index, Type: "unicast",
		Gateway: netip.MustParseAddr(gateway)}
}

// TestAssumedNetworkIsChecked: what the kernel and the wire show is checked without an API server; only what the
// controller knows is not. A fault of the machine is found as with the API server.
func TestAssumedNetworkIsChecked(t *testing.T) {
	_, s := nodeWith()
	e := Assume(Expected{Unreached: true}, s)
	askRoutes(e, &s)
	report := Evaluate(e, s)
	passed := 0
	for _, f := range report.Findings {
		switch {
		case f.ID == NetworkPublished && (f.Status != Unknown || f.Reason != "APIServerNotReached"):
			t.Errorf("%s is %s %s", f.ID, f.Status, f.Reason)
		case f.Status == Fail || strings.HasPrefix(f.Because, becauseOf):
			t.Errorf("%s is %s: %s%s", f.ID, f.Status, f.Cause, f.Because)
		case f.Status == OK:
			passed++
		default:
		}
	}
	if passed < 15 {
		t.Errorf("%d checks passed, want those of link, address, gateway, kernel and return path", passed)
	}
	t.Logf("figure checks_without_cluster %d checks", passed)
	s.LinkNamed("bond0.100").Up = false
	if first, _ := Evaluate(e, s).FirstCause(); first.ID != VLANUp {
		t.Errorf("first cause %s, want %s", first.ID, VLANUp)
	}
}

// TestAssumeAnything: no machine makes a panic, a report without reasons, or one that depends on the order of anything.
func TestAssumeAnything(t *testing.T) {
	for seed := range uint64(seeds.Count(t, 1000)) {
		random := rand.New(rand.NewPCG(seed, 15))
		s := anySnapshot(random)
		e := Assume(Expected{Unreached: true}, s)
		askRoutes(e, &s)
		report := Evaluate(e, s)
		for _, problem := range problems(report) {
			t.Errorf("seed %d: %s", seed, problem)
		}
		unasked := Expected{Unreached: true}
		shuffleAll(random, &unasked, &s)
		if diff := cmp.Diff(report, Evaluate(Assume(unasked, s), s)); diff != "" {
			t.Errorf("seed %d: report depends on the order (-before +after):\n%s", seed, diff)
		}
		if t.Failed() {
			return
		}
	}
}
