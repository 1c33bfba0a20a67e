package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Ensure decides the next step towards exactly one block that is assigned to the configured network. Blocks too many
// are given back only after the kept one is assigned, see Duplicates, unless they take its place in a full network.
func Ensure(o network.Owner, w Wish, v View) Step {
	if refusal, unproven := Unproven(v); unproven {
		return refusal
	}
	network := v.Networks[v.NetworkID]
	owned := v.Owned(o)
	if len(owned) == 0 {
		return withoutBlock(o, w, v, network)
	}
	owned = ranked(owned, w, v.NetworkID)
	step := towardsAssigned(owned[0], w, v, network)
	if step.Action == Refuse && step.Reason == NetworkFull && len(owned) > 1 {
		if freeing := releaseAll(owned[1:], v)[0]; freeing.Action != Done {
			return freeing
		}
	}
	return step
}

// Duplicates decides how to give back the blocks that Ensure does not keep, in the order of Release. It
// is empty when there is at most one block, or the others are retained and on no network.
func Duplicates(o network.Owner, w Wish, v View) []Step {
	owned := ranked(v.Owned(o), w, v.NetworkID)
	if len(owned) < 2 {
		return nil
	}
	return slices.DeleteFunc(releaseAll(owned[1:], v), func(s Step) bool { return s.Action == Done })
}

// Retag decides which of the owner's blocks must get other tags next, because the Service says whether
// its block must outlive it; due is false when none is. Of several blocks the one that Ensure keeps gets
// the tag, and the others lose it only when nothing must be retained.
func Retag(o network.Owner, w Wish, v View, retain bool) (block network.Block, tags map[string]string, due bool) {
	candidates := ranked(v.Owned(o), w, v.NetworkID)
	if retain && len(candidates) > 1 {
		candidates = candidates[:1]
	}
	for _, s := range candidates {
		_, untouchable := Untouchable(s.Block)
		if tags, differ := network.RetainTags(s.Block, retain); differ && !s.Hidden && !untouchable {
			return s.Block, tags, true
		}
	}
	return network.Block{}, nil, false
}

// ranked orders several blocks of one Service, the one to keep first: the one that holds the published address, else
// the requested one, else one that was retained, else the one that is furthest on its way, else the one with the
// lowest ID.
func ranked(owned []network.Sighting, w Wish, networkID string) []network.Sighting {
	slices.SortStableFunc(owned, func(a, b network.Sighting) int {
		return cmp.Compare(keepRank(a, w, networkID), keepRank(b, w, networkID))
	})
	return owned
}

func keepRank(s network.Sighting, w Wish, networkID string) int {
	b := s.Block
	switch {
	case b.CIDR.IsValid() && w.Published.IsValid() && b.CIDR.Contains(w.Published):
		return 0
	case b.CIDR.IsValid() && w.Requested.IsValid() && b.CIDR.Contains(w.Requested):
		return 1
	case s.Hidden:
		return 10
	}
	if elsewhere := b.ResourceID != "" && b.ResourceID != networkID; elsewhere &&
		(b.Status == network.Assigned || b.Status == network.Assigning) {
		return 8
	}
	if network.Retained(b) {
		return 2
	}
	if rank := progress(b.Status); rank != rankUnknown {
		return 3 + int(rank)
	}
	return 9
}

// towardsAssigned decides the next step for the block that is kept.
func towardsAssigned(s network.Sighting, w Wish, v View, public network.Network) Step {
	b := s.Block
	if s.Hidden {
		return v.waitHidden(b)
	}
	if refusal, refused := Untouchable(b); refused {
		return refusal
	}
	if b.ResourceID != "" && (b.ResourceID != v.NetworkID || b.ResourceType == resourceServer) {
		return elsewhere(b, v)
	}
	if step, changing := waitForChange(b); changing {
		return step
	}
	switch b.Status {
	case network.ErrorAssigning, network.ErrorUnassigning:
		return unassign(b, v)
	case network.Unassigned:
		return assign(b, w, public)
	default:
		return assigned(b, w, public)
	}
}

// Changing is what the API does to the block at the moment; empty for nothing.
func Changing(b network.Block) Reason {
	return map[network.BlockStatus]Reason{
		network.Creating: BlockCreating, network.Assigning: BlockAssigning, network.Unassigning: BlockUnassigning,
	}[b.Status]
}

// waitForChange waits for a block that the API is changing.
func waitForChange(b network.Block) (step Step, changing bool) {
	reason := Changing(b)
	return Step{Action: Wait, Reason: reason, Block: b}, reason != ""
}

// elsewhere decides about a block that another network or a server holds: while it moves, where to is
// not known; afterwards a person must decide.
func elsewhere(b network.Block, v View) Step {
	if b.Status == network.Unassigning {
		return Step{Action: Wait, Reason: BlockUnassigning, Block: b}
	}
	return refuse(b, BlockElsewhere,
		"IP block %s (%s) of this Service is assigned to %s %s instead of public network %s; remove it there",
		b.ID, b.CIDR, cmp.Or(b.ResourceType, "resource"), b.ResourceID, v.NetworkID)
}

