package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
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
func Release(o network.Owner, v View) []Step {
	owned := v.Owned(o)
	if len(owned) > 0 {
		return releaseAll(owned, v)
	}
	if v.Purchase != nil && v.Purchase.BlockID == "" && v.PurchaseOpen() {
		return []Step{{Action: Wait, Reason: PurchaseUnanswered}}
	}
	switch block, untagged := v.boughtUntagged(o); {
	case untagged && v.PurchaseOpen(): // its tags may still be on their way
		return []Step{waitUnseen(block)}
	case untagged && o.DescribedBy(block):
		return []Step{v.retagged(o, block)}
	}
	if unseen, isUnseen := v.BoughtUnseen(); isUnseen {
		return []Step{waitUnseen(unseen)}
	}
	return []Step{{Action: Done, Reason: NoBlock}}
}

func releaseAll(owned []network.Sighting, v View) []Step {
	steps := make([]Step, 0, len(owned))
	for _, s := range owned {
		if network.Retained(s.Block) {
			steps = append(steps, parkOne(s, v))
			continue
		}
		steps = append(steps, ReleaseBlock(s, v))
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(releaseRank(a), releaseRank(b)) })
	return steps
}

// retagged decides about a block that was bought for the owner while its tags do not say so: what the API does not show
// at the moment comes back, and else a person has to decide. The block is paid for in any case.
func (v View) retagged(o network.Owner, block network.Block) Step {
	if slices.Contains(v.Unseen, block.ID) {
		return waitUnseen(block)
	}
	if refusal, refused := Untouchable(block); refused {
		return refusal
	}
	return refuse(block, BlockRetagged, "IP block %s (%s) was bought for %s but its tags do not say so any more; "+
		retaggedRemedy, block.ID, block.CIDR, o)
}

// retaggedRemedy is what to do about a block whose tags were removed.
const retaggedRemedy = "restore them, give it other ones if it serves something else now, or delete it in the " +
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

// parkOne decides how to take a block off its network that stays in the account. One that is divided is on none.
func parkOne(s network.Sighting, v View) Step {
	off := s.Hidden && !v.Exists(s.Block.ID) || s.Block.Status == network.Subnetted
	if step := ReleaseBlock(s, v); step.Action != Delete && !off {
		return step
	}
	return Step{Action: Done, Reason: BlockKept, Block: s.Block}
}

// ReleaseBlock decides how to give back one block of a pool or of the nodes. Who calls it again until the
// account does not show the block any more has released it.
func ReleaseBlock(s network.Sighting, v View) Step {
	b := s.Block
	if s.Hidden {
		return v.waitHidden(b)
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
	return unassign(b, v)
}

// unassign decides how to take a block off the network that holds it, which need not be the configured one.
func unassign(b network.Block, v View) Step {
	if b.ResourceType != "" && b.ResourceType != resourcePublicNetwork {
		return refuse(b, BlockElsewhere,
			"IP block %s (%s) is assigned to %s %s, not to a public network; remove it there",
			b.ID, b.CIDR, b.ResourceType, b.ResourceID)
	}
	id := v.networkOf(b)
	public, readable := v.Networks[id]
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
		return refuse(b, MemberHoldsIP,
			"server %s holds address %s of IP block %s in public network %s; take the address off the server",
			server, ip, b.ID, id)
	}
	return Step{Action: Unassign, Reason: UnassignmentDue, Block: b, Network: id}
}

