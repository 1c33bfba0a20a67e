package plan

import (
	"cmp"
	"net/netip"
	"slices"
)

// Extend decides whether one more block is bought for an owner that may have several: a pool. The answer
// is Buy, Wait or Refuse. A purchase whose block the view shows keeps no further one waiting.
func Extend(o Owner, w Wish, v View) Step {
	if refusal, unproven := Unproven(v); unproven {
		return refusal
	}
	if v.purchaseSettled(o) {
		v.Purchase = nil
	}
	w.Published = netip.Addr{}
	w.Requested = netip.Addr{}
	return withoutBlock(o, w, v, v.Networks[v.NetworkID])
}

// EnsureBlock decides the next step towards the assignment of one block that was bought for a pool or
// for the nodes. For Done its Address means nothing: ledgers give addresses.
func EnsureBlock(s Sighting, v View) Step {
	if refusal, unproven := Unproven(v); unproven {
		return refusal
	}
	network := v.Networks[v.NetworkID]
	network.Members = nil // a block whose addresses servers hold is still assigned: to the nodes' own it is no fault
	return towardsAssigned(s, Wish{}, v, network)
}

// EnsureBrought is EnsureBlock for a block that was brought: what the controller did not assign it does
// not take off a network either. assignedHere is the word of the block's ledger.
func EnsureBrought(s Sighting, assignedHere bool, v View) Step {
	step := EnsureBlock(s, v)
	if step.Action == Unassign && !assignedHere {
		return refuse(s.Block, BlockInError,
			"IP block %s (%s) is in state %q; take it off its network in the phoenixNAP portal",
			s.Block.ID, s.Block.CIDR, s.Block.Status)
	}
	return step
}

// ReleaseBrought decides how to give up a block that was brought. It stays in the account, and in its
// network unless the controller assigned it: assignedHere is the word of the block's ledger. A block that
// is on another network than the configured one was put there by someone else. After Done the ledger is
// kept until it is Spent, for a machine may still answer for an address that was given back.
func ReleaseBrought(s Sighting, assignedHere bool, v View) Step {
	elsewhere := s.Block.ResourceID != "" && s.Block.ResourceID != v.NetworkID
	if !assignedHere || elsewhere {
		return Step{Action: Done, Reason: BlockKept, Block: s.Block}
	}
	return parkOne(s, v)
}

// ChooseNodeBlock divides the blocks that were bought for the nodes of one cluster into the one to keep and those too
// many. Kept is one that could serve: in the location of the network and not on another one. Among these it is the one
// of which servers use addresses, else the recorded one, else the one furthest on its way to the network, else the
// oldest. Blocks that cannot be read by their ID are neither. The surplus is ordered by ID; found is false when there
// is no block at all.
//
// recorded is the ID that the recorded purchase names; empty for none. used reports whether a server has, or is about
// to get, an address of a block.
func ChooseNodeBlock(
	blocks []Sighting, recorded string, used func(Block) bool, v View,
) (kept Sighting, surplus []Sighting, found bool) {
	readable := slices.DeleteFunc(slices.Clone(blocks), func(s Sighting) bool { return s.Hidden })
	slices.SortFunc(readable, func(a, b Sighting) int { return cmp.Compare(a.Block.ID, b.Block.ID) })
	readable = slices.CompactFunc(readable, func(a, b Sighting) bool { return a.Block.ID == b.Block.ID })
	if len(readable) == 0 {
		return Sighting{}, nil, false
	}
	kept = slices.MinFunc(readable, func(a, b Sighting) int {
		return cmp.Or(
			cmp.Compare(nodeRank(a.Block, recorded, used, v), nodeRank(b.Block, recorded, used, v)),
			cmp.Compare(order(a.Block.ID != recorded), order(b.Block.ID != recorded)),
			cmp.Compare(order(a.Block.CreatedOn.IsZero()), order(b.Block.CreatedOn.IsZero())),
			a.Block.CreatedOn.Compare(b.Block.CreatedOn),
		)
	})
	return kept, slices.DeleteFunc(readable, func(s Sighting) bool { return s.Block.ID == kept.Block.ID }), true
}

// nodeRank orders the blocks bought for the nodes: the lowest is kept.
func nodeRank(b Block, recorded string, used func(Block) bool, v View) int {
	network, readable := v.Networks[v.NetworkID]
	switch {
	case b.ResourceID != "" && b.ResourceID != v.NetworkID, readable && !sameLocation(b.Location, network.Location):
		return 9
	case used(b):
		return 0
	case b.ID == recorded:
		return 1
	}
	return 2 + int(progress(b.Status))
}
