// Package ipblock decides what public IP blocks need next, and who has which of their addresses, from values only. It
// knows no Service: what one asks for is a Request, and who has an address a Holder.
package ipblock

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

// rank says how far a block is on its way to the network, the furthest first.
type rank int

const (
	rankAssigned rank = iota
	rankAssigning
	rankUnassigned
	rankCreating
	// rankStuck is a block whose way may take long.
	rankStuck
	// rankUnknown is a block in a state that is not known.
	rankUnknown
)

func progress(s network.BlockStatus) rank {
	switch s {
	case network.Assigned:
		return rankAssigned
	case network.Assigning:
		return rankAssigning
	case network.Unassigned:
		return rankUnassigned
	case network.Creating:
		return rankCreating
	case network.Unassigning, network.ErrorAssigning, network.ErrorUnassigning:
		return rankStuck
	default:
		return rankUnknown
	}
}

// order ranks what is last behind what is not.
func order(last bool) int {
	if last {
		return 1
	}
	return 0
}

// PurchaseSettles is how long after a purchase without an answer nothing is bought. A block that was
// bought shows in the API's lists well within it.
const PurchaseSettles = 60 * time.Second

// Account is the input of a decision about the block of one Service.
type Account struct {
	// Now is the time of the decision.
	Now time.Time
	// Sightings are the blocks that may belong to the Service; those that do not are not changed.
	Sightings []network.Sighting
	// Unseen are the IDs of blocks of the cluster that the index of its tag names, though neither the list nor their ID
	// shows them, or that tag of them.
	Unseen []string
	// Networks are the public networks that could be read, by ID: the configured one and those that hold
	// one of the blocks.
	Networks map[string]network.Network
	// Network is the public network that the blocks are assigned to. Without a name it is the default one.
	Network network.Named
	// Purchase is the recorded intent to buy; nil when there is none.
	Purchase *Purchase
	// Published is the address that the owner has already; the zero Addr when it has none.
	Published netip.Addr
	// TakenUp are the IDs of the blocks for which people have created an IPBlock of source Brought. Such a block is not
	// released, whoever it was bought for.
	TakenUp []string
	Slots
}

// Slots is what is known of the slots of the public network, each of which takes one IP block.
type Slots struct {
	// MaxBlocks is the most blocks that may be bought for the cluster; 0 for no limit but the network's.
	MaxBlocks int
	// Bought is the number of blocks that the cluster has bought and still has.
	Bought int
	// Reserved is the number of blocks of other Services that are about to be assigned to the network.
	Reserved int
	// Coming is true while another block of the cluster is bought and has no slot in the network yet. The next is
	// bought when it has: another cluster may take the slots meanwhile, and what is bought for them is paid for in
	// vain.
	Coming bool
}

// Public is the configured public network; the zero Network when it cannot be read, see Unproven.
func (account Account) Public() network.Network { return account.Networks[account.Network.ID] }

// Owned returns the sightings of blocks that are provably the owner's, each once, ordered by ID.
func (account Account) Owned(owner network.Owner) []network.Sighting {
	owned := slices.DeleteFunc(slices.Clone(account.Sightings),
		func(s network.Sighting) bool { return !owner.Owns(s.Block) })
	slices.SortFunc(owned, func(a, b network.Sighting) int { return cmp.Compare(a.Block.ID, b.Block.ID) })
	return slices.CompactFunc(owned, func(a, b network.Sighting) bool { return a.Block.ID == b.Block.ID })
}

// PurchaseOpen reports whether the last purchase is too young to conclude anything from not seeing a block.
func (account Account) PurchaseOpen() bool {
	return account.Purchase != nil && account.Now.Before(account.Purchase.Time.Add(PurchaseSettles))
}

// Purchased returns the block of the recorded purchase, if the view shows it: by the ID that the API answered, or by
// the nonce at the end of the description.
func (account Account) Purchased(owner network.Owner) (network.Block, bool) {
	if account.Purchase == nil {
		return network.Block{}, false
	}
	sighting, found := find(account.Owned(owner), func(s network.Sighting) bool {
		return account.Purchase.Shows(s.Block)
	})
	return sighting.Block, found
}

// boughtUntagged returns a block that the recorded purchase or its description names while its tags do not name the
// owner: they are on their way, the API does not show them, or a person removed them. One with other tags serves
// something else.
func (account Account) boughtUntagged(owner network.Owner) (network.Block, bool) {
	untagged, found := find(account.Sightings, func(s network.Sighting) bool {
		named := account.recordedUntagged(owner, s.Block) || owner.DescribedBy(s.Block)
		return named && !owner.Owns(s.Block) && !s.Hidden
	})
	return untagged.Block, found
}

// recordedUntagged reports whether the recorded purchase names a block that nothing else can have been given.
func (account Account) recordedUntagged(owner network.Owner, b network.Block) bool {
	if account.Purchase == nil || b.ID != account.Purchase.BlockID {
		return false
	}
	_, untouchable := Untouchable(b)
	return len(b.Tags) == 0 || untouchable || account.PurchaseOpen() ||
		network.OfCluster(b, owner.Cluster) && !network.Purposed(b)
}

// find returns the first that matches.
func find[T any](all []T, matches func(T) bool) (first T, found bool) {
	if i := slices.IndexFunc(all, matches); i >= 0 {
		return all[i], true
	}
	return first, false
}
