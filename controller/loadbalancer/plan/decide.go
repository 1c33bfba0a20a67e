// Package plan decides which public network, block and address a Service gets, and keeps, from values only. What the
// block needs next is decided by package ipblock.
package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// ServicePlan is what comes next for a Service. It changes the account in at most one way.
type ServicePlan struct {
	// Step is what comes next for the block of the Service.
	Step ipblock.Step
	// Owner is for whom a block is bought.
	Owner network.Owner
	// Save are the ledgers to be stored before anything else; nothing is published when that fails.
	Save []ipblock.Ledger
	// Record is the ID of a block of the owner, to be recorded before the block is used; empty if it is recorded.
	Record string
	// Forget is true when the Service has its address elsewhere, and a block of its own that is recorded is gone.
	Forget bool
	// Reused is true when the address was not reported silent since another Service had it.
	Reused bool
	// Retag is the block that is to carry other tags, and tags are all of them; nil when none is.
	Retag network.Block
	Tags  map[string]string
	// Surplus are the steps that release blocks which the Service does not keep.
	Surplus []ipblock.Step
	// Rejected is what was asked for and cannot be had, while the published address goes on working; its
	// Action is Refuse or, when there is none, Wait.
	Rejected ipblock.Step
	// Withdraw is true when a Service is refused, for whatever, or waits for a Node, whose published address has lost
	// its block and leads to no server of ours any more.
	Withdraw bool
	// Leave is true when a Service loses the address that it has together with others, who keep it. Save follows once
	// the Service does not publish it any more.
	Leave bool
	// UpToDate is true when only the Service itself must be written, so that cached state is enough. Changes of the
	// account, and conclusions that something is missing, need a live read.
	UpToDate bool
}

func refusedPlan(reason ipblock.Reason, format string, args ...any) ServicePlan {
	return ServicePlan{Step: ipblock.Step{Action: ipblock.Refuse, Reason: reason,
		Detail: text.Message(fmt.Sprintf(format, args...))}}
}

// Rejects reports whether something that was asked for cannot be had.
func (p ServicePlan) Rejects() bool { return p.Rejected.Action == ipblock.Refuse }

// Decide decides what comes next for a Service that is to have an address. What was asked for and cannot
// be had never takes a published address away: then everything goes on as if it had not been asked for. Nothing is
// bought while no Node may carry the traffic. A dry run buys nothing, and does not write what makes Nodes fit.
func Decide(obs Observed) ServicePlan {
	p := decide(obs)
	if p.Step.Action == ipblock.Buy && !obs.Options.DryRun {
		if ready, why := obs.NodeReady(); !ready {
			p.Step = ipblock.Step{Action: ipblock.Wait, Reason: ipblock.NoNodeReady, Detail: why}
			p.Withdraw = obs.abandoned(obs.Published)
		}
	}
	p.UpToDate = p.upToDate(obs)
	return p
}

// NodeReady reports whether a Node may carry traffic, and why none may.
func (obs Observed) NodeReady() (ready bool, why string) {
	rule := contract.Carriers{Network: obs.Network.ID, Announcer: obs.Options.Announcer,
		Selector: obs.Options.Selector}
	ready, why = rule.Any(obs.Nodes)
	return ready, "waiting for a Node that may carry load-balancer traffic: " + why
}

func decide(obs Observed) ServicePlan {
	obs = obs.withoutDefault()
	if p, parts := obs.parted(); parts {
		return p
	}
	wanted := decideWanted(obs)
	if wanted.Step.Action != ipblock.Refuse || !obs.Published.IsValid() {
		return wanted
	}
	asked := obs
	obs.Desired = obs.Desired.withoutOptionalRequests()
	obs.Problem = nil
	obs = obs.withFacts()
	kept := decideAs(obs, obs.Kind)
	if kept.Step.Action == ipblock.Refuse || kept.Step.Action == ipblock.Buy {
		lost := wanted.Step.Reason == ipblock.BlockLost || kept.Step.Reason == ipblock.BlockLost
		wanted.Withdraw = lost && obs.abandoned(obs.Published)
		if wanted.Step.Reason != ipblock.BlockLost && kept.Step.Reason == ipblock.BlockLost {
			wanted.Step.Detail += asked.besides(kept.Step)
		}
		return wanted
	}
	kept.Tags = nil
	kept.Rejected = wanted.Step
	return kept
}

// withoutDefault reads what a Service asks for that has a block of its own as if the option said so too: its
// annotations are refused because they contradict each other, and not because the option was changed since.
func (obs Observed) withoutDefault() Observed {
	if !obs.Desired.Shared || obs.Desired.namesAllocation() || obs.Kind != Dedicated {
		return obs
	}
	options := obs.Options
	options.Allocation = contract.AllocationDedicated
	obs.Desired, obs.Problem = ReadDesired(obs.Service, options)
	return obs.withFacts()
}

