package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// ServicePlan is what comes next for a Service. It changes the account in at most one way.
type ServicePlan struct {
	// Step is what comes next for the block of the Service.
	Step Step
	// Owner is for whom a block is bought.
	Owner network.Owner
	// Save are the ledgers to be stored before anything else; nothing is published when that fails.
	Save []Ledger
	// Reused is true when the address was not reported silent since another Service had it.
	Reused bool
	// Retag is the block that is to carry other tags, and tags are all of them; nil when none is.
	Retag network.Block
	Tags  map[string]string
	// Surplus are the steps that give back blocks which the Service does not keep.
	Surplus []Step
	// Rejected is what was asked for and cannot be had, while the published address goes on working; its
	// Action is Refuse or, when there is none, Wait.
	Rejected Step
}

func refusedPlan(reason Reason, format string, args ...any) ServicePlan {
	return ServicePlan{Step: Step{Action: Refuse, Reason: reason, Detail: text.Message(fmt.Sprintf(format, args...))}}
}

// Rejects reports whether something that was asked for cannot be had.
func (p ServicePlan) Rejects() bool { return p.Rejected.Action == Refuse }

// allocationKind is where the address of a Service comes from, in words.
type allocationKind string

const (
	dedicated allocationKind = "an IP block of its own"
	shared    allocationKind = "an IP block shared with others"
	brought   allocationKind = "an IP block that was brought"
)

// Decide decides what comes next for a Service that is to have an address. What was asked for and cannot
// be had never takes a published address away: then everything goes on as if it had not been asked for. Nothing is
// bought while no Node may carry the traffic. A dry run buys nothing, and does not write what makes Nodes fit.
func Decide(o Observed) ServicePlan {
	p := decide(o)
	if p.Step.Action == Buy && !o.Options.DryRun {
		if ready, why := o.NodeReady(); !ready {
			p.Step = Step{Action: Wait, Reason: NoNodeReady, Detail: why}
		}
	}
	return p
}

// NodeReady reports whether a Node may carry traffic, and why none may.
func (o Observed) NodeReady() (ready bool, why string) {
	rule := contract.Carriers{NetworkID: o.NetworkID, Announcer: o.Options.Announcer, Selector: o.Options.Selector}
	ready, why = rule.Any(o.Nodes)
	return ready, "waiting for a Node that may carry load-balancer traffic: " + why
}

func decide(o Observed) ServicePlan {
	o = o.withoutDefault()
	wanted := decideWanted(o)
	if wanted.Step.Action != Refuse || !o.Published().IsValid() {
		return wanted
	}
	o.Desired, o.Problem = o.Desired.withoutOptionalRequests(), nil
	kept := decideAs(o, o.allocation())
	if kept.Step.Action == Refuse || kept.Step.Action == Buy {
		return wanted
	}
	kept.Tags = nil
	kept.Rejected = wanted.Step
	return kept
}

// withoutDefault reads what a Service asks for that has a block of its own as if the option said so too: its
// annotations are refused because they contradict each other, and not because the option was changed since.
func (o Observed) withoutDefault() Observed {
	if !o.Desired.Shared || o.Desired.namesAllocation() || o.allocation() != dedicated {
		return o
	}
	_, unreadable := RecordedPurchase(o.Service)
	options := o.Options
	options.Allocation = contract.AllocationDedicated
	desired, problem := ReadDesired(o.Service, options)
	o.Desired = desired
	o.Problem = errors.Join(problem, unreadable)
	return o
}

func decideWanted(o Observed) ServicePlan {
	if o.Problem != nil {
		return refusedPlan(AnnotationsRefused, "%s", oneLine(o.Problem))
	}
	kind := o.allocation()
	if moved, detail := o.moved(kind); moved {
		return refusedPlan(AllocationMismatch, "%s", detail)
	}
	return decideAs(o, kind)
}

func decideAs(o Observed, kind allocationKind) ServicePlan {
	if refusal, unproven := Unproven(o.View); unproven {
		return ServicePlan{Step: refusal}
	}
	decisions := map[allocationKind]func(Observed) ServicePlan{
		shared: decideShared, brought: decideBrought, dedicated: decideDedicated,
	}
	p := decisions[kind](o)
	if p.Step.Reason == DeletionUnverified {
		p.Step.Reason = o.waitHidden(p.Step.Block).Reason
	}
	p.Step = o.explainFull(p.Step)
	if p.Step.Action == Delete && kind == shared {
		p.Save = nil // nothing is given of a block that goes
	}
	return p
}

