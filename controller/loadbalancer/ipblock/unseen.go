package ipblock

import (
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
	recent := account.Now.Sub(account.Purchase.Time) < UnassignedFor
	if id == "" {
		return network.Block{}, recent && len(account.Unseen) > 0
	}
	seen := slices.ContainsFunc(account.Sightings, func(s network.Sighting) bool { return s.Block.ID == id })
	return network.Block{ID: id}, !seen && (account.inNetwork(id) || recent && slices.Contains(account.Unseen, id))
}

// WaitUnseen waits until a block can be read that exists.
func WaitUnseen(b network.Block) Step {
	if b.ID == "" {
		return Step{Action: Wait, Reason: PurchaseUnanswered}
	}
	return Step{Action: Wait, Reason: BlockInvisible, Block: b}
}

// WaitHidden waits for a block that is listed and cannot be read: until it can where a network has it, else until it
// is gone.
func (account Account) WaitHidden(b network.Block) Step {
	if account.Exists(b.ID) {
		return WaitUnseen(b)
	}
	return Step{Action: Wait, Reason: DeletionUnverified, Block: b}
}
