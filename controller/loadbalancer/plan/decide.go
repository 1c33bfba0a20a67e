package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// ServicePlan is what comes next for a Service. It changes the account in at most one way.
type ServicePlan struct {
	// Step is what comes next for the block of the Service.
	Step Step
	// Owner is for whom a block is bought.
	Owner Owner
	// Save are the ledgers to be stored before anything else; nothing is published when that fails.
	Save []Ledger
	// Reused is true when the address was not reported silent since another Service had it.
	Reused bool
	// Retag is the block that is to carry other tags, and tags are all of them; nil when none is.
	Retag Block
	Tags  map[string]string
	// Surplus are the steps that give back blocks which the Service does not keep.
	Surplus []Step
	// Rejected is what was asked for and cannot be had, while the published address goes on working; its
	// Action is Refuse or, when there is none, Wait.
	Rejected Step
}

func refusedPlan(reason Reason, format string, args ...any) ServicePlan {
	return ServicePlan{Step: Step{Action: Refuse, Reason: reason, Detail: fmt.Sprintf(format, args...)}}
}

// Rejects reports whether something that was asked for cannot be had.
func (v ServicePlan) Rejects() bool { return v.Rejected.Action == Refuse }

// allocationKind is where the address of a Service comes from, in words.
type allocationKind string

const (
	dedicated allocationKind = "an IP block of its own"
	shared    allocationKind = "an IP block shared with others"
	brought   allocationKind = "an IP block that was brought"
)

// Decide decides what comes next for a Service that is to have an address. What was asked for and cannot
// be had never takes a published address away: then everything goes on as if it had not been asked for.
func Decide(s Observed) ServicePlan {
	wanted := decideWanted(s)
	if wanted.Step.Action != Refuse || !s.Published().IsValid() {
		return wanted
	}
	s.Desired, s.Problem = s.Desired.withoutOptionalRequests(), nil
	kept := decideAs(s, s.allocation(s.Options.OwnBlocks))
	if kept.Step.Action == Refuse || kept.Step.Action == Buy {
		return wanted
	}
	kept.Tags = nil
	kept.Rejected = wanted.Step
	return kept
}

func decideWanted(s Observed) ServicePlan {
	if s.Problem != nil {
		return refusedPlan(AnnotationsRefused, "%s", oneLine(s.Problem))
	}
	is := s.allocation(s.Options.OwnBlocks)
	if moved, detail := s.moved(is); moved {
		return refusedPlan(AllocationMismatch, "%s", detail)
	}
	return decideAs(s, is)
}

func decideAs(s Observed, is allocationKind) ServicePlan {
	if refusal, unproven := Unproven(s.View); unproven {
		return ServicePlan{Step: refusal}
	}
	switch is {
	case shared:
		return decideShared(s)
	case brought:
		return decideBrought(s)
	default:
		return decideDedicated(s)
	}
}

// withoutOptionalRequests is what is desired, without anything that a block which is there might not fulfil.
func (i Desired) withoutOptionalRequests() Desired {
	return Desired{Shared: i.Shared, Size: i.Size}
}

// allocation returns where the address of the Service comes from: from where it is published, else from
// where something is already that the user does not object to, else from where it was asked for.
func (s Observed) allocation(ownBlocks []string) allocationKind {
	asked := dedicated
	switch {
	case s.Desired.BlockID != "":
		asked = brought
	case s.Desired.Shared:
		asked = shared
	}
	published := s.Published()
	owned := s.Owned(s.Owner)
	ledger, held, holds := s.held()
	switch {
	case published.IsValid() && slices.ContainsFunc(owned,
		func(i Sighting) bool { return i.Block.CIDR.Contains(published) }):
		return dedicated
	case holds && (held == published || !s.Desired.namesAllocation()):
		return s.ledgerKind(ledger, ownBlocks)
	case len(owned) > 0 && !s.Desired.namesAllocation():
		return dedicated
	default:
		return asked
	}
}

// namesAllocation reports whether the Service itself says where its address is to come from.
func (i Desired) namesAllocation() bool { return i.BlockID != "" || i.AllocationDemanded }

func (s Observed) ledgerKind(l Ledger, ownBlocks []string) allocationKind {
	sighting, seen := s.Sighting(l.BlockID)
	if seen && !s.Pool().Owns(sighting.Block) && Brought(sighting.Block, s.Owner.Cluster, ownBlocks) {
		return brought
	}
	if !seen && l.BlockID == s.Desired.BlockID {
		return brought
	}
	return shared
}

// moved reports whether the Service asks for an address from elsewhere than where its published one is.
func (s Observed) moved(is allocationKind) (moved bool, detail string) {
	published := s.Published()
	if !published.IsValid() {
		return false, ""
	}
	const remedy = "; that cannot be changed in place: take the change back, or delete the Service and create it again"
	ledger, held, holds := s.held()
	switch {
	case is != brought && s.Desired.BlockID != "":
		return true, fmt.Sprintf("the Service has address %s of %s and not of IP block %s"+remedy, published, is,
			s.Desired.BlockID)
	case is == brought && s.Desired.BlockID != ledger.BlockID && holds && held == published:
		return true,
			fmt.Sprintf("the Service has address %s of IP block %s, which annotation %s does not name any more"+remedy,
				published, ledger.BlockID, contract.ServiceIPBlockID)
	case is == dedicated && s.Desired.AllocationDemanded && s.Desired.Shared, is == shared &&
		s.Desired.AllocationDemanded && !s.Desired.Shared:
		return true, fmt.Sprintf("the Service has address %s of %s, and annotation %s asks for another kind"+remedy,
			published, is, contract.ServiceIPAllocation)
	default:
		return false, ""
	}
}

