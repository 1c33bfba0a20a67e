package reconcile

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// decideShared decides about an address of the pool. Ledgers say who holds which; what stands on Services
// is output and gives nobody the address of another.
func decideShared(s observed) servicePlan {
	blocks, known := s.poolBlocks()
	if !known {
		return servicePlan{step: plan.Step{Action: plan.Wait, Reason: plan.BlockInvisible}}
	}
	published := s.published()
	_, _, holds := s.held()
	if published.IsValid() && !holds && !s.desired.replace && !contains(blocks, published) {
		return s.lost(published)
	}
	extend := plan.Extend(s.pool(), s.poolWish(), s.view(s.poolPurchase))
	v := servicePlan{owner: s.pool()}
	placement := plan.Place(s.holder, s.placeWish(), blocks, extend.Action == plan.Wait)
	switch placement.Action {
	case plan.PlaceBuy:
		v.step, v.save = s.grow(blocks, extend), placement.Save
	case plan.PlaceWait, plan.PlaceRefuse:
		v.step = s.insteadOfResting(stepOf(placement), s.grow(blocks, extend))
		if placement.Reason == plan.BlockLost {
			return s.lost(published)
		}
	case plan.PlaceHere:
		sighting, _ := s.sighting(placement.Block.ID)
		if !s.pool().Owns(sighting.Block) {
			return s.lost(placement.Address)
		}
		v.step = plan.EnsureBlock(sighting, s.view(s.poolPurchase))
		v.step.Address, v.save, v.reused = placement.Address, placement.Save, placement.Reused
	default:
		return refusedPlan(reasonAnnotations, "the pool answers %s", placement.Action)
	}
	v.save = append(v.save, s.leave(poolIDs(blocks)...)...)
	if v.step.Action == plan.Done {
		v.surplus = actionable(plan.Release(s.owner, s.view(s.purchase)))
	}
	return v
}

// lost refuses a Service whose published address is in no block any more.
func (s observed) lost(published netip.Addr) servicePlan {
	if retagged, is := s.retagged(published); is {
		return refusedPlan(plan.BlockRetagged, "IP block %s (%s) holds address %s of this Service but its tags do not say so any more; restore them or delete the Service and create it again",
			retagged.ID, retagged.CIDR, published)
	}
	return refusedPlan(plan.BlockLost, "the IP block of address %s is gone from the account; for a new address set the annotation %s to \"true\", or create the Service anew without an address",
		published, contract.ServiceIPReplace)
}

// poolWish is what a block for the pool is to be like. Its size is the option's.
func (s observed) poolWish() plan.Wish {
	wish := s.wish()
	if size, err := plan.ParseSize(s.options.blockSize); err == nil {
		wish.Size = size
	}
	wish.SizeDemanded = false
	return wish
}

// placeWish is what the Service is to get of the pool or of a brought block.
func (s observed) placeWish() plan.PlaceWish {
	return plan.PlaceWish{
		Published: s.published(), Requested: s.desired.requested, RequestedSource: s.desired.requestedSource, Replace: s.desired.replace,
		NetworkID: s.networkID, Silent: func(a netip.Addr) bool { return silent(s.nodes, a) }, Barred: s.unavailable, Now: s.now,
	}
}

// unavailable reports whether an address is in use in ways that no ledger knows: by a member of the network, or
// by another Service that was told it before its ledger was lost.
//
// The claim of a Service is an annotation, and its author may write any. It counts where a ledger confirms it,
// as that of a block which is gone may, whose addresses were sold again; and where it gains nothing: the
// Service is served and has no address, in a ledger or a block of its own, so that it could have asked for
// this one and would get it.
func (s observed) unavailable(address netip.Addr) bool {
	for _, member := range s.networks[s.networkID].Members {
		if slices.Contains(member.IPs, address) {
			return true
		}
	}
	return slices.ContainsFunc(s.services, func(other *corev1.Service) bool {
		return other.UID != s.service.UID && contract.WrittenForThis(other) && claimed(other) == address &&
			(other.Namespace != s.service.Namespace || other.Name != s.service.Name) && s.credible(other, address)
	})
}

