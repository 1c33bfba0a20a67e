package ipblock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

var everyStatus = []network.BlockStatus{
	network.Creating, network.Unassigned, network.Assigning, network.Assigned,
	network.Unassigning, network.ErrorAssigning, network.ErrorUnassigning,
}

// leftOver is an account with up to three blocks of the Service in any state, beside blocks that only
// look like them.
func leftOver(seed uint64) (a *account, mine int) {
	a = newAccount(seed)
	mine = a.rng.IntN(4)
	for range mine {
		network := net1
		if a.rng.IntN(8) == 0 {
			network = "net2"
		}
		tags := shop.Tags()
		if a.rng.IntN(4) == 0 {
			tags = v1Tags()
		}
		a.leave(tags, everyStatus[a.rng.IntN(len(everyStatus))], network)
	}
	for _, tags := range []map[string]string{
		with(shop.Tags(), contract.TagCluster, "c2"), with(shop.Tags(), contract.TagService, "shop_webs"), nil,
	} {
		a.leave(tags, everyStatus[a.rng.IntN(len(everyStatus))], net1)
	}
	return a, mine
}

const (
	pause    = 3 * time.Second
	maxSteps = 600
)

// TestEnsureEndsWithOneBlock: from any left-over state, with a quarter of the steps lost, a Service ends
// with exactly one assigned block. The only excuse is a block that another network holds.
func TestEnsureEndsWithOneBlock(t *testing.T) {
	excused := 0
	walks := uint64(seeds.Count(t, 3000))
	for seed := range walks {
		a, mine := leftOver(seed)
		w := wish()
		if mine > 0 && a.rng.IntN(2) == 0 {
			w.Published = ipblock.ServiceAddress(a.owned()[a.rng.IntN(mine)].CIDR)
		}
		last := ensureToEnd(a, w)
		if last.Action == ipblock.Refuse && last.Reason == ipblock.BlockElsewhere && a.heldElsewhere(last.Block.ID) {
			excused++
			checkFaults(t, seed, a)
			continue
		}
		owned := a.owned()
		if last.Action != ipblock.Done || len(owned) != 1 || owned[0].Status != network.Assigned ||
			owned[0].ResourceID != net1 {
			t.Fatalf("seed %d: ended with %s %s and blocks %s", seed, last.Action, last.Reason, describe(owned))
		}
		if w.Published.IsValid() && !owned[0].CIDR.Contains(w.Published) {
			t.Errorf("seed %d: the published address %s is lost; the block is %s", seed, w.Published, owned[0].CIDR)
		}
		// A purchase without an answer from the life before may have been carried out: not a fault.
		if most := 1; a.created > most || (mine > 0 && a.created > 0) {
			t.Errorf("seed %d: bought %d blocks though %d were there", seed, a.created, mine)
		}
		checkFaults(t, seed, a)
	}
	if excused*4 > int(walks) {
		t.Errorf("%d of %d walks were excused; that proves too little", excused, walks)
	}
}

func ensureToEnd(a *account, w wanted) (last ipblock.Step) {
	for range maxSteps {
		v := a.view()
		last = w.ensure(shop, v)
		if last.Action == ipblock.Refuse {
			return last
		}
		if last.Action == ipblock.Done {
			duplicates := w.duplicates(shop, v)
			if len(duplicates) == 0 {
				return last
			}
			w.Published = last.Address
			last = duplicates[0]
		}
		a.takeAny(last)
		a.advance(pause)
	}
	return last
}

func (a *account) takeAny(s ipblock.Step) {
	switch s.Action {
	case ipblock.Buy, ipblock.Assign, ipblock.Unassign, ipblock.Delete:
		a.take(s)
	case ipblock.Wait, ipblock.Refuse, ipblock.Done:
	}
}

func (a *account) heldElsewhere(id string) bool {
	b := a.find(id)
	return b != nil && b.ResourceID != "" && b.ResourceID != net1
}

// TestReleaseEndsWithNone: from any left-over state, and from any moment of a purchase, releasing ends
// with no block of the Service and changes no others.
func TestReleaseEndsWithNone(t *testing.T) {
	for seed := range uint64(seeds.Count(t, 3000)) {
		a, _ := leftOver(seed)
		for range a.rng.IntN(12) {
			step := wish().ensure(shop, a.view())
			a.takeAny(step)
			a.advance(pause)
		}
		strangers := a.strangers()
		steps := releaseToEnd(a)
		if steps[0].Action != ipblock.Done || len(a.owned()) != 0 {
			t.Fatalf("seed %d: ended with %s %s and blocks %s", seed, steps[0].Action, steps[0].Reason,
				describe(a.owned()))
		}
		if now := a.strangers(); !slices.Equal(strangers, now) {
			t.Errorf("seed %d: blocks of others were %v and are %v", seed, strangers, now)
		}
		checkFaults(t, seed, a)
	}
}

func releaseToEnd(a *account) (steps []ipblock.Step) {
	for range maxSteps {
		steps = ipblock.Release(shop, a.view())
		if steps[0].Action == ipblock.Done {
			return steps
		}
		a.takeAny(steps[0])
		a.advance(pause)
	}
	return steps
}

func (a *account) strangers() []string {
	var ids []string
	for _, b := range a.blocks {
		if !shop.Owns(b.Block) {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

func checkFaults(t *testing.T, seed uint64, a *account) {
	t.Helper()
	for _, fault := range a.faults {
		t.Errorf("seed %d: asked for %s", seed, fault)
	}
}

func describe(blocks []*modelBlock) []string {
	var text []string
	for _, b := range blocks {
		text = append(text, fmt.Sprintf("%s %s in %q", b.ID, b.Status, b.ResourceID))
	}
	return text
}