func assign(b network.Block, w Wish, public network.Network) Step {
	if step, bad := unfit(b, w, public); bad {
		return step
	}
	switch public.Status {
	case network.StatusReady:
	case network.StatusBusy:
		return Step{Action: Wait, Reason: NetworkChanging, Block: b, Network: public.ID}
	default:
		return networkUnusable(b, public)
	}
	if public.Listed(b.ID) {
		// The network's view is ahead of or behind the block's; assigning twice would be refused.
		return Step{Action: Wait, Reason: BlockAssigning, Block: b, Network: public.ID}
	}
	if public.IPv4Blocks() >= network.BlockLimit {
		return networkFull(b, public)
	}
	return Step{Action: Assign, Reason: AssignmentDue, Block: b, Network: public.ID}
}

func assigned(b network.Block, w Wish, network network.Network) Step {
	if b.ResourceID == "" && !network.Listed(b.ID) {
		return Step{Action: Wait, Reason: BlockAssigning, Block: b, Network: network.ID}
	}
	if step, bad := unfit(b, w, network); bad {
		return step
	}
	done := Step{
		Action: Done, Reason: BlockAssigned, Block: b, Network: network.ID,
		Address: serviceAddressIn(b.CIDR, w, network),
	}
	if refusal, refused := immovable(b, w); refused {
		refusal.Network = done.Network
		refusal.Address = done.Address
		return refusal
	}
	return done
}

// immovable refuses what a wish would change of a block that is there and serves.
func immovable(b network.Block, w Wish) (Step, bool) {
	const remedy = "; that cannot be changed in place: set %s to %s, or delete the Service and create it again"
	switch {
	case w.SizeDemanded && w.Size != 0 && w.Size != SizeOf(b.CIDR):
		return refuse(b, SizeMismatch, "IP block %s (%s) of this Service is a %s, not a %s"+remedy,
			b.ID, b.CIDR, SizeOf(b.CIDR), w.Size, w.SizeSource, SizeOf(b.CIDR)), true
	case w.Location != "" && !network.SameLocation(w.Location, b.Location):
		return refuse(b, LocationMismatch, "IP block %s (%s) of this Service is in location %s, not in %s"+remedy,
			b.ID, b.CIDR, b.Location, w.Location, w.LocationSource, b.Location), true
	default:
		return Step{}, false
	}
}

// unfit refuses a block that could be assigned but would not serve.
func unfit(b network.Block, w Wish, public network.Network) (Step, bool) {
	if !network.SameLocation(b.Location, public.Location) {
		return refuse(b, LocationMismatch,
			"IP block %s (%s) is in location %s but public network %s is in %s; set the location to %s and create "+
				"the Service again",
			b.ID, b.CIDR, b.Location, public.ID, public.Location, public.Location), true
	}
	if !ServiceAddress(b.CIDR).IsValid() || !b.CIDR.Addr().Is4() {
		return refuse(b, BlockUnusable,
			"IP block %s (%s) has no IPv4 address for a Service; use one of size /31 or larger", b.ID, b.CIDR), true
	}
	if serviceAddressIn(b.CIDR, w, public).IsValid() {
		return Step{}, false
	}
	if w.Requested.IsValid() {
		return refuse(b, AddressRefused,
			"%s %s is no usable address of this Service's IP block %s (%s), or a server holds it; clear it or choose "+
				"another",
			w.requestedSource(), w.Requested, b.ID, b.CIDR), true
	}
	return refuse(b, BlockUnusable, "servers hold every address of IP block %s (%s); take one off its server", b.ID,
		b.CIDR), true
}

// Unproven refuses every conclusion from a view in which the configured public network could not be read; unproven is
// false when it could. Credentials of another account get empty lists and 403 for every ID, as if everything were gone:
// only the network distinguishes the accounts.
func Unproven(v View) (refusal Step, unproven bool) {
	if _, readable := v.Networks[v.NetworkID]; readable {
		return Step{}, false
	}
	return refuse(network.Block{}, NetworkUnusable, "%s", network.Unreadable(v.NetworkID)), true
}

func networkFull(b network.Block, public network.Network) Step {
	return refuse(b, NetworkFull,
		"public network %s has room for %d IPv4 blocks and all are taken or about to be; release one, or use another "+
			"network",
		public.ID, network.BlockLimit)
}