// credible tells whether the claim of another Service to an address keeps that from others.
func (s observed) credible(other *corev1.Service, address netip.Addr) bool {
	provided := slices.ContainsFunc(s.blocks, ownerOf(other, s.owner.Cluster).Owns)
	for _, l := range s.ledgers {
		held, holds := l.AddressOf(holderOf(other))
		if holds && held == address {
			return true
		}
		provided = provided || holds
	}
	return contract.WantsAddress(other) && !provided
}

// poolBlocks returns the blocks of the pool with their ledgers, and those that are gone, or are the pool's no
// more, and in which the Service holds an address. known is false when a look by ID must tell which that is.
func (s observed) poolBlocks() (blocks []plan.PoolBlock, known bool) {
	for _, i := range s.sightings {
		if !s.pool().Owns(i.Block) || !i.Block.CIDR.IsValid() {
			continue
		}
		l, stored := s.ledger(i.Block.ID)
		if !stored {
			if !s.live {
				return nil, false
			}
			l = plan.NewLedger(i.Block.ID, i.Block.CIDR)
		}
		blocks = append(blocks, plan.PoolBlock{Sighting: i, Ledger: l})
	}
	for _, l := range s.ledgers {
		if _, holds := l.AddressOf(s.holder); !holds || slices.Contains(poolIDs(blocks), l.BlockID) {
			continue
		}
		if !s.live {
			return nil, false
		}
		sighting, seen := s.sighting(l.BlockID)
		blocks = append(blocks, plan.PoolBlock{Sighting: sighting, Gone: !seen, Foreign: seen, Ledger: l})
	}
	return blocks, true
}

// poolGrows tells whether a block of the pool is on its way to the network. The next one is bought only
// when it is there: the network takes in one after the other anyway, and some who wait may have gone by then.
func (s observed) poolGrows(blocks []plan.PoolBlock) (reason plan.Reason, grows bool) {
	for _, p := range blocks {
		if p.Gone || p.Foreign || p.Ledger.Closed || p.Sighting.Hidden {
			continue
		}
		switch p.Sighting.Block.Status {
		case plan.Creating:
			return plan.BlockCreating, true
		case plan.Unassigned, plan.Assigning:
			return plan.BlockAssigning, true
		case plan.Assigned, plan.Unassigning, plan.ErrorAssigning, plan.ErrorUnassigning:
		default:
		}
	}
	return "", false
}

// grow is what extends the pool: a purchase, or the wait for a block that is on its way.
func (s observed) grow(blocks []plan.PoolBlock, extend plan.Step) plan.Step {
	if reason, coming := s.poolGrows(blocks); coming && extend.Action == plan.Buy {
		return plan.Step{Action: plan.Wait, Reason: reason}
	}
	return extend
}

// restPatience is how long a Service waits for an address in quarantine while the pool could grow instead: long enough for
// agents to report that the address is silent, which spares a purchase.
const restPatience = 30 * time.Second

// insteadOfResting returns the step that serves the Service sooner than a wait for the end of a quarantine does. A requested
// address cannot be bought, and where the pool cannot grow there is nothing but to wait.
func (s observed) insteadOfResting(wait, grow plan.Step) plan.Step {
	bounded := s.restingSince.Add(restPatience)
	switch {
	case wait.Reason != plan.AddressResting, s.desired.requested.IsValid(), grow.Action == plan.Refuse:
		return wait
	case !wait.Until.After(bounded):
		return wait
	case s.now.Before(bounded):
		wait.Until = bounded
		return wait
	default:
		return grow
	}
}

func contains(blocks []plan.PoolBlock, address netip.Addr) bool {
	return slices.ContainsFunc(blocks, func(p plan.PoolBlock) bool { return !p.Gone && p.Ledger.CIDR.Contains(address) })
}

func poolIDs(blocks []plan.PoolBlock) []string {
	ids := make([]string, 0, len(blocks))
	for _, p := range blocks {
		ids = append(ids, p.Ledger.BlockID)
	}
	return ids
}

// stepOf is a placement that gives nothing, as a step.
func stepOf(p plan.Placement) plan.Step {
	step := plan.Step{Action: plan.Wait, Reason: p.Reason, Block: p.Block, Address: p.Address, Detail: p.Detail, Until: p.Until}
	if p.Action == plan.PlaceRefuse {
		step.Action = plan.Refuse
	}
	return step
}
