package reconcile_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// portal simulates edits of the cluster's blocks in the portal.
type portal struct {
	w *world
	// tags are what retagged blocks carried before.
	tags map[string]map[string]string
	// taken counts the blocks that were deleted or retagged: another may be bought for each.
	taken int
	// lost are the Services whose published block was deleted. Its addresses may be sold again.
	lost map[string]bool
}

func newPortal(w *world) *portal {
	return &portal{w: w, tags: map[string]map[string]string{}, lost: map[string]bool{}}
}

// edit does something to a block: takes it off its network, deletes it, or takes its tags away.
func (d *portal) edit(rng *rand.Rand, names []string) {
	blocks := d.w.sim.State(accountID).Blocks
	block := blocks[rng.IntN(len(blocks))]
	id := fmt.Sprint(block["id"])
	cidr := netip.MustParsePrefix(fmt.Sprint(block["cidr"]))
	if block["cidr"] == "203.0.113.0/29" {
		return
	}
	tags := tagsOf(block)
	switch rng.IntN(3) {
	case 0:
		if block["status"] == "assigned" {
			d.w.portal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: id})
		}
	case 1:
		if id == broughtID || block["status"] != "assigned" {
			return
		}
		d.w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: id})
		d.taken++
		for _, name := range names {
			if address, err := netip.ParseAddr(d.w.address(name)); err == nil && cidr.Contains(address) {
				d.lost[name] = true
			}
		}
	default:
		if len(tags) == 0 {
			return
		}
		d.tags[id] = tags
		d.w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: id, Tags: map[string]string{}})
		d.taken++
	}
	d.w.lookForDrift()
}

// undo gives blocks back the tags that they carried.
func (d *portal) undo() {
	for _, block := range d.w.sim.State(accountID).Blocks {
		id := fmt.Sprint(block["id"])
		if tags, changed := d.tags[id]; changed {
			d.w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: id, Tags: tags})
		}
	}
	clear(d.tags)
}

// sound are the Services whose block was not deleted.
func (d *portal) sound(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return d.lost[name] })
}

func tagsOf(block map[string]any) map[string]string {
	tags := map[string]string{}
	assigned, _ := block["tags"].([]any)
	for _, one := range assigned {
		if tag, ok := one.(map[string]any); ok {
			tags[fmt.Sprint(tag["name"])] = fmt.Sprint(tag["value"])
		}
	}
	return maps.Clone(tags)
}
