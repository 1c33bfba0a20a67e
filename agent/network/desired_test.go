//go:build linux

package network

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// TestDesired: what starts, ends and stays.
func TestDesired(t *testing.T) {
	for name, tc := range map[string]struct {
		listed  []string
		running map[string]bool
		want    change
	}{
		"an agent that starts":           {nil, nil, change{start: []string{""}}},
		"the first network":              {[]string{"a"}, map[string]bool{"": false}, change{start: []string{"a"}, stop: []string{""}}},
		"a second one":                   {[]string{"a", "b"}, map[string]bool{"a": false}, change{start: []string{"b"}, keep: []string{"a"}}},
		"one of two goes":                {[]string{"b"}, map[string]bool{"a": false, "b": false}, change{stop: []string{"a"}, keep: []string{"b"}}},
		"another one in its place":       {[]string{"b"}, map[string]bool{"a": false}, change{start: []string{"b"}, stop: []string{"a"}}},
		"the list is missing":            {nil, map[string]bool{"a": false, "b": false}, change{keep: []string{"a", "b"}}},
		"one comes back while it ends":   {[]string{"a", "b"}, map[string]bool{"a": true, "b": false}, change{keep: []string{"b"}}},
		"the list goes while all end":    {nil, map[string]bool{"a": true}, change{start: []string{""}}},
		"the list names a network twice": {[]string{"a", "a"}, nil, change{start: []string{"a"}}},
	} {
		if got := desired(tc.listed, tc.running); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestDesiredAnywhere starts anywhere: a network has one Runtime at most, what runs and is listed stays, and at
// the end those that are listed run.
func TestDesiredAnywhere(t *testing.T) {
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	some := func() (ids []string) {
		for _, id := range []string{"a", "b", "c", "d"} {
			if random.IntN(2) == 0 {
				ids = append(ids, id)
			}
		}
		return ids
	}
	for range seeds.Count(t, 1000) {
		running := map[string]bool{}
		for _, id := range append(some(), "") {
			if random.IntN(2) == 0 {
				running[id] = random.IntN(3) == 0
			}
		}
		listed := some()
		before := maps.Clone(running)
		c := desired(listed, running)
		for id, ending := range before {
			if slices.Contains(c.start, id) {
				t.Fatalf("%q of %v would run twice: %+v", id, before, c)
			}
			if !ending && (len(listed) == 0 || slices.Contains(listed, id)) && !slices.Contains(c.keep, id) {
				t.Fatalf("%q, which is not concerned, is not kept by %v: %+v", id, listed, c)
			}
		}
		for _, id := range c.stop {
			delete(running, id)
		}
		maps.DeleteFunc(running, func(_ string, ending bool) bool { return ending })
		for _, id := range c.start {
			running[id] = false
		}
		// Those that were ending have ended.
		for _, id := range desired(listed, running).start {
			running[id] = false
		}
		got := slices.Sorted(maps.Keys(running))
		if len(listed) > 0 && !slices.Equal(got, listed) || len(got) == 0 {
			t.Fatalf("from %v the list %v leads to %v", before, listed, got)
		}
	}
}

// networks returns some networks of a Node, the VLANs of which differ.
func networks(random *rand.Rand) []contract.NodeNetwork {
	var all []contract.NodeNetwork
	for _, vlan := range random.Perm(4093)[:random.IntN(5)] {
		all = append(all, contract.NodeNetwork{ID: "n" + strconv.Itoa(vlan), VLAN: vlan + 2})
	}
	return all
}

// TestExpectations: no two networks have a routing table or the interface that a person named in common, and a change
// of the entry of one changes nothing for the others.
func TestExpectations(t *testing.T) {
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	options := Options{Interface: "public0", Uplink: "bond1", TableBase: 256 + random.IntN(1<<20),
		ManageReturnPath: true, Bits: 0xf0}
	for range seeds.Count(t, 300) {
		all := networks(random)
		expected, listed := expectations(all, nil, nil, options)
		tables := map[int]string{}
		for i, n := range all {
			e := expected[n.ID]
			if listed[i] != n.ID || !e.Published || e.Uplink != "bond1" || e.Mask != 0xf0 ||
				(e.Interface == "public0") != (i == 0) {
				t.Fatalf("network %d of %v: %+v", i, listed, e)
			}
			for gateway := range 16 {
				table := e.Table() + gateway*4096
				if other, used := tables[table]; used {
					t.Fatalf("table %d is of %s and of %s", table, other, n.ID)
				}
				tables[table] = n.ID
			}
		}
		if len(all) == 0 {
			continue
		}
		changed := random.IntN(len(all))
		all[changed].IPs = []netip.Addr{netip.MustParseAddr("192.0.2.2")}
		after, _ := expectations(all, nil, nil, options)
		for id, e := range after {
			if concerned := id == all[changed].ID; concerned == reflect.DeepEqual(e, expected[id]) {
				t.Fatalf("an address in %s: %q is concerned is %t", all[changed].ID, id, concerned)
			}
		}
	}
}

// TestOneVLANIDTwice: two networks would share interface and routing table.
func TestOneVLANIDTwice(t *testing.T) {
	_, listed := expectations([]contract.NodeNetwork{{ID: "a", VLAN: 7}, {ID: "b", VLAN: 7},
		{ID: "c", VLAN: 8}}, nil, nil, Options{})
	if !slices.Equal(listed, []string{"a", "c"}) {
		t.Errorf("served are %q, want the first network of each VLAN ID", listed)
	}
}

// TestNoList: without a list nothing is published, and one that cannot be read says why.
func TestNoList(t *testing.T) {
	expected, listed := expectations(nil, errors.New("no number"), nil, Options{Interface: "public0"})
	e := expected[""]
	if len(listed) != 0 || e.Published || e.Unreadable != "no number" || e.Interface != "public0" {
		t.Errorf("%v, %+v", listed, e)
	}
}
