package ipblock

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

// Ensure decides the next step towards exactly one block that is assigned to the configured network. Blocks too many
// are released only after the kept one is assigned, see Duplicates, unless they take its slot in a full network.
func Ensure(owner network.Owner, desired Request, account Account) Step {
	if refusal, unproven := Unproven(account); unproven {
		return refusal
	}
	network := account.Public()
	owned := account.Owned(owner)
	if len(owned) == 0 {
		return withoutBlock(owner, desired, account, network)
	}
	owned = Ranked(owned, desired, account)
	step := towardsAssigned(owned[0], desired, account, network)
	if step.Action == Refuse && step.Reason == NetworkFull && len(owned) > 1 {
		if freeing := releaseAll(owned[1:], account)[0]; freeing.Action != Done {
			return freeing
		}
	}
	return step
}

// Duplicates decides how to release the blocks that Ensure does not keep, in the order of Release. It
// is empty when there is at most one block, or the others are retained and on no network.
func Duplicates(owner network.Owner, desired Request, account Account) []Step {
	owned := Ranked(account.Owned(owner), desired, account)
	if len(owned) < 2 {
		return nil
	}
	return slices.DeleteFunc(releaseAll(owned[1:], account), func(s Step) bool { return s.Action == Done })
}

// Retag decides which of the owner's blocks must get other tags next, because the Service says whether
// its block must outlive it; due is false when none is. Of several blocks the one that Ensure keeps gets
// the tag, and the others lose it only when nothing must be retained.
func Retag(owner network.Owner, desired Request, account Account, retain bool) (block network.Block,
	tags map[string]string, due bool) {
	candidates := Ranked(account.Owned(owner), desired, account)
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

// Ranked orders several blocks of one Service, the one to keep first: the one that holds the published address, else
// the requested one, else one that was retained, else the one that is furthest on its way, else the one with the
// lowest ID.
func Ranked(owned []network.Sighting, desired Request, account Account) []network.Sighting {
	slices.SortStableFunc(owned, func(a, b network.Sighting) int {
		return cmp.Compare(keepRank(a, desired, account), keepRank(b, desired, account))
	})
	return owned
}

func keepRank(s network.Sighting, desired Request, account Account) int {
	b := s.Block
	switch {
	case b.CIDR.IsValid() && account.Published.IsValid() && b.CIDR.Contains(account.Published):
		return 0
	case b.CIDR.IsValid() && desired.Requested.IsValid() && b.CIDR.Contains(desired.Requested):
		return 1
	case s.Hidden:
		return 10
	}
	if elsewhere := b.ResourceID != "" && b.ResourceID != account.Network.ID; elsewhere &&
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
func towardsAssigned(s network.Sighting, desired Request, account Account, public network.Network) Step {
	b := s.Block
	if s.Hidden {
		return account.WaitHidden(b)
	}
	if refusal, refused := Untouchable(b); refused {
		return refusal
	}
	if b.ResourceID != "" && (b.ResourceID != account.Network.ID || b.ResourceType == resourceServer) {
		return elsewhere(b, account)
	}
	if step, changing := waitForChange(b); changing {
		return step
	}
	switch b.Status {
	case network.ErrorAssigning, network.ErrorUnassigning:
		return unassign(b, account)
	case network.Unassigned:
		return assign(b, desired, account.Published, public)
	default:
		return assigned(b, desired, account.Published, public)
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
func elsewhere(b network.Block, account Account) Step {
	if b.Status == network.Unassigning {
		return Step{Action: Wait, Reason: BlockUnassigning, Block: b}
	}
	return RefuseStep(b, BlockElsewhere,
		"IP block %s (%s) of this Service is assigned to %s %s instead of public network %s; remove it there",
		b.ID, b.CIDR, cmp.Or(b.ResourceType, "resource"), b.ResourceID, account.Network.ID)
}

func assign(b network.Block, desired Request, published netip.Addr, public network.Network) Step {
	if step, bad := unfit(b, desired, published, public); bad {
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

func assigned(b network.Block, desired Request, published netip.Addr, public network.Network) Step {
	if b.ResourceID == "" && !public.Listed(b.ID) {
		return Step{Action: Wait, Reason: BlockAssigning, Block: b, Network: public.ID}
	}
	if step, bad := unfit(b, desired, published, public); bad {
		return step
	}
	done := Step{
		Action: Done, Reason: BlockAssigned, Block: b, Network: public.ID,
		Address: serviceAddressIn(b.CIDR, desired, published, public),
	}
	if refusal, refused := immovable(b, desired); refused {
		refusal.Network = done.Network
		refusal.Address = done.Address
		return refusal
	}
	return done
}

// immovable refuses what the Service asks to change of a block that is there and serves.
func immovable(b network.Block, desired Request) (Step, bool) {
	const remedy = "; that cannot be changed in place: set %s to %s, or delete the Service and create it again"
	switch {
	case desired.SizeDemanded && desired.Size != 0 && desired.Size != SizeOf(b.CIDR):
		return RefuseStep(b, SizeMismatch, "IP block %s (%s) of this Service is a %s, not a %s"+remedy,
			b.ID, b.CIDR, SizeOf(b.CIDR), desired.Size, desired.SizeSource, SizeOf(b.CIDR)), true
	case desired.Location != "" && !network.SameLocation(desired.Location, b.Location):
		return RefuseStep(b, LocationMismatch, "IP block %s (%s) of this Service is in location %s, not in %s"+remedy,
			b.ID, b.CIDR, b.Location, desired.Location, desired.LocationSource, b.Location), true
	default:
		return Step{}, false
	}
}

// unfit refuses a block that could be assigned but would not serve.
func unfit(b network.Block, desired Request, published netip.Addr, public network.Network) (Step, bool) {
	if !network.SameLocation(b.Location, public.Location) {
		return RefuseStep(b, LocationMismatch,
			"IP block %s (%s) is in location %s but public network %s is in %s; set the location to %s and create "+
				"the Service again",
			b.ID, b.CIDR, b.Location, public.ID, public.Location, public.Location), true
	}
	if !ServiceAddress(b.CIDR).IsValid() || !b.CIDR.Addr().Is4() {
		return RefuseStep(b, BlockUnusable,
			"IP block %s (%s) has no IPv4 address for a Service; use one of size /31 or larger", b.ID, b.CIDR), true
	}
	if serviceAddressIn(b.CIDR, desired, published, public).IsValid() {
		return Step{}, false
	}
	if desired.Requested.IsValid() {
		return RefuseStep(b, AddressRefused,
			"%s %s is no usable address of this Service's IP block %s (%s), or a server holds it; clear it or choose "+
				"another",
			desired.requestedSource(), desired.Requested, b.ID, b.CIDR), true
	}
	return RefuseStep(b, BlockUnusable, "servers hold every address of IP block %s (%s); take one off its server", b.ID,
		b.CIDR), true
}

// Unproven refuses every conclusion from a view in which the configured public network could not be read; unproven is
// false when it could. Credentials of another account get empty lists and 403 for every ID, as if everything were gone:
// only the network distinguishes the accounts.
func Unproven(account Account) (refusal Step, unproven bool) {
	if _, readable := account.Networks[account.Network.ID]; readable {
		return Step{}, false
	}
	return RefuseStep(network.Block{}, NetworkUnusable, "%s", network.Unreadable(account.Network.ID)), true
}

func networkFull(b network.Block, public network.Network) Step {
	return RefuseStep(b, NetworkFull,
		"public network %s has room for %d IPv4 blocks and all are taken or about to be; release one, or use another "+
			"network",
		public.ID, network.BlockLimit)
}

// withoutBlock decides whether to buy. Everything that could make the purchase useless is refused here,
// before it costs money.
func withoutBlock(owner network.Owner, desired Request, account Account, public network.Network) Step {
	if block, untagged := account.boughtUntagged(owner); untagged && !account.PurchaseOpen() {
		return account.retagged(owner, block)
	}
	unseen, isUnseen := account.BoughtUnseen()
	switch {
	case account.PurchaseOpen() && account.Purchase.BlockID == "":
		return Step{Action: Wait, Reason: PurchaseUnanswered}
	case account.PurchaseOpen():
		return Step{Action: Wait, Reason: BlockInvisible, Block: network.Block{ID: account.Purchase.BlockID}}
	case isUnseen:
		return WaitUnseen(unseen)
	case account.Published.IsValid() && !desired.Replace:
		return RefuseStep(network.Block{}, BlockLost, "the IP block of address %s%s", account.Published, LostRemedy)
	case desired.Requested.IsValid():
		return RefuseStep(network.Block{}, AddressRefused,
			"%s %s lies in no IP block of this Service; clear it to get an address of a new block", desired.requestedSource(),
			desired.Requested)
	case public.Status != network.StatusReady && public.Status != network.StatusBusy:
		return networkUnusable(network.Block{}, public)
	case desired.Location == "":
		return RefuseStep(network.Block{}, LocationMissing, "no location to buy an IP block in; set %s",
			desired.LocationSource)
	case !network.SameLocation(desired.Location, public.Location):
		return RefuseStep(network.Block{}, LocationMismatch, "location %s is not where public network %s is; set %s "+
			"to %s", desired.Location, public.ID, desired.LocationSource, public.Location)
	case public.IPv4Blocks()+account.Reserved >= network.BlockLimit:
		return networkFull(network.Block{}, public)
	case account.MaxBlocks > 0 && account.Bought >= account.MaxBlocks:
		return RefuseStep(network.Block{}, TooManyBlocks,
			"the cluster has %d IP blocks and may buy %d; raise --max-ip-blocks or release one", account.Bought, account.MaxBlocks)
	case account.Coming:
		return Step{Action: Wait, Reason: NetworkChanging}
	default:
		return Step{Action: Buy, Reason: PurchaseDue}
	}
}

// Extend decides whether one more block is bought for an owner that may have several: a pool. The answer
// is Buy, Wait or Refuse. A purchase whose block the view shows keeps no further one waiting; a block of the owner that
// is untouchable does.
func Extend(owner network.Owner, desired Request, account Account) Step {
	if refusal, unproven := Unproven(account); unproven {
		return refusal
	}
	if refusal, refused := account.anyUntouchable(owner); refused {
		return refusal
	}
	if _, settled := account.Purchased(owner); settled {
		account.Purchase = nil
	}
	account.Published = netip.Addr{}
	desired.Requested = netip.Addr{}
	return withoutBlock(owner, desired, account, account.Public())
}

// EnsureBlock decides the next step towards the assignment of one block that was bought for a pool or
// for the nodes. For Done its Address means nothing: ledgers give addresses.
func EnsureBlock(s network.Sighting, account Account) Step {
	if refusal, unproven := Unproven(account); unproven {
		return refusal
	}
	network := account.Public()
	network.Members = nil // a block whose addresses servers hold is still assigned: to the nodes' own it is no fault
	account.Published = netip.Addr{}
	return towardsAssigned(s, Request{}, account, network)
}

// EnsureBrought is EnsureBlock for a block that was brought: what the controller did not assign it does
// not take off a network either. assignedHere is the word of the block's ledger.
func EnsureBrought(s network.Sighting, assignedHere bool, account Account) Step {
	step := EnsureBlock(s, account)
	if step.Action == Unassign && !assignedHere {
		return RefuseStep(s.Block, BlockInError,
			"IP block %s (%s) is in state %q; take it off its network in the phoenixNAP portal",
			s.Block.ID, s.Block.CIDR, s.Block.Status)
	}
	return step
}

// ReleaseBrought decides how to give up a block that was brought. It stays in the account, and in its
// network unless the controller assigned it: assignedHere is the word of the block's ledger. A block that
// is on another network than the configured one was put there by someone else. After Done the ledger is
// kept until it is Spent, for a machine may still answer for an address that was released.
func ReleaseBrought(s network.Sighting, assignedHere bool, account Account) Step {
	elsewhere := s.Block.ResourceID != "" && s.Block.ResourceID != account.Network.ID
	if !assignedHere || elsewhere {
		return Step{Action: Done, Reason: BlockKept, Block: s.Block}
	}
	return unassignRetained(s, account)
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
	blocks []network.Sighting, recorded string, used func(network.Block) bool, account Account,
) (kept network.Sighting, surplus []network.Sighting, found bool) {
	readable := slices.DeleteFunc(slices.Clone(blocks), func(s network.Sighting) bool { return s.Hidden })
	slices.SortFunc(readable, func(a, b network.Sighting) int { return cmp.Compare(a.Block.ID, b.Block.ID) })
	readable = slices.CompactFunc(readable, func(a, b network.Sighting) bool { return a.Block.ID == b.Block.ID })
	if len(readable) == 0 {
		return network.Sighting{}, nil, false
	}
	kept = slices.MinFunc(readable, func(a, b network.Sighting) int {
		return cmp.Or(
			cmp.Compare(nodeRank(a.Block, recorded, used, account), nodeRank(b.Block, recorded, used, account)),
			cmp.Compare(order(a.Block.ID != recorded), order(b.Block.ID != recorded)),
			cmp.Compare(order(a.Block.CreatedOn.IsZero()), order(b.Block.CreatedOn.IsZero())),
			a.Block.CreatedOn.Compare(b.Block.CreatedOn),
		)
	})
	return kept, slices.DeleteFunc(readable, func(s network.Sighting) bool { return s.Block.ID == kept.Block.ID }), true
}

// nodeRank orders the blocks bought for the nodes: the lowest is kept.
func nodeRank(b network.Block, recorded string, used func(network.Block) bool, account Account) int {
	public, readable := account.Networks[account.Network.ID]
	switch {
	case b.ResourceID != "" && b.ResourceID != account.Network.ID,
		readable && !network.SameLocation(b.Location, public.Location):
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
