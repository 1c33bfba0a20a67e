//go:build linux

package topology

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim/dataplane"
)

func TestPlanFor(t *testing.T) {
	got, err := planFor(dataplane.DataPlane{Networks: []dataplane.Network{
		{ID: "n1", VLAN: 56, Members: []string{"a", "b"},
			Blocks: []dataplane.Block{{ID: "b1", CIDR: "203.0.113.8/29", Gateway: "203.0.113.9"}}},
		{ID: "n2", VLAN: 57, Members: []string{"a"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := plan{
		open:     map[portVLAN]bool{{"a", 56}: true, {"b", 56}: true, {"a", 57}: true},
		trunk:    map[int]bool{56: true, 57: true},
		gateways: map[gatewayAddress]bool{{56, netip.MustParsePrefix("203.0.113.9/29")}: true},
	}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(plan{}, portVLAN{}, gatewayAddress{}),
		gocmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("planFor differs (-want +got):\n%s", diff)
	}
}

func TestPlanForRefuses(t *testing.T) {
	for want, n := range map[string]dataplane.Network{
		"VLAN 0 is outside":    {ID: "n", VLAN: 0},
		"VLAN 4095 is outside": {ID: "n", VLAN: 4095},
		"block b": {ID: "n", VLAN: 5,
			Blocks: []dataplane.Block{{ID: "b", CIDR: "203.0.113.8", Gateway: "203.0.113.9"}}},
		"gateway": {ID: "n", VLAN: 5, Blocks: []dataplane.Block{{ID: "b", CIDR: "203.0.113.8/29", Gateway: ""}}},
		"lies outside": {ID: "n", VLAN: 5, Blocks: []dataplane.Block{{ID: "b", CIDR: "203.0.113.8/29",
			Gateway: "203.0.113.1"}}},
	} {
		if _, err := planFor(dataplane.DataPlane{Networks: []dataplane.Network{n}}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("planFor(%+v) = %v, want an error with %q", n, err, want)
		}
	}
}

// TestDifferenceLeadsFromOneStateToTheOther applies random differences and compares with where they should lead.
func TestDifferenceLeadsFromOneStateToTheOther(t *testing.T) {
	first := rand.Uint64()
	for i := range seeds.Count(t, 200) {
		seed := first + uint64(i)
		r := rand.New(rand.NewPCG(seed, 0))
		have := randomSet(r)
		want := randomSet(r)
		remove, add := difference(have, want, cmp.Compare[int])
		got := map[int]bool{}
		for k := range have {
			got[k] = true
		}
		for _, k := range remove {
			if !got[k] {
				t.Fatalf("seed %d: %d is removed but was not there", seed, k)
			}
			delete(got, k)
		}
		for _, k := range add {
			if got[k] {
				t.Fatalf("seed %d: %d is added but is there", seed, k)
			}
			got[k] = true
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: from %v by -%v +%v came %v, want %v", seed, have, remove, add, got, want)
		}
	}
}

func randomSet(r *rand.Rand) map[int]bool {
	set := map[int]bool{}
	for range r.IntN(8) {
		set[r.IntN(10)] = true
	}
	return set
}

func TestWrongIDIsNeverRightAndNeverShared(t *testing.T) {
	seen := map[int]int{}
	for id := 1; id <= 4094; id++ {
		wrong := wrongID(id)
		if wrong == id || wrong < 1 || wrong > 4094 {
			t.Fatalf("wrongID(%d) = %d", id, wrong)
		}
		if other, ok := seen[wrong]; ok {
			t.Fatalf("wrongID(%d) = wrongID(%d) = %d", id, other, wrong)
		}
		seen[wrong] = id
	}
}

func TestNth(t *testing.T) {
	if got, want := nth(netip.MustParsePrefix("198.51.100.7/24"),
		10), netip.MustParsePrefix("198.51.100.10/24"); got != want {
		t.Errorf("nth = %s, want %s", got, want)
	}
}
