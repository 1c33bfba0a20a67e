package plan

import (
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

// inNetwork reports whether a network lists the block. It exists then, whatever the list of blocks and its ID show: a
// network is read live.
func (account Account) inNetwork(id string) bool {
	for _, network := range account.Networks {
		if id != "" && network.Listed(id) {
			return true
		}
	}
	return false
}

// Exists reports whether there is a block that cannot be read by its ID, or not with its tags: a network has it, or the
// index names it.
func (account Account) Exists(id string) bool {
	return account.inNetwork(id) || slices.Contains(account.Unseen, id)
}

// BoughtUnseen returns the block of the recorded purchase if it exists and cannot be read; its ID is empty when only
// the purchase is known and not its answer. The network is believed always, and the index as long as a list may lag.
func (account Account) BoughtUnseen() (b network.Block, unseen bool) {
	if account.Purchase == nil {
		return network.Block{}, false
	}
	id := account.Purchase.BlockID
	recent := account.Now.Sub(account.Purchase.Time) < unassignedFor
	if id == "" {
		return network.Block{}, recent && len(account.Unseen) > 0
	}
	seen := slices.ContainsFunc(account.Sightings, func(s network.Sighting) bool { return s.Block.ID == id })
	return network.Block{ID: id}, !seen && (account.inNetwork(id) || recent && slices.Contains(account.Unseen, id))
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
func (account Account) waitHidden(b network.Block) Step {
	if account.Exists(b.ID) {
		return waitUnseen(b)
	}
	return Step{Action: Wait, Reason: DeletionUnverified, Block: b}
}

// unseenAt returns the block of the configured network that holds an address while it cannot be read whose it is. One
// that can, or that the list shows with the tags of another owner, is no such block.
func (obs Observed) unseenAt(address netip.Addr) (network.Block, bool) {
	place, found := find(obs.Public().Blocks, func(n network.ListedBlock) bool {
		return address.IsValid() && n.CIDR.IsValid() && n.CIDR.Contains(address) && !obs.showsOwner(n.ID)
	})
	return network.Block{ID: place.ID, CIDR: place.CIDR}, found
}

// showsOwner reports whether it is known whose the block is: it was read by its ID, or the list shows that it is
// neither the Service's own nor the pool's. What answers without the tags that the index knows shows no owner.
func (obs Observed) showsOwner(blockID string) bool {
	if slices.Contains(obs.Unseen, blockID) {
		return false
	}
	if sighting, seen := obs.Sighting(blockID); seen && !sighting.Hidden {
		return true
	}
	listed, found := find(obs.Known(), func(b network.Block) bool { return b.ID == blockID })
	return found && !obs.Owner.Owns(listed) && !obs.Pool().Owns(listed)
}

// releasedUnseen returns the Service's own block if its release may not be concluded: the network has the published
// address, and no block of the Service can be read.
func (obs Observed) releasedUnseen() (network.Block, bool) {
	b, unseen := obs.unseenAt(obs.Published)
	listed, _ := find(obs.Known(), func(k network.Block) bool { return k.ID == b.ID })
	return b, unseen && len(obs.Own) == 0 && !obs.stored(b.ID) && !obs.Pool().Owns(listed)
}
