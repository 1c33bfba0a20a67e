package plan

import "net/netip"

// Extend decides whether one more block is bought for an owner that may have several: a pool. The answer
// is Buy, Wait or Refuse. A purchase whose block the view shows keeps no further one waiting.
func Extend(o Owner, w Wish, v View) Step {
	network, readable := v.Networks[v.NetworkID]
	if !readable {
		return networkUnreadable(v)
	}
	if v.purchaseSettled(o) {
		v.Purchase = nil
	}
	w.Published = netip.Addr{}
	w.Requested = netip.Addr{}
	return withoutBlock(o, w, v, network)
}

// EnsureBlock decides the next step towards the assignment of one block that was bought for a pool or
// for the nodes. For Done its Address means nothing: ledgers give addresses.
func EnsureBlock(s Sighting, v View) Step {
	network, readable := v.Networks[v.NetworkID]
	if !readable {
		return networkUnreadable(v)
	}
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

// ReleaseBlock decides how to give back one block of a pool or of the nodes. Who calls it again until the
// account does not show the block any more has released it.
func ReleaseBlock(s Sighting, v View) Step { return releaseOne(s, v) }

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