// networkOf returns the ID of the network that holds the block: what the block says, else the network that lists it,
// else the configured one. The API does not always name the resource of a block whose assignment failed.
func (v View) networkOf(b network.Block) string {
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

func refuse(b network.Block, reason Reason, format string, args ...any) Step {
	return Step{Action: Refuse, Reason: reason, Block: b, Detail: text.Message(fmt.Sprintf(format, args...))}
}

func networkUnusable(b network.Block, n network.Network) Step {
	return refuse(b, NetworkUnusable,
		"public network %s is in state %q; it must be %s: if this lasts, look it up in the phoenixNAP portal", n.ID,
		n.Status, network.StatusReady)
}

func statusNotKnown(b network.Block) Step {
	return refuse(b, StatusNotKnown,
		"IP block %s (%s) is in state %q, which is not known; look it up in the phoenixNAP portal",
		b.ID, b.CIDR, b.Status)
}

// ReleasePlan is what is left to do until a Service has nothing any more.
type ReleasePlan struct {
	// Answering is true when an agent still answers for the address, which it is given a moment to stop.
	Answering bool
	// LeavingSince is since when the Service is known to leave, for the next decision; the zero Time when there is
	// nothing to remember.
	LeavingSince time.Time
	// Save are the ledgers in which the Service gives up its addresses.
	Save []Ledger
	// Retag is the block whose tags must be set, if any, and Tags are its complete new tags.
	Retag network.Block
	Tags  map[string]string
	// Forgone says why no block outlives the Service, which asks for that; its Action is Refuse or, when there is
	// nothing to say, Wait.
	Forgone Step
	// Steps give back blocks, in the order in which they must be tried.
	Steps []Step
	// Drop are the ledgers of blocks that are gone or given up.
	Drop []Ledger
}

// Waits reports whether there is nothing to do but wait.
func (p ReleasePlan) Waits() bool {
	changes := len(p.Save) > 0 || p.Tags != nil || len(p.Drop) > 0
	return p.Answering || (!changes && len(p.Steps) > 0 && p.Next().Action == Wait)
}

// OneStep reports whether nothing is left but to unassign or delete one block, for which it was just read by its ID.
func (p ReleasePlan) OneStep() bool {
	changes := len(p.Save) > 0 || p.Tags != nil || len(p.Drop) > 0
	return !p.Answering && !changes && len(p.Steps) == 1 &&
		(p.Steps[0].Action == Delete || p.Steps[0].Action == Unassign)
}

// Next is the step that comes first: one that can be taken, else one that waits, else a refusal. Done
// when nothing is left.
func (p ReleasePlan) Next() Step {
	for _, kinds := range [][]Action{{Delete, Unassign}, {Wait}, {Refuse}} {
		for _, step := range p.Steps {
			if slices.Contains(kinds, step.Action) {
				return step
			}
		}
	}
	return Step{Action: Done, Reason: NoBlock}
}

// PlanRelease decides what is left to do. live is the Service as it is now; nil when it is gone, and with
// it what its author wanted.
func PlanRelease(o Observed, live *corev1.Service) ReleasePlan {
	if refusal, unproven := Unproven(o.View); unproven && !o.Ours && o.hadSomething() {
		refusal.Detail += "; nothing of this Service is given back until then"
		return ReleasePlan{Steps: []Step{refusal}}
	}
	var p ReleasePlan
	p.Answering, p.LeavingSince = o.answering()
	for _, l := range o.Ledgers {
		freed := l.Free(o.Holder, o.Now)
		switch {
		case len(freed.Held) != len(l.Held):
			p.Save = append(p.Save, o.closeIfLast(freed))
		case l.Closed && l.Empty() && Knows(l, o.Holder):
			p.addClosed(o, l)
		}
	}
	if retain, known := retaining(live); known {
		if retain {
			var refused bool
			p.Forgone, refused = refuseRetaining(o)
			retain = !refused
		}
		p.Retag, p.Tags, _ = Retag(o.Owner, Wish{Published: lastAddress(live)}, o.View, retain)
	}
	if unseen, isUnseen := o.releasedUnseen(); isUnseen {
		p.Steps = append(p.Steps, waitUnseen(unseen))
	}
	p.Steps = append(p.Steps, Release(o.Owner, o.View)...)
	return p
}

// hadSomething reports whether there may be anything to give back: the controller wrote on the Service, which it does
// before it buys, or a ledger names it. A Service that never had anything goes in any account.
func (o Observed) hadSomething() bool {
	return o.written() || len(o.Service.Status.LoadBalancer.Ingress) > 0 ||
		slices.ContainsFunc(o.Ledgers, func(l Ledger) bool { return Knows(l, o.Holder) })
}

// closeIfLast marks the block of a ledger as being given back when no Service has an address of it any more
// and none waits for one. A brought block stays as it is, unless the controller assigned it.
func (o Observed) closeIfLast(l Ledger) Ledger {
	sighting, seen := o.Sighting(l.BlockID)
	pooled := !seen || o.Pool().Owns(sighting.Block)
	if !l.Empty() || pooled && o.Awaited() || !pooled && !l.AssignedHere || o.published(l.CIDR) {
		return l
	}
	return l.Close()
}

// Awaited reports whether another Service waits for an address of the pool.
func (o Observed) Awaited() bool {
	return slices.ContainsFunc(o.Services, func(other *corev1.Service) bool {
		return other.UID != o.Service.UID && contract.WantsAddress(other) && o.asFor(other).waitsForPool()
	})
}

// asFor is the observation as one about another Service, with what the list shows of its blocks.
func (o Observed) asFor(other *corev1.Service) Observed {
	o.Service = other
	o.Owner = OwnerOf(other, o.Owner.Cluster)
	o.Holder = HolderOf(other)
	o.Desired, o.Problem = ReadDesired(other, o.Options)
	o.Sightings = nil
	for _, b := range o.Known() {
		o.Sightings = append(o.Sightings, network.Sighting{Block: b})
	}
	return o
}

// waitsForPool reports whether the Service is to get an address of the pool and has none. One that has a block of its
// own does not, though the option for those that name no kind may say shared since. Nor does one that asks for an
// address which no block of the pool has.
func (o Observed) waitsForPool() bool {
	_, _, holds := o.held()
	if o.Problem != nil || !o.Desired.Shared || holds || o.allocation() != shared {
		return false
	}
	requested := o.Desired.Requested
	return !requested.IsValid() || slices.ContainsFunc(o.Known(), func(b network.Block) bool {
		return o.Pool().Owns(b) && b.CIDR.IsValid() && b.CIDR.Contains(requested)
	})
}

// addClosed adds what is left to do for a closed ledger.
func (p *ReleasePlan) addClosed(o Observed, l Ledger) {
	sighting, seen := o.Sighting(l.BlockID)
	switch {
	case slices.Contains(o.Unseen, l.BlockID), !seen && o.Exists(l.BlockID):
		p.Steps = append(p.Steps, waitUnseen(network.Block{ID: l.BlockID, CIDR: l.CIDR}))
		return
	case !seen:
		p.Drop = append(p.Drop, l)
		return
	}
	step := Step{Action: Done}
	switch {
	case o.published(l.CIDR): // the Service that publishes the address opens the ledger again
		return
	case o.Pool().Owns(sighting.Block):
		step = ReleaseBlock(sighting, o.View)
	case network.Brought(sighting.Block, o.Owner.Cluster, o.Options.OwnBlocks):
		step = ReleaseBrought(sighting, l.AssignedHere, o.View)
	}
	switch {
	case step.Action != Done:
		p.Steps = append(p.Steps, step)
	case !o.onNetwork(sighting.Block) || l.Spent(func(a netip.Addr) bool { return reports.Silent(o.Nodes, a) }, o.Now):
		p.Drop = append(p.Drop, l)
	default: // a machine may still answer for its addresses; Sweep drops the ledger when they have rested
	}
}

// onNetwork reports whether the addresses of the block can be reached through the public network.
func (o Observed) onNetwork(block network.Block) bool {
	return block.ResourceID == o.NetworkID || o.Networks[o.NetworkID].Listed(block.ID)
}

// retaining returns what the Service says about whether its block outlives it. known is false where it does
// not say, or not in a way that can be understood: then the tag of the block stays as it is.
func retaining(live *corev1.Service) (retain, known bool) {
	if live == nil {
		return false, false
	}
	switch live.Annotations[contract.ServiceIPRetain] {
	case contract.TagTrue:
		return true, true
	case "", "false":
		return false, true
	default:
		return false, false
	}
}