// decideDedicated decides about a block of the Service's own.
func decideDedicated(s Observed) ServicePlan {
	wish := s.Wish()
	view := s.View
	v := ServicePlan{Step: Ensure(s.Owner, wish, view), Owner: s.Owner, Save: s.leave("")}
	if v.Step.Action == Buy || v.Step.Reason == BlockLost {
		if refused, retagged := s.refuseRetagged(wish.Published); retagged {
			return refused
		}
	}
	if v.Step.Action == Done {
		v.Surplus = actionable(Duplicates(s.Owner, wish, view))
		v.Retag, v.Tags, _ = Retag(s.Owner, wish, view, s.Desired.Retain)
	}
	return v
}

// refuseRetagged refuses a Service whose published address is in a block of the account that has no known owner:
// its tags were removed by hand. One with the tags of another owner was given back and bought again.
func (s Observed) refuseRetagged(published netip.Addr) (refused ServicePlan, retagged bool) {
	if !published.IsValid() || !contract.WrittenForThis(s.Service) {
		return ServicePlan{}, false
	}
	block, retagged := find(s.Blocks, func(b Block) bool {
		return b.CIDR.IsValid() && b.CIDR.Contains(published) && (b.Tags[contract.TagUsage] != contract.TagUsageAuto ||
			OfCluster(b, s.Owner.Cluster) && !purposed(b))
	})
	return refusedPlan(BlockRetagged,
		"IP block %s (%s) holds address %s of this Service but its tags do not say so any more; restore them or "+
			"delete the Service and create it again",
		block.ID, block.CIDR, published), retagged
}

func purposed(block Block) bool {
	purposes := []string{contract.TagService, contract.TagServiceName, contract.TagPool, contract.TagNodes}
	return slices.ContainsFunc(purposes, func(name string) bool { return block.Tags[name] != "" })
}

// leave frees what the Service holds in ledgers of other blocks than the given ones.
func (s Observed) leave(except ...string) []Ledger {
	var left []Ledger
	for _, l := range s.Ledgers {
		if _, holds := l.AddressOf(s.Holder); holds && !slices.Contains(except, l.BlockID) {
			left = append(left, l.Free(Holder{Namespace: s.Holder.Namespace, Name: s.Holder.Name}, s.Now))
		}
	}
	return left
}

func actionable(steps []Step) []Step {
	return slices.DeleteFunc(slices.Clone(steps), func(step Step) bool {
		return step.Action == Done || step.Action == Refuse
	})
}

// Wish is what the Service is to get.
func (s Observed) Wish() Wish {
	return Wish{Desired: s.Desired, Published: s.Published(), MaxBlocks: s.Options.MaxBlocks, Bought: s.bought(),
		Reserved: s.reserved()}
}

// bought counts the blocks that the cluster has bought and still has.
func (s Observed) bought() int {
	count := 0
	for _, block := range slices.Concat(s.Blocks, s.Unlisted) {
		if OfCluster(block, s.Owner.Cluster) {
			count++
		}
	}
	return count
}

// reserved counts the blocks of others that are bought and not yet in the network: each will need a
// place in it.
func (s Observed) reserved() int {
	network := s.Networks[s.NetworkID]
	reserved := 0
	for _, block := range slices.Concat(s.Blocks, s.Unlisted) {
		if OfCluster(block, s.Owner.Cluster) && block.ResourceID == "" && !network.Listed(block.ID) &&
			s.needsPlace(block) {
			reserved++
		}
	}
	return reserved
}

// needsPlace reports whether a block waits for its place in the network: it is the pool's or the nodes', or
// that of another Service which is served.
func (s Observed) needsPlace(block Block) bool {
	if s.Pool().Owns(block) || (Owner{Cluster: s.Owner.Cluster, Nodes: true}).Owns(block) {
		return true
	}
	return slices.ContainsFunc(s.Services, func(other *corev1.Service) bool {
		return other.UID != s.Service.UID && contract.WantsAddress(other) && OwnerOf(other, s.Owner.Cluster).Owns(block)
	})
}

// UpToDate reports whether only the Service itself must be written, so that cached state is
// enough. Changes of the account, and conclusions that something is missing, need a live
// read.
func (v ServicePlan) UpToDate(s Observed) bool {
	if s.HasForeignFields() || len(v.Save) > 0 || v.Tags != nil || len(v.Surplus) > 0 {
		return false
	}
	switch v.Step.Action {
	case Done:
		return true
	case Wait:
		return slices.Contains([]Reason{
			BlockCreating, BlockAssigning, BlockUnassigning, NetworkChanging,
			AddressResting,
		}, v.Step.Reason)
	case Refuse:
		return slices.Contains([]Reason{
			LocationMissing, LocationMismatch, NetworkFull, TooManyBlocks, SizeMismatch,
			AnnotationsRefused, AllocationMismatch,
		}, v.Step.Reason)
	default:
		return false
	}
}

// ChangesAccount reports whether applying the plan changes the account.
func (v ServicePlan) ChangesAccount() bool {
	switch v.Step.Action {
	case Buy, Assign, Unassign, Delete:
		return true
	case Done:
		return v.Tags != nil || len(v.Surplus) > 0
	default:
		return false
	}
}

// Fresh reports whether the account was read live since the given time.
func (s Observed) Fresh(since time.Time) bool { return s.Live && !s.AskedAt.Before(since) }

// oneLine joins the problems of an error with several.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