func decideWanted(obs Observed) ServicePlan {
	if obs.Problem != nil {
		return refusedPlan(ipblock.AnnotationsRefused, "%s", oneLine(obs.Problem))
	}
	if detail := obs.otherNetwork(); detail != "" {
		return refusedPlan(ipblock.AllocationMismatch, "%s", detail)
	}
	kind := obs.Kind
	if refusal, refused := obs.refuseName(); refused && (kind == Brought || obs.HeldIn.Brought) {
		return refusal
	}
	if moved, detail := obs.moved(kind); moved {
		return refusedPlan(ipblock.AllocationMismatch, "%s", detail)
	}
	if refusal, refused := obs.refuseToShare(); refused {
		return refusal
	}
	return decideAs(obs, kind)
}

func decideAs(obs Observed, kind Kind) ServicePlan {
	if refusal, unproven := ipblock.Unproven(obs.Account); unproven {
		return ServicePlan{Step: refusal}
	}
	decisions := map[Kind]func(Observed) ServicePlan{
		Shared: decideShared, Brought: decideBrought, Dedicated: decideDedicated,
	}
	p := decisions[kind](obs)
	if p.Step.Reason == ipblock.DeletionUnverified {
		p.Step.Reason = obs.WaitHidden(p.Step.Block).Reason
	}
	p.Step = obs.explainFull(p.Step)
	if p.Step.Action == ipblock.Delete && kind == Shared {
		p.Save = nil // nothing is given of a block that goes
	}
	p.Forget = p.Step.Action == ipblock.Done && kind != Dedicated && obs.recordSpent()
	return p
}

// withoutOptionalRequests is what is desired, without anything that a block which is there might not fulfil.
func (d Desired) withoutOptionalRequests() Desired {
	return Desired{Shared: d.Shared, Request: ipblock.Request{Size: d.Size}, KeepGroup: true}
}

// namesAllocation reports whether the Service itself says where its address is to come from.
func (d Desired) namesAllocation() bool { return d.IPBlock != "" || d.AllocationDemanded }

func (obs Observed) ledgerKind(l ipblock.Ledger) Kind {
	sighting, seen := obs.Sighting(l.BlockID)
	if seen && !obs.Pool().Owns(sighting.Block) && obs.IsBrought(sighting.Block) {
		return Brought
	}
	if !seen && l.Brought {
		return Brought
	}
	return Shared
}

// moved reports whether the Service asks for an address from elsewhere than where its published one is.
func (obs Observed) moved(kind Kind) (moved bool, detail string) {
	published := obs.Published
	if !published.IsValid() {
		return false, ""
	}
	const remedy = "; that cannot be changed in place: take the change back, or delete the Service and create it again"
	if detail := obs.regrouped(kind); detail != "" {
		return true, detail + remedy
	}
	switch {
	case kind == Shared && obs.NamedShared.Name != "" && obs.inNamed():
		return false, ""
	case kind != Brought && obs.Desired.IPBlock != "":
		return true, fmt.Sprintf("the Service has address %s of %s and not of IPBlock %s"+remedy, published, kind,
			obs.Desired.IPBlock)
	case kind == Brought && obs.NamedBlock != obs.HeldIn.BlockID && obs.Held == published:
		return true, fmt.Sprintf("the Service has address %s of IPBlock %s, which annotation %s does not name any more"+
			remedy, published, obs.HeldIn.Object, contract.ServiceIPBlock)
	case kind == Brought && obs.notOfNamed():
		return true, fmt.Sprintf("the Service has address %s, which is not of the block of IPBlock %s"+remedy,
			published, obs.Desired.IPBlock)
	case kind == Dedicated && obs.Desired.AllocationDemanded && obs.Desired.Shared, kind == Shared &&
		obs.Desired.AllocationDemanded && !obs.Desired.Shared:
		return true, fmt.Sprintf("the Service has address %s of %s, and annotation %s asks for another kind"+remedy,
			published, kind, contract.ServiceIPAllocation)
	default:
		return false, ""
	}
}

// decideDedicated decides about a block of the Service's own.
func decideDedicated(obs Observed) ServicePlan {
	if unseen, isUnseen := obs.unseenAt(obs.Published); isUnseen && len(obs.Own) == 0 {
		return ServicePlan{Step: ipblock.WaitUnseen(unseen)}
	}
	p := ServicePlan{Step: ipblock.Ensure(obs.Owner, obs.Desired.Request, obs.Account), Owner: obs.Owner,
		Save: obs.leave(""), Record: obs.unrecordedOwn()}
	if p.Step.Action == ipblock.Buy || p.Step.Reason == ipblock.BlockLost {
		if refused, retagged := obs.refuseRetagged(obs.Published); retagged {
			return refused
		}
	}
	var refusal ipblock.Step
	refused := false
	if obs.Desired.Retain {
		refusal, refused = refuseRetaining(obs)
	}
	switch {
	case p.Step.Action == ipblock.Buy && refused:
		return ServicePlan{Step: refusal}
	case p.Step.Action == ipblock.Done:
		p.Surplus = actionable(ipblock.Duplicates(obs.Owner, obs.Desired.Request, obs.Account))
		p.Retag, p.Tags, _ = ipblock.Retag(obs.Owner, obs.Desired.Request, obs.Account, obs.Desired.Retain && !refused)
		p.Rejected = refusal
	}
	return p
}

