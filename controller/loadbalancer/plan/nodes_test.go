package plan

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

func TestChooseNodeBlock(t *testing.T) {
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	of := func(id string, change func(*network.Block)) network.Sighting {
		b := network.Block{ID: id, Location: "ASH", Status: network.Unassigned, CreatedOn: day}
		if change != nil {
			change(&b)
		}
		return network.Sighting{Block: b}
	}
	assigned := func(b *network.Block) {
		b.Status = network.Assigned
		b.ResourceID = "n"
	}
	elsewhere := func(b *network.Block) {
		b.Status = network.Assigned
		b.ResourceID = "m"
	}
	for name, test := range map[string]struct {
		blocks   []network.Sighting
		recorded string
		used     []string
		want     string
		surplus  []string
	}{
		"none":                     {},
		"one":                      {blocks: []network.Sighting{of("a", nil)}, want: "a"},
		"one, another is recorded": {blocks: []network.Sighting{of("a", nil)}, recorded: "x", want: "a"},
		"the recorded one": {blocks: []network.Sighting{of("a", assigned), of("b", nil)}, recorded: "b",
			want: "b", surplus: []string{"a"}},
		"one in use goes before": {blocks: []network.Sighting{of("a", nil), of("b", assigned)}, recorded: "a",
			used: []string{"b"}, want: "b", surplus: []string{"a"}},
		"two in use, the recorded one": {blocks: []network.Sighting{of("a", nil), of("b", nil)}, recorded: "b",
			used: []string{"a", "b"}, want: "b", surplus: []string{"a"}},
		"the assigned one": {blocks: []network.Sighting{of("a", nil), of("b", assigned), of("c", nil)},
			want: "b", surplus: []string{"a", "c"}},
		"the oldest": {blocks: []network.Sighting{of("a", nil),
			of("b", func(b *network.Block) { b.CreatedOn = day.Add(-1) })}, want: "b", surplus: []string{"a"}},
		"one of unknown age is not oldest": {blocks: []network.Sighting{
			of("a", func(b *network.Block) { b.CreatedOn = time.Time{} }),
			of("b", nil)}, want: "b", surplus: []string{"a"}},
		"not one on another network": {blocks: []network.Sighting{of("a", elsewhere), of("b", nil)}, recorded: "a",
			used: []string{"a"}, want: "b", surplus: []string{"a"}},
		"not one in another location": {blocks: []network.Sighting{of("a", func(b *network.Block) { b.Location = "PHX" }),
			of("b", nil)}, recorded: "a", want: "b", surplus: []string{"a"}},
		"one that is only listed is no one": {blocks: []network.Sighting{{Block: of("a", assigned).Block, Hidden: true},
			of("b", nil)}, recorded: "a", want: "b"},
		"only a listed one": {blocks: []network.Sighting{{Block: of("a", assigned).Block, Hidden: true}}},
		"an error is worse than nothing": {blocks: []network.Sighting{
			of("a", func(b *network.Block) { b.Status = network.ErrorAssigning }),
			of("b", nil)}, want: "b", surplus: []string{"a"}},
		"one that is seen twice": {blocks: []network.Sighting{of("a", nil), of("a", nil)}, want: "a"},
	} {
		v := ipblock.Account{Network: network.Named{ID: "n"}, Networks: map[string]network.Network{"n": {ID: "n",
			Location: "ash"}}}
		kept, surplus, found := ipblock.ChooseNodeBlock(test.blocks, test.recorded,
			func(b network.Block) bool { return slices.Contains(test.used, b.ID) }, v)
		var rest []string
		for _, s := range surplus {
			rest = append(rest, s.Block.ID)
		}
		if kept.Block.ID != test.want || found != (test.want != "") || !slices.Equal(rest, test.surplus) {
			t.Errorf("%s: keeps %q, found %v, surplus %q; want %q and %q", name, kept.Block.ID, found, rest, test.want,
				test.surplus)
		}
	}
}

// Whatever the account holds: exactly one block that can be read is kept, every other one is surplus, the order of the
// list changes nothing, and a block that serves is never surplus beside one that nothing speaks for.
func TestOneNodeBlockIsKept(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	var inUse, many int
	for range seeds.Count(t, 20_000) {
		var blocks []network.Sighting
		used := map[string]bool{}
		for range random.IntN(5) {
			b := network.Block{
				ID: pick("a", "b", "c", "d", "e"), Location: pick("ASH", "ASH", "ASH", "PHX"),
				ResourceID: pick("", "n", "n", "m"),
				Status: network.BlockStatus(pick("creating", "unassigned", "assigning", "assigned", "unassigning",
					"error assigning", "odd")),
				CIDR: netip.MustParsePrefix("203.0.113.0/28"), CreatedOn: time.Unix(int64(random.IntN(3)), 0),
			}
			if slices.ContainsFunc(blocks, func(s network.Sighting) bool { return s.Block.ID == b.ID }) {
				continue
			}
			blocks = append(blocks, network.Sighting{Block: b, Hidden: random.IntN(6) == 0})
			used[b.ID] = random.IntN(3) == 0
		}
		recorded := pick("", "a", "b", "x")
		v := ipblock.Account{Network: network.Named{ID: "n"}, Networks: map[string]network.Network{"n": {ID: "n",
			Location: "ASH"}}}
		choose := func() (network.Sighting, []network.Sighting, bool) {
			return ipblock.ChooseNodeBlock(blocks, recorded, func(b network.Block) bool { return used[b.ID] }, v)
		}
		kept, surplus, found := choose()
		serves := func(s network.Sighting) bool {
			return !s.Hidden && s.Block.Location == "ASH" && s.Block.ResourceID != "m"
		}
		readable := 0
		for _, s := range blocks {
			isSurplus := slices.ContainsFunc(surplus, func(o network.Sighting) bool { return o.Block.ID == s.Block.ID })
			isKept := found && kept.Block.ID == s.Block.ID
			if !s.Hidden {
				readable++
			}
			if either := isSurplus != isKept; either == s.Hidden || (isSurplus && isKept) {
				t.Fatalf("%+v: kept %v, surplus %v", s, isKept, isSurplus)
			}
			if isSurplus && serves(s) && used[s.Block.ID] && !used[kept.Block.ID] {
				t.Fatalf("%+v is in use and surplus beside %+v", s, kept)
			}
			if isSurplus && serves(s) && s.Block.ID == recorded && s.Block.Status != "odd" && !used[kept.Block.ID] {
				t.Fatalf("%+v is recorded and surplus beside %+v", s, kept)
			}
			if isSurplus && serves(s) && !serves(kept) {
				t.Fatalf("%+v is kept, which cannot serve, and %+v is surplus", kept, s)
			}
		}
		if found != (readable > 0) || (found && len(surplus) != readable-1) {
			t.Fatalf("of %d readable blocks %d are surplus, found %v", readable, len(surplus), found)
		}
		if readable > 1 {
			many++
		}
		if found && used[kept.Block.ID] {
			inUse++
		}
		random.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		if again, _, _ := choose(); again.Block.ID != kept.Block.ID {
			t.Fatalf("the order of the list decides between %+v and %+v", again, kept)
		}
	}
	if many < 20 || inUse < 20 {
		t.Errorf("%d accounts with several blocks, %d with one in use: too few", many, inUse)
	}
}
