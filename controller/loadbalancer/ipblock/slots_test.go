package ipblock_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// at is the view some time after noon.
func at(after time.Duration) func(*ipblock.Account) {
	return func(v *ipblock.Account) { v.Now = noon.Add(after) }
}

func TestNetworkSlotsRemember(t *testing.T) {
	waiting := block("a", network.Unassigned)
	unreadable := func(v *ipblock.Account) { v.Networks = nil }
	type look struct {
		view   ipblock.Account
		blocks []network.Block
	}
	for name, test := range map[string]struct {
		looks []look
		full  time.Duration // since when after noon; negative for a network with room
		known string
	}{
		"room":      {looks: []look{{view(nil), nil}}, full: -1},
		"full":      {looks: []look{{view(nil, foreign(10), at(time.Minute)), nil}}, full: time.Minute},
		"full long": {looks: []look{{view(nil, foreign(10)), nil}, {view(nil, foreign(10), at(time.Hour)), nil}}},
		"room in between": {looks: []look{{view(nil, foreign(10)), nil}, {view(nil, at(time.Minute)), nil},
			{view(nil, foreign(10), at(time.Hour)), nil}}, full: time.Hour},
		"unreadable in between": {looks: []look{{view(nil, foreign(10)), nil}, {view(nil, unreadable), nil},
			{view(nil, foreign(10), at(time.Hour)), nil}}},
		"waits": {looks: []look{{view(nil, at(time.Minute)), blocks(waiting)}}, full: -1, known: "a 1m0s"},
		"waits for long": {looks: []look{{view(nil), blocks(waiting)}, {view(nil, at(time.Minute)), blocks(waiting)}},
			full: -1, known: "a 0s"},
		"not in a late list": {looks: []look{{view(nil), blocks(waiting)}, {view(nil, at(time.Minute)), nil}},
			full: -1, known: "a 0s"},
		"never seen again": {looks: []look{{view(nil), blocks(waiting)}, {view(nil, at(2*time.Hour)), nil}}, full: -1},
		"assigned": {looks: []look{{view(nil), blocks(waiting)},
			{view(nil, at(time.Minute)), blocks(block("a", network.Assigned))}}, full: -1},
		"listed by the network": {looks: []look{{view(nil, publicNetwork(func(n *network.Network) {
			n.Blocks = append(n.Blocks, network.ListedBlock{ID: "a"})
		})), blocks(waiting)}}, full: -1},
		"of another cluster": {looks: []look{{view(nil), blocks(block("a", network.Unassigned, func(b *network.Block) {
			b.Tags = with(b.Tags, contract.TagCluster, "c2")
		}))}}, full: -1},
	} {
		t.Run(name, func(t *testing.T) {
			var p ipblock.NetworkSlots
			for _, l := range test.looks {
				p = p.Next(l.view, "c1", l.blocks)
			}
			full := time.Duration(-1)
			if !p.FullSince.IsZero() {
				full = p.FullSince.Sub(noon)
			}
			var known []string
			for _, id := range slices.Sorted(maps.Keys(p.Unassigned)) {
				known = append(known, fmt.Sprint(id, " ", p.Unassigned[id].Sub(noon)))
			}
			if got := strings.Join(known, ", "); full != test.full || got != test.known {
				t.Errorf("full since %s, blocks %q; want %s, %q", full, got, test.full, test.known)
			}
		})
	}
}

// TestBlockWithoutASlotIsReleasedAfterMinutes: both the block and the network must have been so for minutes.
func TestBlockWithoutASlotIsReleasedAfterMinutes(t *testing.T) {
	waiting := block("a", network.Unassigned)
	for name, test := range map[string]struct {
		block      network.Block
		full, with time.Duration // how long the network is full, and the block without a place
		want       ipblock.Action
	}{
		"minutes":               {waiting, 5 * time.Minute, time.Hour, ipblock.Delete},
		"network just full":     {waiting, 5*time.Minute - time.Second, time.Hour, ipblock.Refuse},
		"block just bought":     {waiting, time.Hour, 5*time.Minute - time.Second, ipblock.Refuse},
		"retained":              {block("a", network.Unassigned, retained), time.Hour, time.Hour, ipblock.Refuse},
		"in an error state":     {block("a", network.ErrorAssigning), time.Hour, time.Hour, ipblock.Refuse},
		"another block of ours": {block("b", network.Unassigned), time.Hour, time.Hour, ipblock.Refuse},
	} {
		t.Run(name, func(t *testing.T) {
			p := ipblock.NetworkSlots{FullSince: noon.Add(-test.full),
				Unassigned: map[string]time.Time{"a": noon.Add(-test.with)}}
			step := p.ReleaseUnassigned(ipblock.Step{Action: ipblock.Refuse, Reason: ipblock.NetworkFull,
				Block: test.block}, noon)
			if step.Action != test.want {
				t.Errorf("%s, want %s", step.Action, test.want)
			}
			other := ipblock.Step{Action: ipblock.Refuse, Reason: ipblock.LocationMismatch, Block: test.block}
			if step := p.ReleaseUnassigned(other, noon); step.Action != ipblock.Refuse {
				t.Errorf("another refusal becomes %s", step.Action)
			}
		})
	}
}

func TestStuckBlockStopsOthersForMinutesOnly(t *testing.T) {
	p := ipblock.NetworkSlots{Unassigned: map[string]time.Time{"a": noon}}
	waiting := block("a", network.Unassigned)
	for after, want := range map[time.Duration]bool{0: true, 10*time.Minute - 1: true, 10 * time.Minute: false} {
		if got := p.Coming(waiting, noon.Add(after)); got != want {
			t.Errorf("after %s: %t", after, got)
		}
	}
	if p.Coming(block("b", network.Unassigned), noon) || p.Coming(block("a", network.Unassigned, retained), noon) {
		t.Error("a block that waits for no place stops others")
	}
}

func TestTakenNamesTheHolders(t *testing.T) {
	v := view(blocks(block("a", network.Assigned), block("b", network.Assigned)), foreign(2))
	other := block("f0", network.Assigned, func(b *network.Block) { b.Tags = with(b.Tags, contract.TagCluster, "c2") })
	got := v.Networks[net1].Taken("c1", []network.Block{block("a", network.Assigned), block("b", network.Assigned),
		other})
	if want := "1 by cluster c2, 1 by others, 2 by this cluster"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