// withoutOptionalRequests is what is desired, without anything that a block which is there might not fulfil.
func (d Desired) withoutOptionalRequests() Desired {
	return Desired{Shared: d.Shared, Size: d.Size}
}

// allocation returns where the address of the Service comes from: from where it is published, else from
// where something is already that the user does not object to, else from where it was asked for.
func (o Observed) allocation() allocationKind {
	asked := dedicated
	switch {
	case o.Desired.BlockID != "":
		asked = brought
	case o.Desired.Shared:
		asked = shared
	}
	published := o.Published()
	owned := o.Owned(o.Owner)
	ledger, held, holds := o.held()
	switch {
	case published.IsValid() && slices.ContainsFunc(owned,
		func(i network.Sighting) bool { return i.Block.CIDR.Contains(published) }):
		return dedicated
	case holds && (held == published || !o.Desired.namesAllocation()):
		return o.ledgerKind(ledger)
	case len(owned) > 0 && !o.Desired.namesAllocation():
		return dedicated
	}
	if _, found := o.inPool(); found {
		return shared
	}
	return asked
}

// namesAllocation reports whether the Service itself says where its address is to come from.
func (d Desired) namesAllocation() bool { return d.BlockID != "" || d.AllocationDemanded }

func (o Observed) ledgerKind(l Ledger) allocationKind {
	sighting, seen := o.Sighting(l.BlockID)
	if seen && !o.Pool().Owns(sighting.Block) && network.Brought(sighting.Block, o.Owner.Cluster, o.Options.OwnBlocks) {
		return brought
	}
	if !seen && l.BlockID == o.Desired.BlockID {
		return brought
	}
	return shared
}

// moved reports whether the Service asks for an address from elsewhere than where its published one is.
func (o Observed) moved(kind allocationKind) (moved bool, detail string) {
	published := o.Published()
	if !published.IsValid() {
		return false, ""
	}
	const remedy = "; that cannot be changed in place: take the change back, or delete the Service and create it again"
	ledger, held, holds := o.held()
	switch {
	case kind != brought && o.Desired.BlockID != "":
		return true, fmt.Sprintf("the Service has address %s of %s and not of IP block %s"+remedy, published, kind,
			o.Desired.BlockID)
	case kind == brought && o.Desired.BlockID != ledger.BlockID && holds && held == published:
		return true,
			fmt.Sprintf("the Service has address %s of IP block %s, which annotation %s does not name any more"+remedy,
				published, ledger.BlockID, contract.ServiceIPBlockID)
	case kind == dedicated && o.Desired.AllocationDemanded && o.Desired.Shared, kind == shared &&
		o.Desired.AllocationDemanded && !o.Desired.Shared:
		return true, fmt.Sprintf("the Service has address %s of %s, and annotation %s asks for another kind"+remedy,
			published, kind, contract.ServiceIPAllocation)
	default:
		return false, ""
	}
}

// decideDedicated decides about a block of the Service's own.
func decideDedicated(o Observed) ServicePlan {
	wish := o.Wish()
	view := o.View
	if unseen, isUnseen := o.unseenAt(wish.Published); isUnseen && len(o.Owned(o.Owner)) == 0 {
		return ServicePlan{Step: waitUnseen(unseen)}
	}
	p := ServicePlan{Step: Ensure(o.Owner, wish, view), Owner: o.Owner, Save: o.leave("")}
	if p.Step.Action == Buy || p.Step.Reason == BlockLost {
		if refused, retagged := o.refuseRetagged(wish.Published); retagged {
			return refused
		}
	}
	var refusal Step
	refused := false
	if o.Desired.Retain {
		refusal, refused = refuseRetaining(o)
	}
	switch {
	case p.Step.Action == Buy && refused:
		return ServicePlan{Step: refusal}
	case p.Step.Action == Done:
		p.Surplus = actionable(Duplicates(o.Owner, wish, view))
		p.Retag, p.Tags, _ = Retag(o.Owner, wish, view, o.Desired.Retain && !refused)
		p.Rejected = refusal
	}
	return p
}