// withoutBlock decides whether to buy. Everything that could make the purchase useless is refused here,
// before it costs money.
func withoutBlock(o network.Owner, w Wish, v View, public network.Network) Step {
	if block, untagged := v.boughtUntagged(o); untagged && !v.PurchaseOpen() {
		return v.retagged(o, block)
	}
	unseen, isUnseen := v.BoughtUnseen()
	switch {
	case v.PurchaseOpen() && v.Purchase.BlockID == "":
		return Step{Action: Wait, Reason: PurchaseUnanswered}
	case v.PurchaseOpen():
		return Step{Action: Wait, Reason: BlockInvisible, Block: network.Block{ID: v.Purchase.BlockID}}
	case isUnseen:
		return waitUnseen(unseen)
	case w.Published.IsValid() && !w.Replace:
		return refuse(network.Block{}, BlockLost,
			"the IP block of address %s is gone from the account; "+
				"for a new address set the annotation %s to \"true\", or create the Service again without an address",
			w.Published, contract.ServiceIPReplace)
	case w.Requested.IsValid():
		return refuse(network.Block{}, AddressRefused,
			"%s %s lies in no IP block of this Service; clear it to get an address of a new block", w.requestedSource(),
			w.Requested)
	case public.Status != network.StatusReady && public.Status != network.StatusBusy:
		return networkUnusable(network.Block{}, public)
	case w.Location == "":
		return refuse(network.Block{}, LocationMissing, "no location to buy an IP block in; set %s", w.LocationSource)
	case !network.SameLocation(w.Location, public.Location):
		return refuse(network.Block{}, LocationMismatch, "location %s is not where public network %s is; set %s to %s",
			w.Location, public.ID, w.LocationSource, public.Location)
	case public.IPv4Blocks()+w.Reserved >= network.BlockLimit:
		return networkFull(network.Block{}, public)
	case w.MaxBlocks > 0 && w.Bought >= w.MaxBlocks:
		return refuse(network.Block{}, TooManyBlocks,
			"the cluster has %d IP blocks and may buy %d; raise --max-ip-blocks or release one", w.Bought, w.MaxBlocks)
	case w.Coming:
		return Step{Action: Wait, Reason: NetworkChanging}
	default:
		return Step{Action: Buy, Reason: PurchaseDue}
	}
}

// Extend decides whether one more block is bought for an owner that may have several: a pool. The answer
// is Buy, Wait or Refuse. A purchase whose block the view shows keeps no further one waiting; a block of the owner that
// is untouchable does.
func Extend(o network.Owner, w Wish, v View) Step {
	if refusal, unproven := Unproven(v); unproven {
		return refusal
	}
	if refusal, refused := v.anyUntouchable(o); refused {
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
func EnsureBlock(s network.Sighting, v View) Step {
	if refusal, unproven := Unproven(v); unproven {
		return refusal
	}
	network := v.Networks[v.NetworkID]
	network.Members = nil // a block whose addresses servers hold is still assigned: to the nodes' own it is no fault
	return towardsAssigned(s, Wish{}, v, network)
}

// EnsureBrought is EnsureBlock for a block that was brought: what the controller did not assign it does
// not take off a network either. assignedHere is the word of the block's ledger.
func EnsureBrought(s network.Sighting, assignedHere bool, v View) Step {
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
func ReleaseBrought(s network.Sighting, assignedHere bool, v View) Step {
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
	blocks []network.Sighting, recorded string, used func(network.Block) bool, v View,
) (kept network.Sighting, surplus []network.Sighting, found bool) {
	readable := slices.DeleteFunc(slices.Clone(blocks), func(s network.Sighting) bool { return s.Hidden })
	slices.SortFunc(readable, func(a, b network.Sighting) int { return cmp.Compare(a.Block.ID, b.Block.ID) })
	readable = slices.CompactFunc(readable, func(a, b network.Sighting) bool { return a.Block.ID == b.Block.ID })
	if len(readable) == 0 {
		return network.Sighting{}, nil, false
	}
	kept = slices.MinFunc(readable, func(a, b network.Sighting) int {
		return cmp.Or(
			cmp.Compare(nodeRank(a.Block, recorded, used, v), nodeRank(b.Block, recorded, used, v)),
			cmp.Compare(order(a.Block.ID != recorded), order(b.Block.ID != recorded)),
			cmp.Compare(order(a.Block.CreatedOn.IsZero()), order(b.Block.CreatedOn.IsZero())),
			a.Block.CreatedOn.Compare(b.Block.CreatedOn),
		)
	})
	return kept, slices.DeleteFunc(readable, func(s network.Sighting) bool { return s.Block.ID == kept.Block.ID }), true
}

// nodeRank orders the blocks bought for the nodes: the lowest is kept.
func nodeRank(b network.Block, recorded string, used func(network.Block) bool, v View) int {
	public, readable := v.Networks[v.NetworkID]
	switch {
	case b.ResourceID != "" && b.ResourceID != v.NetworkID, readable && !network.SameLocation(b.Location, public.Location):
		return 9
	case used(b):
		return 0
	case progress(b.Status) == rankUnknown:
		return 8
	case b.ID == recorded:
		return 1
	}
	return 2 + int(progress(b.Status))
}
