package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

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
		return []Step{waitUnseen(block)}
	case untagged && owner.DescribedBy(block):
		return []Step{account.retagged(owner, block)}
	}
	if unseen, isUnseen := account.BoughtUnseen(); isUnseen {
		return []Step{waitUnseen(unseen)}
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
		return waitUnseen(block)
	}
	if refusal, refused := Untouchable(block); refused {
		return refusal
	}
	return refuse(block, BlockRetagged, "IP block %s (%s) was bought for %s but its tags do not say so any more; "+
		retaggedRemedy, block.ID, block.CIDR, owner)
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
		return refuse(s.Block, BlockUnusable, "IP block %s (%s) is not released, because an IPBlock of source Brought "+
			"names it; delete that IPBlock if the block is to be released", s.Block.ID, s.Block.CIDR)
	}
	return giveUp(s, account)
}

// giveUp is ReleaseBlock, whoever else names the block.
func giveUp(s network.Sighting, account Account) Step {
	b := s.Block
	if s.Hidden {
		return account.waitHidden(b)
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
		return refuse(b, BlockElsewhere,
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
		return refuse(b, MemberHoldsIP,
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
	return account.NetworkID
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
	// Steps release blocks, in the order in which they must be tried.
	Steps []Step
	// Drop are the ledgers of blocks that are gone or given up.
	Drop []Ledger
}

// Waits reports whether there is nothing to do but wait.
func (p ReleasePlan) Waits() bool {
	changes := len(p.Save) > 0 || p.Tags != nil || len(p.Drop) > 0
	return p.Answering || (!changes && len(p.Steps) > 0 && p.Next().Action == Wait)
}

// NothingLeft reports whether nothing of the Service is left, so that nothing has to be done.
func (p ReleasePlan) NothingLeft() bool {
	return !p.Answering && p.Next().Action == Done && len(p.Save) == 0 && p.Tags == nil && len(p.Drop) == 0
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
func PlanRelease(obs Observed, live *corev1.Service) ReleasePlan {
	if refusal, unproven := Unproven(obs.Account); unproven && !obs.Ours && obs.hadSomething() {
		refusal.Detail += "; nothing of this Service is released until then"
		return ReleasePlan{Steps: []Step{refusal}}
	}
	var p ReleasePlan
	p.Answering, p.LeavingSince = obs.answering()
	for _, l := range obs.Ledgers {
		freed := l.Free(obs.Holder, obs.Now)
		switch {
		case freed.count() != l.count():
			p.Save = append(p.Save, obs.closeIfLast(freed))
		case l.Closed && l.Empty() && knows(l, obs.Holder):
			p.addClosed(obs, l)
		}
	}
	if retain, known := retaining(live); known {
		if retain {
			var refused bool
			p.Forgone, refused = refuseRetaining(obs)
			retain = !refused
		}
		account := obs.Account
		account.Published = lastAddress(live)
		p.Retag, p.Tags, _ = Retag(obs.Owner, Desired{}, account, retain)
	}
	if unseen, isUnseen := obs.releasedUnseen(); isUnseen {
		p.Steps = append(p.Steps, waitUnseen(unseen))
	}
	p.Steps = append(p.Steps, Release(obs.Owner, obs.Account)...)
	return p
}

// hadSomething reports whether there may be anything to release: the controller wrote on the Service, which it does
// before it buys, or a ledger names it. A Service that never had anything goes in any account.
func (obs Observed) hadSomething() bool {
	return obs.written() || obs.Purchase != nil || len(obs.Service.Status.LoadBalancer.Ingress) > 0 ||
		slices.ContainsFunc(obs.Ledgers, func(l Ledger) bool { return knows(l, obs.Holder) })
}

// closeIfLast marks the block of a ledger as being released when no Service has an address of it any more
// and none waits for one. A brought block stays as it is, unless the controller assigned it.
func (obs Observed) closeIfLast(l Ledger) Ledger {
	sighting, seen := obs.Sighting(l.BlockID)
	pooled := !seen || obs.Pool().Owns(sighting.Block)
	if !l.Empty() || pooled && (obs.Awaited() || obs.kept(l)) || !pooled && !l.AssignedHere ||
		obs.anotherPublishes(l.CIDR) {
		return l
	}
	return l.Close()
}

// Awaited reports whether another Service waits for an address of the pool.
func (obs Observed) Awaited() bool {
	return slices.ContainsFunc(obs.Services, func(other *corev1.Service) bool {
		return other.UID != obs.Service.UID && contract.WantsAddress(other) && obs.asFor(other).waitsForPool()
	})
}

// asFor is the observation as one about another Service, with what the list shows of its blocks.
func (obs Observed) asFor(other *corev1.Service) Observed {
	obs, _ = obs.About(other, Declared{})
	obs.Sightings = nil
	for _, b := range obs.Known() {
		obs.Sightings = append(obs.Sightings, network.Sighting{Block: b})
	}
	return obs.withFacts()
}

// waitsForPool reports whether the Service is to get an address of the pool and has none. One that has a block of its
// own does not, though the option for those that name no kind may say shared since. Nor does one that asks for an
// address which no block of the pool has, or has lost such a one and may not get another.
func (obs Observed) waitsForPool() bool {
	if obs.Problem != nil || !obs.Desired.Shared || obs.Held.IsValid() || obs.Kind != Shared ||
		obs.NamedShared.Name != "" || obs.hasGroup() {
		return false
	}
	wanted := obs.Desired.Requested
	if obs.Published.IsValid() && !obs.Desired.Replace {
		wanted = obs.Published
	}
	return !wanted.IsValid() || slices.ContainsFunc(obs.Known(), func(b network.Block) bool {
		return obs.Pool().Owns(b) && b.CIDR.IsValid() && b.CIDR.Contains(wanted)
	})
}

// addClosed adds what is left to do for a closed ledger.
func (p *ReleasePlan) addClosed(obs Observed, l Ledger) {
	sighting, seen := obs.Sighting(l.BlockID)
	switch {
	case slices.Contains(obs.Unseen, l.BlockID), !seen && obs.Exists(l.BlockID):
		p.Steps = append(p.Steps, waitUnseen(network.Block{ID: l.BlockID, CIDR: l.CIDR}))
		return
	case !seen:
		p.Drop = append(p.Drop, l)
		return
	}
	step := Step{Action: Done}
	switch {
	case obs.anotherPublishes(l.CIDR): // the Service that publishes the address opens the ledger again
		return
	case obs.Pool().Owns(sighting.Block):
		step = ReleaseBlock(sighting, obs.Account)
	case obs.IsBrought(sighting.Block):
		step = ReleaseBrought(sighting, l.AssignedHere, obs.Account)
	}
	switch {
	case step.Action != Done:
		p.Steps = append(p.Steps, step)
	case !obs.onNetwork(sighting.Block) || l.Spent(obs.silent, obs.Now):
		p.Drop = append(p.Drop, l)
	default: // a machine may still answer for its addresses; Sweep drops the ledger after their quarantine
	}
}

// onNetwork reports whether the addresses of the block can be reached through the public network.
func (obs Observed) onNetwork(block network.Block) bool {
	return block.ResourceID == obs.NetworkID || obs.Public().Listed(block.ID)
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
