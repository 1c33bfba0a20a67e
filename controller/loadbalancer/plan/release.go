package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// ReleasePlan is what is left to do until a Service has nothing any more.
type ReleasePlan struct {
	// Answering is true when an agent still answers for the address, which it is given a moment to stop.
	Answering bool
	// LeavingSince is since when the Service is known to leave, for the next decision; the zero Time when there is
	// nothing to remember.
	LeavingSince time.Time
	// Save are the ledgers in which the Service gives up its addresses.
	Save []ipblock.Ledger
	// Retag is the block whose tags must be set, if any, and Tags are its complete new tags.
	Retag network.Block
	Tags  map[string]string
	// Forgone says why no block outlives the Service, which asks for that; its Action is Refuse or, when there is
	// nothing to say, Wait.
	Forgone ipblock.Step
	// Steps release blocks, in the order in which they must be tried.
	Steps []ipblock.Step
	// Drop are the ledgers of blocks that are gone or given up.
	Drop []ipblock.Ledger
}

// Waits reports whether there is nothing to do but wait.
func (p ReleasePlan) Waits() bool {
	changes := len(p.Save) > 0 || p.Tags != nil || len(p.Drop) > 0
	return p.Answering || (!changes && len(p.Steps) > 0 && p.Next().Action == ipblock.Wait)
}

// NothingLeft reports whether nothing of the Service is left, so that nothing has to be done.
func (p ReleasePlan) NothingLeft() bool {
	return !p.Answering && p.Next().Action == ipblock.Done && len(p.Save) == 0 && p.Tags == nil && len(p.Drop) == 0
}

// OneStep reports whether nothing is left but to unassign or delete one block, for which it was just read by its ID.
func (p ReleasePlan) OneStep() bool {
	changes := len(p.Save) > 0 || p.Tags != nil || len(p.Drop) > 0
	return !p.Answering && !changes && len(p.Steps) == 1 &&
		(p.Steps[0].Action == ipblock.Delete || p.Steps[0].Action == ipblock.Unassign)
}

// Next is the step that comes first: one that can be taken, else one that waits, else a refusal. Done
// when nothing is left.
func (p ReleasePlan) Next() ipblock.Step {
	for _, kinds := range [][]ipblock.Action{{ipblock.Delete, ipblock.Unassign}, {ipblock.Wait}, {ipblock.Refuse}} {
		for _, step := range p.Steps {
			if slices.Contains(kinds, step.Action) {
				return step
			}
		}
	}
	return ipblock.Step{Action: ipblock.Done, Reason: ipblock.NoBlock}
}

// PlanRelease decides what is left to do. live is the Service as it is now; nil when it is gone, and with
// it what its author wanted.
func PlanRelease(obs Observed, live *corev1.Service) ReleasePlan {
	if refusal, unproven := ipblock.Unproven(obs.Account); unproven && !obs.Ours && obs.hadSomething() {
		refusal.Detail += "; nothing of this Service is released until then"
		return ReleasePlan{Steps: []ipblock.Step{refusal}}
	}
	var p ReleasePlan
	p.Answering, p.LeavingSince = obs.answering()
	for _, l := range obs.Ledgers {
		freed := l.Free(obs.Holder, obs.Now)
		switch {
		case freed.HolderCount() != l.HolderCount():
			p.Save = append(p.Save, obs.closeIfLast(freed))
		case l.Closed && l.Empty() && l.Knows(obs.Holder):
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
		p.Retag, p.Tags, _ = ipblock.Retag(obs.Owner, ipblock.Request{}, account, retain)
	}
	if unseen, isUnseen := obs.releasedUnseen(); isUnseen {
		p.Steps = append(p.Steps, ipblock.WaitUnseen(unseen))
	}
	p.Steps = append(p.Steps, ipblock.Release(obs.Owner, obs.Account)...)
	return p
}

// hadSomething reports whether there may be anything to release: the controller wrote on the Service, which it does
// before it buys, or a ledger names it. A Service that never had anything goes in any account.
func (obs Observed) hadSomething() bool {
	return obs.written() || obs.Purchase != nil || len(obs.Service.Status.LoadBalancer.Ingress) > 0 ||
		slices.ContainsFunc(obs.Ledgers, func(l ipblock.Ledger) bool { return l.Knows(obs.Holder) })
}

// closeIfLast marks the block of a ledger as being released when no Service has an address of it any more
// and none waits for one. A brought block stays as it is, unless the controller assigned it.
func (obs Observed) closeIfLast(l ipblock.Ledger) ipblock.Ledger {
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
		return other.UID != obs.Service.UID && WantsAddress(other) && obs.asFor(other).waitsForPool()
	})
}

// asFor is the observation as one about another Service, with what the list shows of its blocks.
func (obs Observed) asFor(other *corev1.Service) Observed {
	obs, _ = obs.of(other, Declared{})
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
func (p *ReleasePlan) addClosed(obs Observed, l ipblock.Ledger) {
	sighting, seen := obs.Sighting(l.BlockID)
	switch {
	case slices.Contains(obs.Unseen, l.BlockID), !seen && obs.Exists(l.BlockID):
		p.Steps = append(p.Steps, ipblock.WaitUnseen(network.Block{ID: l.BlockID, CIDR: l.CIDR}))
		return
	case !seen:
		p.Drop = append(p.Drop, l)
		return
	}
	step := ipblock.Step{Action: ipblock.Done}
	switch {
	case obs.anotherPublishes(l.CIDR): // the Service that publishes the address opens the ledger again
		return
	case obs.Pool().Owns(sighting.Block):
		step = ipblock.ReleaseBlock(sighting, obs.Account)
	case obs.IsBrought(sighting.Block):
		step = ipblock.ReleaseBrought(sighting, l.AssignedHere, obs.Account)
	}
	switch {
	case step.Action != ipblock.Done:
		p.Steps = append(p.Steps, step)
	case !obs.onNetwork(sighting.Block) || l.Spent(obs.silent, obs.Now):
		p.Drop = append(p.Drop, l)
	default: // a machine may still answer for its addresses; Sweep drops the ledger after their quarantine
	}
}

// onNetwork reports whether the addresses of the block can be reached through the public network.
func (obs Observed) onNetwork(block network.Block) bool {
	return block.ResourceID == obs.Network.ID || obs.Public().Listed(block.ID)
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
