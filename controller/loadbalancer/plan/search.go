package plan

import (
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

// Search is what to look for in the account beyond its list.
type Search struct {
	// Wanted reports whether a block matters, and Trusted whether the list is enough for one that does.
	Wanted, Trusted func(network.Block) bool
	// Enough reports whether there can be nothing to look for beyond what was found.
	Enough func([]network.Sighting) bool
	// IDs are those of blocks to look for by ID; empty ones do not count.
	IDs []string
}

// search is what to look for: the blocks that matter to the Service. From the cache, the list is enough. Live, blocks
// are also found by what a purchase recorded, and by what a ledger or the user names; and a block of the pool that is
// assigned and in use needs no second look.
func (obs Observed) search() Search {
	if !obs.Live {
		return Search{Wanted: obs.relevant, Trusted: func(network.Block) bool { return true },
			Enough: func([]network.Sighting) bool { return true }}
	}
	ids := []string{obs.NamedBlock}
	for _, recorded := range []*ipblock.Purchase{obs.Purchase, obs.PoolPurchase} {
		if recorded != nil {
			ids = append(ids, recorded.BlockID)
		}
	}
	for _, l := range obs.Ledgers {
		if l.Knows(obs.Holder) {
			ids = append(ids, l.BlockID)
		}
	}
	for _, l := range obs.Unrecorded { // whose address is in which of them is not known
		if obs.Published.IsValid() && !obs.Held.IsValid() && !l.Nodes {
			ids = append(ids, l.BlockID)
		}
	}
	return Search{Wanted: obs.relevant, Trusted: obs.inUse, IDs: ids, Enough: func(found []network.Sighting) bool {
		seen := obs
		seen.Sightings = found
		return seen.Complete().needsNoIndex()
	}}
}

// relevant reports whether a block matters to the Service: it is its own, of its pool, named by it, or one of which it
// holds an address; its own also where only the description says so.
func (obs Observed) relevant(block network.Block) bool {
	for _, owner := range obs.Owners() {
		if owner.DescribedBy(block) {
			return true
		}
	}
	if obs.Owner.Owns(block) || (obs.NamedBlock != "" && block.ID == obs.NamedBlock) ||
		(obs.WantsPool && obs.Pool().Owns(block)) {
		return true
	}
	l, stored := obs.Ledger(block.ID)
	return stored && l.Knows(obs.Holder)
}

// inUse reports whether the block is an assigned one of the pool with an open ledger.
func (obs Observed) inUse(block network.Block) bool {
	l, stored := obs.Ledger(block.ID)
	return stored && !l.Closed && block.Status == network.Assigned && obs.Pool().Owns(block) &&
		obs.Service.DeletionTimestamp == nil
}

// needsNoIndex reports whether there can be nothing to look for beyond what is seen. The index of the tag of the
// cluster is needed as long as a block is missing that the Service may have, or one that is about to take a slot where
// a purchase may follow; and where retained blocks are counted.
func (obs Observed) needsNoIndex() bool {
	own := obs.Own
	retained := slices.ContainsFunc(own, func(s network.Sighting) bool { return network.Retained(s.Block) })
	if WantsAddress(obs.Service) && len(own) == 0 || obs.Desired.Retain && !retained {
		return false
	}
	return !slices.ContainsFunc(obs.Owners(), func(owner network.Owner) bool {
		return !slices.ContainsFunc(obs.Sightings, func(i network.Sighting) bool {
			return owner.Owns(i.Block) && (owner == obs.Owner || i.Block.Status != network.Assigned)
		})
	})
}
