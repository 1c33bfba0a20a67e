package reconcile

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// servicePlan is what comes next for a Service. It changes the account in at most one way.
type servicePlan struct {
	// step is what comes next for the block of the Service.
	step plan.Step
	// owner is for whom a block is bought.
	owner plan.Owner
	// save are the ledgers to be stored before anything else; nothing is published when that fails.
	save []plan.Ledger
	// reused tells that the address was not reported silent since somebody else had it.
	reused bool
	// retag is the block that is to carry other tags, and tags are all of them; nil when none is.
	retag plan.Block
	tags  map[string]string
	// surplus are the steps that give back blocks which the Service does not keep.
	surplus []plan.Step
	// rejected is what was asked for and cannot be had, while the published address goes on working; its
	// Action is Refuse or, when there is none, Wait.
	rejected plan.Step
}

func refusedPlan(reason plan.Reason, format string, args ...any) servicePlan {
	return servicePlan{step: plan.Step{Action: plan.Refuse, Reason: reason, Detail: fmt.Sprintf(format, args...)}}
}

func (v servicePlan) rejects() bool { return v.rejected.Action == plan.Refuse }

// allocationKind is where the address of a Service comes from.
type allocationKind int

const (
	dedicated allocationKind = iota
	shared
	brought
)

func (a allocationKind) String() string {
	switch a {
	case dedicated:
		return "an IP block of its own"
	case shared:
		return "an IP block shared with others"
	case brought:
		return "an IP block that was brought"
	default:
		return "an unknown IP block"
	}
}

// decide decides what comes next for a Service that is to have an address. What was asked for and cannot
// be had never takes a published address away: then everything goes on as if it had not been asked for.
func decide(s observed) servicePlan {
	wanted := decideWanted(s)
	if wanted.step.Action != plan.Refuse || !s.published().IsValid() {
		return wanted
	}
	s.desired, s.problem = s.desired.withoutOptionalRequests(), nil
	kept := decideAs(s, s.allocation(s.options.ownBlocks))
	if kept.step.Action == plan.Refuse || kept.step.Action == plan.Buy {
		return wanted
	}
	kept.tags, kept.rejected = nil, wanted.step
	return kept
}

func decideWanted(s observed) servicePlan {
	if s.problem != nil {
		return refusedPlan(reasonAnnotations, "%s", oneLine(s.problem))
	}
	is := s.allocation(s.options.ownBlocks)
	if moved, detail := s.moved(is); moved {
		return refusedPlan(reasonAllocation, "%s", detail)
	}
	return decideAs(s, is)
}

func decideAs(s observed, is allocationKind) servicePlan {
	if refusal, unproven := plan.Unproven(s.view(nil)); unproven {
		return servicePlan{step: refusal}
	}
	switch is {
	case shared:
		return decideShared(s)
	case brought:
		return decideBrought(s)
	case dedicated:
		return decideDedicated(s)
	default:
		return refusedPlan(reasonAnnotations, "the Service asks for %s", is)
	}
}

// withoutOptionalRequests is what is desired, without anything that a block which is there might not fulfil.
func (i desired) withoutOptionalRequests() desired {
	return desired{shared: i.shared, size: i.size}
}

// allocation tells where the address of the Service comes from: from where it is published, else from
// where something is already that the user does not object to, else from where it was asked for.
func (s observed) allocation(ownBlocks []string) allocationKind {
	asked := dedicated
	switch {
	case s.desired.blockID != "":
		asked = brought
	case s.desired.shared:
		asked = shared
	}
	published, owned := s.published(), s.owned()
	ledger, held, holds := s.held()
	switch {
	case published.IsValid() && slices.ContainsFunc(owned, func(i plan.Sighting) bool { return i.Block.CIDR.Contains(published) }):
		return dedicated
	case holds && (held == published || !s.desired.namesAllocation()):
		return s.ledgerKind(ledger, ownBlocks)
	case len(owned) > 0 && !s.desired.namesAllocation():
		return dedicated
	default:
		return asked
	}
}