// refuseRetagged refuses a Service whose published address is in a block of the account that has no known owner:
// its tags were removed by hand. One with the tags of another owner was released and bought again.
func (obs Observed) refuseRetagged(published netip.Addr) (refused ServicePlan, retagged bool) {
	if !published.IsValid() || !contract.WrittenForThis(obs.Service) {
		return ServicePlan{}, false
	}
	block, retagged := find(obs.Blocks, func(b network.Block) bool {
		return b.CIDR.IsValid() && b.CIDR.Contains(published) && (b.Tags[contract.TagUsage] != contract.TagUsageAuto ||
			network.OfCluster(b, obs.Owner.Cluster) && !network.Purposed(b) || !b.Sold())
	})
	if refusal, refused := ipblock.Untouchable(block); retagged && refused {
		return ServicePlan{Step: refusal}, true
	}
	return refusedPlan(ipblock.BlockRetagged,
		"IP block %s (%s) holds address %s of this Service but its tags do not say so any more; "+ipblock.RetaggedRemedy,
		block.ID, block.CIDR, published), retagged
}

// leave frees what the Service holds in ledgers of other blocks than the given ones.
func (obs Observed) leave(except ...string) []ipblock.Ledger {
	var left []ipblock.Ledger
	for _, l := range obs.Ledgers {
		if _, holds := l.AddressOf(obs.Holder); holds && !slices.Contains(except, l.BlockID) {
			left = append(left, l.Free(ipblock.Holder{Namespace: obs.Holder.Namespace, Name: obs.Holder.Name}, obs.Now))
		}
	}
	return left
}

func actionable(steps []ipblock.Step) []ipblock.Step {
	return slices.DeleteFunc(slices.Clone(steps), func(step ipblock.Step) bool {
		return step.Action == ipblock.Done || step.Action == ipblock.Refuse
	})
}

// bought counts the blocks that the cluster has bought and still has.
func (obs Observed) bought() int {
	count := 0
	for _, block := range obs.Known() {
		if network.OfCluster(block, obs.Owner.Cluster) {
			count++
		}
	}
	return count
}

// reserved counts the blocks of others that are bought and not yet in the network: each will need a slot of it.
func (obs Observed) reserved() int {
	public := obs.Public()
	reserved := 0
	for _, block := range obs.Known() {
		if public.Lacks(block) && obs.needsSlot(block) {
			reserved++
		}
	}
	return reserved
}

// needsSlot reports whether a block waits for its slot of the network: it is the pool's or the nodes', or
// that of another Service which is served.
func (obs Observed) needsSlot(block network.Block) bool {
	if obs.Pool().Owns(block) || network.OfNodes(obs.Owner.Cluster, block) {
		return true
	}
	return slices.ContainsFunc(obs.Services, func(other *corev1.Service) bool {
		return other.UID != obs.Service.UID && WantsAddress(other) &&
			OwnerOf(other, obs.Owner.Cluster).Owns(block)
	})
}

func (p ServicePlan) upToDate(obs Observed) bool {
	if obs.ForeignFields || p.Leave || len(p.Save) > 0 || p.Tags != nil || len(p.Surplus) > 0 || p.Withdraw ||
		p.Record != "" || p.Forget {
		return false
	}
	switch p.Step.Action {
	case ipblock.Done:
		return true
	case ipblock.Wait:
		return slices.Contains([]ipblock.Reason{
			ipblock.BlockCreating, ipblock.BlockAssigning, ipblock.BlockUnassigning, ipblock.NetworkChanging,
			ipblock.AddressQuarantined, ipblock.NoNodeReady,
		}, p.Step.Reason)
	case ipblock.Refuse:
		return !obs.boughtUnseen() && slices.Contains([]ipblock.Reason{
			ipblock.LocationMissing, ipblock.LocationMismatch, ipblock.NetworkFull, ipblock.TooManyBlocks,
			ipblock.TooManyRetained, ipblock.SizeMismatch,
			ipblock.AnnotationsRefused, ipblock.AllocationMismatch, ipblock.AddressConflict,
		}, p.Step.Reason)
	default:
		return false
	}
}

// ChangesAccount reports whether applying the plan changes the account.
func (p ServicePlan) ChangesAccount() bool {
	switch p.Step.Action {
	case ipblock.Buy, ipblock.Assign, ipblock.Unassign, ipblock.Delete:
		return true
	case ipblock.Done:
		return p.Tags != nil || len(p.Surplus) > 0
	default:
		return false
	}
}

// oneLine joins the problems of an error with several.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
