//go:build linux

package topology

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/dataplane"
)

func TestPlanFor(t *testing.T) {
	got, err := planFor(dataplane.DataPlane{Networks: []dataplane.Network{
		{ID: "n1", VLAN: 56, Members: []string{"a", "b"},
			Blocks: []dataplane.Block{{ID: "b1", CIDR: "203.0.113.8/29", Gateway: "203.0.113.9"}}},
		{ID: "n2", VLAN: 57, Members: []string{"a"}},
	}}, []string{""})
	if err != nil {
		t.Fatal(err)
	}
	want := plan{
		open:     sets.New(portVLAN{"a", 56}, portVLAN{"b", 56}, portVLAN{"a", 57}),
		trunks:   sets.New(trunk{0, 56}, trunk{0, 57}),
		gateways: sets.New(gatewayAddress{trunk{0, 56}, netip.MustParsePrefix("203.0.113.9/29")}),
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(plan{}, portVLAN{}, trunk{}, gatewayAddress{}),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("planFor differs (-want +got):\n%s", diff)
	}
}

// TestPlanForLocations: equal VLAN IDs are two networks, and what is in a location that the lab does not have is passed
// over.
func TestPlanForLocations(t *testing.T) {
	got, err := planFor(dataplane.DataPlane{Networks: []dataplane.Network{
		{ID: "n1", VLAN: 56, Location: "ASH", Members: []string{"a"}},
		{ID: "n2", VLAN: 56, Location: "PHX", Members: []string{"b"},
			Blocks: []dataplane.Block{{ID: "b1", CIDR: "203.0.113.8/29", Gateway: "203.0.113.9"}}},
		{ID: "n3", VLAN: 58, Location: "SGP", Members: []string{"c"}},
	}}, []string{"ASH", "PHX"})
	if err != nil {
		t.Fatal(err)
	}
	if want := sets.New(trunk{0, 56}, trunk{1, 56}); !got.trunks.Equal(want) {
		t.Errorf("trunks %v, want %v", got.trunks, want)
	}
	if want := sets.New(portVLAN{"a", 56}, portVLAN{"b", 56}); !got.open.Equal(want) {
		t.Errorf("open %v, want %v", got.open, want)
	}
	want := sets.New(gatewayAddress{trunk{1, 56}, netip.MustParsePrefix("203.0.113.9/29")})
	if !got.gateways.Equal(want) {
		t.Errorf("gateways %v, want %v", got.gateways, want)
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
		if _, err := planFor(dataplane.DataPlane{Networks: []dataplane.Network{n}}, []string{""}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("planFor(%+v) = %v, want an error with %q", n, err, want)
		}
	}
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