// demanding tells whether the Service itself says where its address is to come from.
func (i desired) namesAllocation() bool { return i.blockID != "" || i.allocationDemanded }

func (s observed) ledgerKind(l plan.Ledger, ownBlocks []string) allocationKind {
	sighting, seen := s.sighting(l.BlockID)
	if seen && !s.pool().Owns(sighting.Block) && plan.Brought(sighting.Block, s.owner.Cluster, ownBlocks) {
		return brought
	}
	if !seen && l.BlockID == s.desired.blockID {
		return brought
	}
	return shared
}

// moved tells whether the Service asks for an address from elsewhere than where its published one is.
func (s observed) moved(is allocationKind) (moved bool, detail string) {
	published := s.published()
	if !published.IsValid() {
		return false, ""
	}
	const remedy = "; that cannot be changed in place: take the change back, or delete the Service and create it again"
	ledger, held, holds := s.held()
	switch {
	case is != brought && s.desired.blockID != "":
		return true, fmt.Sprintf("the Service has address %s of %s and not of IP block %s"+remedy, published, is, s.desired.blockID)
	case is == brought && s.desired.blockID != ledger.BlockID && holds && held == published:
		return true, fmt.Sprintf("the Service has address %s of IP block %s, which annotation %s does not name any more"+remedy, published, ledger.BlockID, contract.ServiceIPBlockID)
	case is == dedicated && s.desired.allocationDemanded && s.desired.shared, is == shared && s.desired.allocationDemanded && !s.desired.shared:
		return true, fmt.Sprintf("the Service has address %s of %s, and annotation %s asks for another kind"+remedy, published, is, contract.ServiceIPAllocation)
	default:
		return false, ""
	}
}

// decideDedicated decides about a block of the Service's own.
func decideDedicated(s observed) servicePlan {
	wish, view := s.wish(), s.view(s.purchase)
	v := servicePlan{step: plan.Ensure(s.owner, wish, view), owner: s.owner, save: s.leave("")}
	if v.step.Action == plan.Buy || v.step.Reason == plan.BlockLost {
		if retagged, is := s.retagged(wish.Published); is {
			return refusedPlan(plan.BlockRetagged, "IP block %s (%s) holds address %s of this Service but its tags do not say so any more; restore them or delete the Service and create it again",
				retagged.ID, retagged.CIDR, wish.Published)
		}
	}
	if v.step.Action == plan.Done {
		v.surplus = actionable(plan.Duplicates(s.owner, wish, view))
		v.retag, v.tags, _ = plan.Retag(s.owner, wish, view, s.desired.retain)
	}
	return v
}

// retagged returns the block of the account that holds the published address and belongs to nobody known:
// somebody took our tags off it. One that bears the tags of another owner was given back and bought anew.
func (s observed) retagged(published netip.Addr) (plan.Block, bool) {
	if !published.IsValid() || !contract.WrittenForThis(s.service) {
		return plan.Block{}, false
	}
	for _, block := range s.blocks {
		if block.CIDR.IsValid() && block.CIDR.Contains(published) && block.Tags[contract.TagUsage] != contract.TagUsageAuto {
			return block, true
		}
		if block.CIDR.IsValid() && block.CIDR.Contains(published) && plan.OfCluster(block, s.owner.Cluster) && !purposed(block) {
			return block, true
		}
	}
	return plan.Block{}, false
}

func purposed(block plan.Block) bool {
	for _, name := range []string{contract.TagService, contract.TagServiceName, contract.TagPool, contract.TagNodes} {
		if block.Tags[name] != "" {
			return true
		}
	}
	return false
}

// leave frees what the Service holds in ledgers of other blocks than the given ones.
func (s observed) leave(except ...string) []plan.Ledger {
	var left []plan.Ledger
	for _, l := range s.ledgers {
		if _, holds := l.AddressOf(s.holder); holds && !slices.Contains(except, l.BlockID) {
			left = append(left, l.Free(plan.Holder{Namespace: s.holder.Namespace, Name: s.holder.Name}, s.now))
		}
	}
	return left
}

