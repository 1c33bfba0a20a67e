package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// decideShared decides about an address of the pool. Ledgers say who holds which; what stands on Services
// is output and gives no Service the address of another.
func decideShared(s Observed) ServicePlan {
	blocks, known := s.poolBlocks()
	if !known {
		return ServicePlan{Step: Step{Action: Wait, Reason: BlockInvisible}}
	}
	published := s.Published()
	_, _, holds := s.held()
	if published.IsValid() && !holds && !s.Desired.Replace && !contains(blocks, published) {
		return s.lost(published)
	}
	view := s.View
	view.Purchase = s.PoolPurchase
	extend := Extend(s.Pool(), s.PoolWish(), view)
	placement := Place(s.Holder, s.placeWish(), blocks, extend.Action == Wait)
	v := ServicePlan{Owner: s.Pool(), Save: placement.Save, Reused: placement.Reused}
	switch placement.Action {
	case Buy:
		v.Step = s.grow(blocks, extend)
	case Done:
		sighting, _ := s.Sighting(placement.Block.ID)
		if !s.Pool().Owns(sighting.Block) {
			return s.lost(placement.Address)
		}
		v.Step = EnsureBlock(sighting, s.View)
		v.Step.Address = placement.Address
	default:
		v.Step = s.insteadOfResting(placement.Step, s.grow(blocks, extend))
		if placement.Reason == BlockLost {
			return s.lost(published)
		}
	}
	v.Save = append(v.Save, s.leave(poolIDs(blocks)...)...)
	if v.Step.Action == Done {
		v.Surplus = actionable(Release(s.Owner, s.View))
	}
	return v
}

// lost refuses a Service whose published address is in no block any more.
func (s Observed) lost(published netip.Addr) ServicePlan {
	if refused, retagged := s.refuseRetagged(published); retagged {
		return refused
	}
	return refusedPlan(BlockLost,
		"the IP block of address %s is gone from the account; "+
			"for a new address set the annotation %s to \"true\", or create the Service again without an address",
		published, contract.ServiceIPReplace)
}

// PoolWish describes the next block for the pool. Its size is the option's.
func (s Observed) PoolWish() Wish {
	wish := s.Wish()
	if size, err := ParseSize(s.Options.BlockSize); err == nil {
		wish.Size = size
	}
	wish.SizeDemanded = false
	return wish
}

// placeWish is what the Service is to get of the pool or of a brought block.
func (s Observed) placeWish() PlaceWish {
	silent := func(a netip.Addr) bool { return Silent(s.Nodes, a) }
	return PlaceWish{Wish: s.Wish(), Ask: Ask{Silent: silent, Barred: s.unavailable, Now: s.Now}, NetworkID: s.NetworkID}
}

// unavailable reports whether an address is in use in ways that no ledger knows: by a member of the network, or
// by another Service that was given it before its ledger was lost.
//
// The claim of a Service is an annotation, and its author may write any. It counts where a ledger confirms it,
// as that of a block which is gone may, whose addresses were sold again; and where it gains nothing: the
// Service is served and has no address, in a ledger or a block of its own, so that it could have asked for
// this one and would get it.
func (s Observed) unavailable(address netip.Addr) bool {
	return s.Networks[s.NetworkID].holds(address) || slices.ContainsFunc(s.Services, func(other *corev1.Service) bool {
		return other.UID != s.Service.UID && contract.WrittenForThis(other) && ClaimedAddress(other) == address &&
			(other.Namespace != s.Service.Namespace || other.Name != s.Service.Name) && s.credible(other, address)
	})
}

// credible reports whether the claim of another Service to an address keeps that from others.
func (s Observed) credible(other *corev1.Service, address netip.Addr) bool {
	provided := slices.ContainsFunc(s.Blocks, OwnerOf(other, s.Owner.Cluster).Owns)
	for _, l := range s.Ledgers {
		held, holds := l.AddressOf(HolderOf(other))
		if holds && held == address {
			return true
		}
		provided = provided || holds
	}
	return contract.WantsAddress(other) && !provided
}

// poolBlocks returns the blocks of the pool with their ledgers, and those that are gone, or are the pool's no
// more, and in which the Service holds an address. known is false when only a read by ID shows which that is.
func (s Observed) poolBlocks() (blocks []PoolBlock, known bool) {
	for _, i := range s.Sightings {
		if !s.Pool().Owns(i.Block) || !i.Block.CIDR.IsValid() {
			continue
		}
		l, stored := s.Ledger(i.Block.ID)
		if !stored {
			if !s.Live {
				return nil, false
			}
			l = NewLedger(i.Block.ID, i.Block.CIDR)
		}
		blocks = append(blocks, PoolBlock{Sighting: i, Ledger: l})
	}
	for _, l := range s.Ledgers {
		if _, holds := l.AddressOf(s.Holder); !holds || slices.Contains(poolIDs(blocks), l.BlockID) {
			continue
		}
		if !s.Live {
			return nil, false
		}
		sighting, seen := s.Sighting(l.BlockID)
		blocks = append(blocks, PoolBlock{Sighting: sighting, Gone: !seen, Foreign: seen, Ledger: l})
	}
	return blocks, true
}

