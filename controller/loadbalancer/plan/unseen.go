package plan

import (
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

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
