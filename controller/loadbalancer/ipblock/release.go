package ipblock

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// resourcePublicNetwork and resourceServer are the words of Block.ResourceType.
const (
	resourcePublicNetwork = "public network"
	resourceServer        = "server"
)

// Release decides how to remove everything that is provably the owner's. The steps are ordered: the
// first that can be taken comes first, so that one block which is stuck never keeps another. A single
// Done says that nothing is left to do: no block is left, or only blocks that are retained, which are
// unassigned and never deleted (see RetainTags). It reads no wish of the user.
func Release(owner network.Owner, account Account) []Step {
	owned := account.Owned(owner)
	if len(owned) > 0 {
		return releaseAll(owned, account)
	}
	if account.Purchase != nil && account.Purchase.BlockID == "" && account.PurchaseOpen() {
		return []Step{{Action: Wait, Reason: PurchaseUnanswered}}
	}
	switch block, untagged := account.boughtUntagged(owner); {
	case untagged && account.PurchaseOpen(): // its tags may still be on their way
		return []Step{WaitUnseen(block)}
	case untagged && owner.DescribedBy(block):
		return []Step{account.retagged(owner, block)}
	}
	if unseen, isUnseen := account.BoughtUnseen(); isUnseen {
		return []Step{WaitUnseen(unseen)}
	}
	return []Step{{Action: Done, Reason: NoBlock}}
}

func releaseAll(owned []network.Sighting, account Account) []Step {
	steps := make([]Step, 0, len(owned))
	for _, s := range owned {
		if network.Retained(s.Block) {
			steps = append(steps, unassignRetained(s, account))
			continue
		}
		steps = append(steps, ReleaseBlock(s, account))
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(releaseRank(a), releaseRank(b)) })
	return steps
}

// retagged decides about a block that was bought for the owner while its tags do not say so: what the API does not show
// at the moment comes back, and else a person has to decide. The block is paid for in any case.
func (account Account) retagged(owner network.Owner, block network.Block) Step {
	if slices.Contains(account.Unseen, block.ID) {
		return WaitUnseen(block)
	}
	if refusal, refused := Untouchable(block); refused {
		return refusal
	}
	return RefuseStep(block, BlockRetagged, "IP block %s (%s) was bought for %s but its tags do not say so any more; "+
		RetaggedRemedy, block.ID, block.CIDR, owner)
}

// RetaggedRemedy is what to do about a block whose tags were removed.
const RetaggedRemedy = "restore them, give it other ones if it serves something else now, or delete it in the " +
	"phoenixNAP portal"

// releaseRank orders steps: what certainly helps first, what has failed before later, what waits or
// needs a person last.
func releaseRank(s Step) int {
	switch s.Action {
	case Delete:
		return 0
	case Unassign:
		if s.Block.Status == network.Assigned {
			return 1
		}
		return 2
	case Wait:
		return 3
	case Done: // of a block that stays: the release is done when nothing else is left
		return 5
	default:
		return 4
	}
}

// unassignRetained decides how to take a block off its network that stays in the account. One that is divided is on
// none.
func unassignRetained(s network.Sighting, account Account) Step {
	off := s.Hidden && !account.Exists(s.Block.ID) || s.Block.Status == network.Subnetted
	if step := giveUp(s, account); step.Action != Delete && !off {
		return step
	}
	return Step{Action: Done, Reason: BlockKept, Block: s.Block}
}

// ReleaseBlock decides how to release one block of a pool or of the nodes. Who calls it again until the
// account does not show the block any more has released it.
func ReleaseBlock(s network.Sighting, account Account) Step {
	if slices.Contains(account.TakenUp, s.Block.ID) {
		return RefuseStep(s.Block, BlockUnusable, "IP block %s (%s) is not released, because an IPBlock of source "+
			"Brought names it; delete that IPBlock if the block is to be released", s.Block.ID, s.Block.CIDR)
	}
	return giveUp(s, account)
}

// giveUp is ReleaseBlock, whoever else names the block.
func giveUp(s network.Sighting, account Account) Step {
	b := s.Block
	if s.Hidden {
		return account.WaitHidden(b)
	}
	if refusal, refused := Untouchable(b); refused {
		return refusal
	}
	if step, changing := waitForChange(b); changing {
		return step
	}
	if b.Status == network.Unassigned {
		return Step{Action: Delete, Reason: DeletionDue, Block: b}
	}
	return unassign(b, account)
}

// unassign decides how to take a block off the network that holds it, which need not be the configured one.
func unassign(b network.Block, account Account) Step {
	if b.ResourceType != "" && b.ResourceType != resourcePublicNetwork {
		return RefuseStep(b, BlockElsewhere,
			"IP block %s (%s) is assigned to %s %s, not to a public network; remove it there",
			b.ID, b.CIDR, b.ResourceType, b.ResourceID)
	}
	id := account.networkOf(b)
	public, readable := account.Networks[id]
	if !readable {
		return Step{Action: Wait, Reason: NetworkUnreadable, Block: b, Network: id}
	}
	switch public.Status {
	case network.StatusReady:
	case network.StatusBusy, network.StatusDeleting:
		return Step{Action: Wait, Reason: NetworkChanging, Block: b, Network: id}
	default:
		return networkUnusable(b, public)
	}
	if server, ip, held := public.Holder(b.CIDR); held {
		return RefuseStep(b, MemberHoldsIP,
			"server %s holds address %s of IP block %s in public network %s; take the address off the server",
			server, ip, b.ID, id)
	}
	return Step{Action: Unassign, Reason: UnassignmentDue, Block: b, Network: id}
}

// networkOf returns the ID of the network that holds the block: what the block says, else the network that lists it,
// else the configured one. The API does not always name the resource of a block whose assignment failed.
func (account Account) networkOf(b network.Block) string {
	if b.ResourceID != "" {
		return b.ResourceID
	}
	for id, network := range account.Networks {
		if network.Listed(b.ID) {
			return id
		}
	}
	return account.Network.ID
}

// RefuseStep is a step that refuses, with a sentence for the user.
func RefuseStep(b network.Block, reason Reason, format string, args ...any) Step {
	return Step{Action: Refuse, Reason: reason, Block: b, Detail: text.Message(fmt.Sprintf(format, args...))}
}

func networkUnusable(b network.Block, n network.Network) Step {
	return RefuseStep(b, NetworkUnusable,
		"public network %s is in state %q; it must be %s: if this lasts, look it up in the phoenixNAP portal", n.ID,
		n.Status, network.StatusReady)
}

func statusNotKnown(b network.Block) Step {
	return RefuseStep(b, StatusNotKnown,
		"IP block %s (%s) is in state %q, which is not known; look it up in the phoenixNAP portal",
		b.ID, b.CIDR, b.Status)
}

// LostRemedy is what a refusal says about a block that was bought for the cluster and is gone.
const LostRemedy = " is gone from the account; for a new address set the annotation " + contract.ServiceIPReplace +
	" to \"true\", or create the Service again without an address"