// poolGrows reports whether a block of the pool is on its way to the network. The next one is bought only
// when it is there: the network takes in one after the other anyway, and some who wait may have gone by then.
func (s Observed) poolGrows(blocks []PoolBlock) (reason Reason, grows bool) {
	for _, p := range blocks {
		if p.Gone || p.Foreign || p.Ledger.Closed || p.Sighting.Hidden {
			continue
		}
		switch p.Sighting.Block.Status {
		case Creating:
			return BlockCreating, true
		case Unassigned, Assigning:
			return BlockAssigning, true
		default:
		}
	}
	return "", false
}

// grow is what extends the pool: a purchase, or the wait for a block that is on its way.
func (s Observed) grow(blocks []PoolBlock, extend Step) Step {
	if reason, coming := s.poolGrows(blocks); coming && extend.Action == Buy {
		return Step{Action: Wait, Reason: reason}
	}
	return extend
}

// restPatience is how long a Service waits for an address in quarantine while the pool could grow instead: long enough
// for agents to report that the address is silent, which spares a purchase.
const restPatience = 30 * time.Second

// insteadOfResting returns the step that serves the Service sooner than a wait for the end of a quarantine does. A
// requested address cannot be bought, and where the pool cannot grow there is nothing but to wait.
func (s Observed) insteadOfResting(wait, grow Step) Step {
	bounded := s.RestingSince.Add(restPatience)
	switch {
	case wait.Reason != AddressResting, s.Desired.Requested.IsValid(), grow.Action == Refuse,
		!wait.Until.After(bounded):
		return wait
	case s.Now.Before(bounded):
		wait.Until = bounded
		return wait
	default:
		return grow
	}
}

func contains(blocks []PoolBlock, address netip.Addr) bool {
	return slices.ContainsFunc(blocks, func(p PoolBlock) bool { return !p.Gone && p.Ledger.CIDR.Contains(address) })
}

func poolIDs(blocks []PoolBlock) []string {
	ids := make([]string, 0, len(blocks))
	for _, p := range blocks {
		ids = append(ids, p.Ledger.BlockID)
	}
	return ids
}

// decideBrought decides about an address of a block that the user brought. It is never deleted and its
// tags are never touched; several Services may share it.
func decideBrought(s Observed) ServicePlan {
	held, _, _ := s.held()
	id := cmp.Or(s.Desired.BlockID, held.BlockID)
	sighting, seen := s.Sighting(id)
	switch {
	case !seen && !s.Live:
		return ServicePlan{Step: Step{Action: Wait, Reason: BlockInvisible}}
	case !seen && s.Published().IsValid():
		return refusedPlan(BlockLost,
			"IP block %s of address %s is gone from the account; name another one in annotation %s and set %s to "+
				"\"true\"",
			id, s.Published(), contract.ServiceIPBlockID, contract.ServiceIPReplace)
	case !seen || sighting.Hidden:
		return refusedPlan(BlockUnusable, "IP block %s, which annotation %s names, is not in the account", id,
			contract.ServiceIPBlockID)
	case !Brought(sighting.Block, s.Owner.Cluster, s.Options.OwnBlocks):
		return refusedPlan(BlockUnusable,
			"IP block %s may not be named in annotation %s: give it the tag %s=%s, or list it in the option "+
				"ownIPBlocks",
			id, contract.ServiceIPBlockID, contract.TagCluster, s.Owner.Cluster)
	}
	l, stored := s.Ledger(id)
	if !stored {
		l = NewLedger(id, sighting.Block.CIDR)
	}
	return placeBrought(s, sighting, l)
}

func placeBrought(s Observed, sighting Sighting, l Ledger) ServicePlan {
	blocks := []PoolBlock{{Sighting: sighting, Ledger: l}}
	step := EnsureBrought(sighting, l.AssignedHere, s.View)
	if step.Action == Refuse {
		return ServicePlan{Step: step}
	}
	placement := Place(s.Holder, s.placeWish(), blocks, false)
	if placement.Action == Buy {
		return refusedPlan(BlockUnusable,
			"all addresses of IP block %s (%s), which annotation %s names, are in use; name another block",
			l.BlockID, l.CIDR, contract.ServiceIPBlockID)
	}
	if placement.Action != Done {
		return ServicePlan{Step: placement.Step}
	}
	v := ServicePlan{Step: step, Save: placement.Save, Reused: placement.Reused}
	v.Step.Address = placement.Address
	if v.Step.Action == Assign && !l.AssignedHere {
		v.Save = assignedHere(v.Save, l)
	}
	v.Save = append(v.Save, s.leave(l.BlockID)...)
	if v.Step.Action == Done {
		v.Surplus = actionable(Release(s.Owner, s.View))
	}
	return v
}

// assignedHere records that the controller is about to assign the block, so that it is the one to unassign it.
func assignedHere(save []Ledger, l Ledger) []Ledger {
	for i := range save {
		if save[i].BlockID == l.BlockID {
			save[i].AssignedHere = true
			return save
		}
	}
	l.AssignedHere = true
	return append(save, l)
}