func actionable(steps []plan.Step) []plan.Step {
	return slices.DeleteFunc(slices.Clone(steps), func(step plan.Step) bool {
		return step.Action == plan.Done || step.Action == plan.Refuse
	})
}

// wish is what the Service is to get, for controller/loadbalancer/plan.
func (s observed) wish() plan.Wish {
	size, err := plan.ParseSize(s.desired.size)
	if err != nil {
		size = 0
	}
	return plan.Wish{
		Location: s.desired.location, LocationSource: s.desired.locationSource,
		Published: s.published(), Requested: s.desired.requested, RequestedSource: s.desired.requestedSource,
		Size: size, SizeSource: s.desired.sizeSource, SizeDemanded: s.desired.sizeDemanded,
		Replace: s.desired.replace, MaxBlocks: s.options.maxBlocks, Bought: s.bought(), Reserved: s.reserved(),
	}
}

// bought counts the blocks that the cluster has bought and still has.
func (s observed) bought() int {
	count := 0
	for _, block := range slices.Concat(s.blocks, s.unlisted) {
		if plan.OfCluster(block, s.owner.Cluster) {
			count++
		}
	}
	return count
}

// reserved counts the blocks of others that are bought and not yet in the network: each will need a
// place in it.
func (s observed) reserved() int {
	network := s.networks[s.networkID]
	reserved := 0
	for _, block := range slices.Concat(s.blocks, s.unlisted) {
		if plan.OfCluster(block, s.owner.Cluster) && block.ResourceID == "" && !network.Listed(block.ID) && s.needsPlace(block) {
			reserved++
		}
	}
	return reserved
}

// needsPlace tells whether a block waits for its place in the network: it is the pool's or the nodes', or
// that of another Service which is served.
func (s observed) needsPlace(block plan.Block) bool {
	if s.pool().Owns(block) || (plan.Owner{Cluster: s.owner.Cluster, Nodes: true}).Owns(block) {
		return true
	}
	return slices.ContainsFunc(s.services, func(other *corev1.Service) bool {
		return other.UID != s.service.UID && contract.WantsAddress(other) && ownerOf(other, s.owner.Cluster).Owns(block)
	})
}

// upToDate reports whether nothing but the Service itself is to be written, so that the picture at hand
// will do. Whatever changes the account, or concludes that something is not there, is decided on a close
// look.
func (v servicePlan) upToDate(s observed) bool {
	if s.hasForeignFields() || len(v.save) > 0 || v.tags != nil || len(v.surplus) > 0 {
		return false
	}
	switch v.step.Action {
	case plan.Done:
		return true
	case plan.Wait:
		return slices.Contains([]plan.Reason{
			plan.BlockCreating, plan.BlockAssigning, plan.BlockUnassigning, plan.NetworkChanging,
			plan.AddressResting,
		}, v.step.Reason)
	case plan.Refuse:
		return slices.Contains([]plan.Reason{
			plan.LocationMissing, plan.LocationMismatch, plan.NetworkFull, plan.TooManyBlocks, plan.SizeMismatch,
			reasonAnnotations, reasonAllocation,
		}, v.step.Reason)
	case plan.Buy, plan.Assign, plan.Unassign, plan.Delete:
		return false
	default:
		return false
	}
}

// changesAccount reports whether applying the plan changes the account.
func (v servicePlan) changesAccount() bool {
	switch v.step.Action {
	case plan.Buy, plan.Assign, plan.Unassign, plan.Delete:
		return true
	case plan.Done:
		return v.tags != nil || len(v.surplus) > 0
	case plan.Wait, plan.Refuse:
		return false
	default:
		return false
	}
}

// fresh reports whether the account was read live since the given time.
func (s observed) fresh(since time.Time) bool { return s.live && !s.askedAt.Before(since) }
