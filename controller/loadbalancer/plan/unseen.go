package plan

import (
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

// inNetwork reports whether a network lists the block. It exists then, whatever the list of blocks and its ID show: a
// network is read live.
func (v View) inNetwork(id string) bool {
	for _, network := range v.Networks {
		if id != "" && network.Listed(id) {
			return true
		}
	}
	return false
}

// Exists reports whether there is a block that cannot be read by its ID, or not with its tags: a network has it, or the
// index names it.
func (v View) Exists(id string) bool { return v.inNetwork(id) || slices.Contains(v.Unseen, id) }

// BoughtUnseen returns the block of the recorded purchase if it exists and cannot be read; its ID is empty when only
// the purchase is known and not its answer. The network is believed always, and the index as long as a list may lag.
func (v View) BoughtUnseen() (b network.Block, unseen bool) {
	if v.Purchase == nil {
		return network.Block{}, false
	}
	id := v.Purchase.BlockID
	recent := v.Now.Sub(v.Purchase.Time) < unplacedFor
	if id == "" {
		return network.Block{}, recent && len(v.Unseen) > 0
	}
	seen := slices.ContainsFunc(v.Sightings, func(s network.Sighting) bool { return s.Block.ID == id })
	return network.Block{ID: id}, !seen && (v.inNetwork(id) || recent && slices.Contains(v.Unseen, id))
}

// waitUnseen waits until a block can be read that exists.
func waitUnseen(b network.Block) Step {
	if b.ID == "" {
		return Step{Action: Wait, Reason: PurchaseUnanswered}
	}
	return Step{Action: Wait, Reason: BlockInvisible, Block: b}
}

// waitHidden waits for a block that is listed and cannot be read: until it can where a network has it, else until it
// is gone.
func (v View) waitHidden(b network.Block) Step {
	if v.Exists(b.ID) {
		return waitUnseen(b)
	}
	return Step{Action: Wait, Reason: DeletionUnverified, Block: b}
}

// unseenAt returns the block of the configured network that holds an address while it cannot be read whose it is. One
// that can, or that the list shows with the tags of another owner, is no such block.
func (o Observed) unseenAt(address netip.Addr) (network.Block, bool) {
	place, found := find(o.Networks[o.NetworkID].Blocks, func(n network.ListedBlock) bool {
		return address.IsValid() && n.CIDR.IsValid() && n.CIDR.Contains(address) && !o.showsOwner(n.ID)
	})
	return network.Block{ID: place.ID, CIDR: place.CIDR}, found
}

// showsOwner reports whether it is known whose the block is: it was read by its ID, or the list shows that it is
// neither the Service's own nor the pool's. What answers without the tags that the index knows shows no owner.
func (o Observed) showsOwner(blockID string) bool {
	if slices.Contains(o.Unseen, blockID) {
		return false
	}
	if sighting, seen := o.Sighting(blockID); seen && !sighting.Hidden {
		return true
	}
	listed, found := find(o.Known(), func(b network.Block) bool { return b.ID == blockID })
	return found && !o.Owner.Owns(listed) && !o.Pool().Owns(listed)
}

// releasedUnseen returns the Service's own block if its release may not be concluded: the network has the published
// address, and no block of the Service can be read.
func (o Observed) releasedUnseen() (network.Block, bool) {
	b, unseen := o.unseenAt(o.Published())
	listed, _ := find(o.Known(), func(k network.Block) bool { return k.ID == b.ID })
	return b, unseen && len(o.Owned(o.Owner)) == 0 && !o.stored(b.ID) && !o.Pool().Owns(listed)
}