// refuseRetagged refuses a Service whose published address is in a block of the account that has no known owner:
// its tags were removed by hand. One with the tags of another owner was given back and bought again.
func (o Observed) refuseRetagged(published netip.Addr) (refused ServicePlan, retagged bool) {
	if !published.IsValid() || !contract.WrittenForThis(o.Service) {
		return ServicePlan{}, false
	}
	block, retagged := find(o.Blocks, func(b network.Block) bool {
		return b.CIDR.IsValid() && b.CIDR.Contains(published) && (b.Tags[contract.TagUsage] != contract.TagUsageAuto ||
			network.OfCluster(b, o.Owner.Cluster) && !network.Purposed(b) || !b.Sold())
	})
	if refusal, refused := Untouchable(block); retagged && refused {
		return ServicePlan{Step: refusal}, true
	}
	return refusedPlan(BlockRetagged,
		"IP block %s (%s) holds address %s of this Service but its tags do not say so any more; "+retaggedRemedy,
		block.ID, block.CIDR, published), retagged
}

// leave frees what the Service holds in ledgers of other blocks than the given ones.
func (o Observed) leave(except ...string) []Ledger {
	var left []Ledger
	for _, l := range o.Ledgers {
		if _, holds := l.AddressOf(o.Holder); holds && !slices.Contains(except, l.BlockID) {
			left = append(left, l.Free(Holder{Namespace: o.Holder.Namespace, Name: o.Holder.Name}, o.Now))
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
func (o Observed) Wish() Wish {
	return Wish{Desired: o.Desired, Published: o.Published(), MaxBlocks: o.Options.MaxBlocks, Bought: o.bought(),
		Reserved: o.reserved(), Coming: o.coming()}
}

// bought counts the blocks that the cluster has bought and still has.
func (o Observed) bought() int {
	count := 0
	for _, block := range o.Known() {
		if network.OfCluster(block, o.Owner.Cluster) {
			count++
		}
	}
	return count
}

// reserved counts the blocks of others that are bought and not yet in the network: each will need a place in it.
func (o Observed) reserved() int {
	public := o.Networks[o.NetworkID]
	reserved := 0
	for _, block := range o.Known() {
		if network.OfCluster(block, o.Owner.Cluster) && public.Lacks(block) && o.needsPlace(block) {
			reserved++
		}
	}
	return reserved
}

// needsPlace reports whether a block waits for its place in the network: it is the pool's or the nodes', or
// that of another Service which is served.
func (o Observed) needsPlace(block network.Block) bool {
	if o.Pool().Owns(block) || (network.Owner{Cluster: o.Owner.Cluster, Nodes: true}).Owns(block) {
		return true
	}
	return slices.ContainsFunc(o.Services, func(other *corev1.Service) bool {
		return other.UID != o.Service.UID && contract.WantsAddress(other) && OwnerOf(other, o.Owner.Cluster).Owns(block)
	})
}

// UpToDate reports whether only the Service itself must be written, so that cached state is enough. Changes of the
// account, and conclusions that something is missing, need a live read.
func (p ServicePlan) UpToDate(o Observed) bool {
	if o.HasForeignFields() || len(p.Save) > 0 || p.Tags != nil || len(p.Surplus) > 0 {
		return false
	}
	switch p.Step.Action {
	case Done:
		return true
	case Wait:
		return slices.Contains([]Reason{
			BlockCreating, BlockAssigning, BlockUnassigning, NetworkChanging, AddressQuarantined, NoNodeReady,
		}, p.Step.Reason)
	case Refuse:
		return !o.boughtUnseen() && slices.Contains([]Reason{
			LocationMissing, LocationMismatch, NetworkFull, TooManyBlocks, TooManyRetained, SizeMismatch,
			AnnotationsRefused, AllocationMismatch,
		}, p.Step.Reason)
	default:
		return false
	}
}

// ChangesAccount reports whether applying the plan changes the account.
func (p ServicePlan) ChangesAccount() bool {
	switch p.Step.Action {
	case Buy, Assign, Unassign, Delete:
		return true
	case Done:
		return p.Tags != nil || len(p.Surplus) > 0
	default:
		return false
	}
}

// Fresh reports whether the account was read live since the given time.
func (o Observed) Fresh(since time.Time) bool { return o.Live && !o.AskedAt.Before(since) }

// oneLine joins the problems of an error with several.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
