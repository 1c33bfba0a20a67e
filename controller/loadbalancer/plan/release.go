package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// resourcePublicNetwork and resourceServer are the words of Block.ResourceType.
const (
	resourcePublicNetwork = "public network"
	resourceServer        = "server"
)

// Release decides how to give back everything that is provably the owner's. The steps are ordered: the
// first that can be taken comes first, so that one block which is stuck never keeps another. A single
// Done says that nothing is left to do: no block is left, or only blocks that are retained, which are
// unassigned and never deleted (see RetainTags). It reads no wish of the user.
func Release(o Owner, v View) []Step {
	owned := v.owned(o)
	if len(owned) > 0 {
		return releaseAll(owned, v)
	}
	if v.Purchase != nil && v.Purchase.BlockID == "" && v.purchaseOpen() {
		return []Step{{Action: Wait, Reason: PurchaseUnanswered}}
	}
	if block, untagged := v.boughtUntagged(o); untagged && v.purchaseOpen() {
		// Its tags may still be on their way. Later a person has removed them on purpose.
		return []Step{{Action: Wait, Reason: BlockInvisible, Block: block}}
	}
	return []Step{{Action: Done, Reason: NoBlock}}
}

func releaseAll(owned []Sighting, v View) []Step {
	steps := make([]Step, 0, len(owned))
	for _, s := range owned {
		if Retained(s.Block) {
			steps = append(steps, parkOne(s, v))
			continue
		}
		steps = append(steps, releaseOne(s, v))
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(releaseRank(a), releaseRank(b)) })
	return steps
}

// releaseRank orders steps: what certainly helps first, what has failed before later, what waits or
// needs a person last.
func releaseRank(s Step) int {
	switch s.Action {
	case Delete:
		return 0
	case Unassign:
		if s.Block.Status == Assigned {
			return 1
		}
		return 2
	case Wait:
		return 3
	case Buy, Assign, Refuse:
		return 4
	case Done: // of a block that stays: the release is done when nothing else is left
		return 6
	default:
		return 5
	}
}

// parkOne decides how to take a block off its network that stays in the account.
func parkOne(s Sighting, v View) Step {
	if step := releaseOne(s, v); step.Action != Delete && !s.Hidden {
		return step
	}
	return Step{Action: Done, Reason: BlockKept, Block: s.Block}
}

func releaseOne(s Sighting, v View) Step {
	b := s.Block
	if s.Hidden {
		return Step{Action: Wait, Reason: DeletionUnverified, Block: b}
	}
	switch b.Status {
	case Creating:
		return Step{Action: Wait, Reason: BlockCreating, Block: b}
	case Assigning:
		return Step{Action: Wait, Reason: BlockAssigning, Block: b}
	case Unassigning:
		return Step{Action: Wait, Reason: BlockUnassigning, Block: b}
	case Unassigned:
		return Step{Action: Delete, Reason: DeletionDue, Block: b}
	case Assigned, ErrorAssigning, ErrorUnassigning:
		return unassign(b, v)
	default:
		return statusNotKnown(b)
	}
}

// unassign decides how to take a block off the network that holds it, which need not be the configured one.
func unassign(b Block, v View) Step {
	if b.ResourceType != "" && b.ResourceType != resourcePublicNetwork {
		return refuse(b, BlockElsewhere,
			"IP block %s (%s) is assigned to %s %s, not to a public network; remove it there",
			b.ID, b.CIDR, b.ResourceType, b.ResourceID)
	}
	id := v.networkOf(b)
	network, readable := v.Networks[id]
	if !readable {
		return Step{Action: Wait, Reason: NetworkUnreadable, Block: b, Network: id}
	}
	switch network.Status {
	case NetworkReady:
	case NetworkBusy, NetworkDeleting:
		return Step{Action: Wait, Reason: NetworkChanging, Block: b, Network: id}
	case NetworkError:
		return networkUnusable(b, network)
	default:
		return networkUnusable(b, network)
	}
	if server, ip, held := network.holder(b.CIDR); held {
		return refuse(b, MemberHoldsIP,
			"server %s holds address %s of IP block %s in public network %s; take the address off the server",
			server, ip, b.ID, id)
	}
	return Step{Action: Unassign, Reason: UnassignmentDue, Block: b, Network: id}
}

// networkOf returns the ID of the network that holds the block: what the block says, else the network
// that lists it, else the configured one. The API does not always name the resource of a block whose
// assignment failed.
func (v View) networkOf(b Block) string {
	if b.ResourceID != "" {
		return b.ResourceID
	}
	for id, network := range v.Networks {
		if network.Listed(b.ID) {
			return id
		}
	}
	return v.NetworkID
}

func refuse(b Block, reason Reason, format string, args ...any) Step {
	return Step{Action: Refuse, Reason: reason, Block: b, Detail: fmt.Sprintf(format, args...)}
}

func networkUnusable(b Block, n Network) Step {
	return refuse(b, NetworkUnusable, "public network %s is in state %q; it must be %s", n.ID, n.Status, NetworkReady)
}

func statusNotKnown(b Block) Step {
	return refuse(b, StatusNotKnown,
		"IP block %s (%s) is in state %q, which is not known; look it up in the phoenixNAP portal",
		b.ID, b.CIDR, b.Status)
}
