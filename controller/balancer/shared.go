package balancer

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// decideShared decides about an address of the pool. Ledgers say who holds which; what stands on Services
// is output and gives nobody the address of another.
func (b *Balancer) decideShared(s scene) verdict {
	blocks, known := s.poolBlocks()
	if !known {
		return verdict{step: ipblock.Step{Action: ipblock.Wait, Reason: ipblock.BlockInvisible}}
	}
	published := s.published()
	_, _, holds := s.held()
	if published.IsValid() && !holds && !s.intent.replace && !contains(blocks, published) {
		return b.lost(s, published)
	}
	extend := ipblock.Extend(s.pool(), b.poolWish(s), s.view(s.poolPurchase))
	v := verdict{owner: s.pool()}
	placement := ipblock.Place(s.holder, s.placeWish(), blocks, extend.Action == ipblock.Wait)
	switch placement.Action {
	case ipblock.PlaceBuy:
		v.step, v.save = s.grow(blocks, extend), placement.Save
	case ipblock.PlaceWait, ipblock.PlaceRefuse:
		v.step = s.insteadOfResting(stepOf(placement), s.grow(blocks, extend))
		if placement.Reason == ipblock.BlockLost {
			return b.lost(s, published)
		}
	case ipblock.PlaceHere:
		sighting, _ := s.sighting(placement.Block.ID)
		if !s.pool().Owns(sighting.Block) {
			return b.lost(s, placement.Address)
		}
		v.step = ipblock.EnsureBlock(sighting, s.view(s.poolPurchase))
		v.step.Address, v.save, v.reused = placement.Address, placement.Save, placement.Reused
	default:
		return refused(reasonAnnotations, "the pool answers %s", placement.Action)
	}
	v.save = append(v.save, s.leave(poolIDs(blocks)...)...)
	if v.step.Action == ipblock.Done {
		v.surplus = actionable(ipblock.Release(s.owner, s.view(s.purchase)))
	}
	return v
}

// lost refuses a Service whose published address is in no block any more.
func (b *Balancer) lost(s scene, published netip.Addr) verdict {
	if retagged, is := s.retagged(published); is {
		return refused(ipblock.BlockRetagged, "IP block %s (%s) holds address %s of this Service but its tags do not say so any more; restore them or delete the Service and create it again",
			retagged.ID, retagged.CIDR, published)
	}
	return refused(ipblock.BlockLost, "the IP block of address %s is gone from the account; for a new address set the annotation %s to \"true\", or create the Service anew without an address",
		published, contract.ServiceIPReplace)
}

// poolWish is what a block for the pool is to be like. Its size is the option's.
func (b *Balancer) poolWish(s scene) ipblock.Wish {
	wish := b.wish(s)
	if size, err := ipblock.ParseSize(b.config.BlockSize); err == nil {
		wish.Size = size
	}
	wish.SizeDemanded = false
	return wish
}

// placeWish is what the Service is to get of the pool or of a brought block.
func (s scene) placeWish() ipblock.PlaceWish {
	return ipblock.PlaceWish{
		Published: s.published(), Requested: s.intent.requested, RequestedSource: s.intent.requestedSource, Replace: s.intent.replace,
		NetworkID: s.networkID, Silent: func(a netip.Addr) bool { return silent(s.nodes, a) }, Barred: s.barred, Now: s.now,
	}
}

// barred tells whether an address is in use in ways that no ledger knows: by a member of the network, or
// by another Service that was told it before its ledger was lost.
//
// The claim of a Service is an annotation, and its author may write any. It counts where a ledger confirms it,
// as that of a block which is gone may, whose addresses were sold again; and where it gains nothing: the
// Service is served and has no address, in a ledger or a block of its own, so that it could have asked for
// this one and would get it.
func (s scene) barred(address netip.Addr) bool {
	for _, member := range s.networks[s.networkID].Members {
		if slices.Contains(member.IPs, address) {
			return true
		}
	}
	return slices.ContainsFunc(s.services, func(other *corev1.Service) bool {
		return other.UID != s.service.UID && ownLife(other) && claimed(other) == address &&
			(other.Namespace != s.service.Namespace || other.Name != s.service.Name) && s.credible(other, address)
	})
}

// credible tells whether the claim of another Service to an address keeps that from others.
func (s scene) credible(other *corev1.Service, address netip.Addr) bool {
	provided := slices.ContainsFunc(s.blocks, ownerOf(other, s.owner.Cluster).Owns)
	for _, l := range s.ledgers {
		held, holds := l.AddressOf(holderOf(other))
		if holds && held == address {
			return true
		}
		provided = provided || holds
	}
	return wantsBlock(other) && !provided
}

// poolBlocks returns the blocks of the pool with their ledgers, and those that are gone, or are the pool's no
// more, and in which the Service holds an address. known is false when a look by ID must tell which that is.
func (s scene) poolBlocks() (blocks []ipblock.PoolBlock, known bool) {
	for _, i := range s.sightings {
		if !s.pool().Owns(i.Block) || !i.Block.CIDR.IsValid() {
			continue
		}
		l, stored := s.ledger(i.Block.ID)
		if !stored {
			if !s.close {
				return nil, false
			}
			l = ipblock.NewLedger(i.Block.ID, i.Block.CIDR)
		}
		blocks = append(blocks, ipblock.PoolBlock{Sighting: i, Ledger: l})
	}
	for _, l := range s.ledgers {
		if _, holds := l.AddressOf(s.holder); !holds || slices.Contains(poolIDs(blocks), l.BlockID) {
			continue
		}
		if !s.close {
			return nil, false
		}
		sighting, seen := s.sighting(l.BlockID)
		blocks = append(blocks, ipblock.PoolBlock{Sighting: sighting, Gone: !seen, Foreign: seen, Ledger: l})
	}
	return blocks, true
}

// poolGrows tells whether a block of the pool is on its way to the network. The next one is bought only
// when it is there: the network takes in one after the other anyway, and some who wait may have gone by then.
func (s scene) poolGrows(blocks []ipblock.PoolBlock) (reason ipblock.Reason, grows bool) {
	for _, p := range blocks {
		if p.Gone || p.Foreign || p.Ledger.Closed || p.Sighting.Hidden {
			continue
		}
		switch p.Sighting.Block.Status {
		case ipblock.Creating:
			return ipblock.BlockCreating, true
		case ipblock.Unassigned, ipblock.Assigning:
			return ipblock.BlockAssigning, true
		case ipblock.Assigned, ipblock.Unassigning, ipblock.ErrorAssigning, ipblock.ErrorUnassigning:
		default:
		}
	}
	return "", false
}

// grow is what extends the pool: a purchase, or the wait for a block that is on its way.
func (s scene) grow(blocks []ipblock.PoolBlock, extend ipblock.Step) ipblock.Step {
	if reason, coming := s.poolGrows(blocks); coming && extend.Action == ipblock.Buy {
		return ipblock.Step{Action: ipblock.Wait, Reason: reason}
	}
	return extend
}

// restPatience is how long a Service waits for an address in quarantine while the pool could grow instead: long enough for
// agents to report that the address is silent, which spares a purchase.
const restPatience = 30 * time.Second

// insteadOfResting returns the step that serves the Service sooner than a wait for the end of a quarantine does. A requested
// address cannot be bought, and where the pool cannot grow there is nothing but to wait.
func (s scene) insteadOfResting(wait, grow ipblock.Step) ipblock.Step {
	bounded := s.restingSince.Add(restPatience)
	switch {
	case wait.Reason != ipblock.AddressResting, s.intent.requested.IsValid(), grow.Action == ipblock.Refuse:
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

func contains(blocks []ipblock.PoolBlock, address netip.Addr) bool {
	return slices.ContainsFunc(blocks, func(p ipblock.PoolBlock) bool { return !p.Gone && p.Ledger.CIDR.Contains(address) })
}

func poolIDs(blocks []ipblock.PoolBlock) []string {
	ids := make([]string, 0, len(blocks))
	for _, p := range blocks {
		ids = append(ids, p.Ledger.BlockID)
	}
	return ids
}

// stepOf is a placement that gives nothing, as a step.
func stepOf(p ipblock.Placement) ipblock.Step {
	step := ipblock.Step{Action: ipblock.Wait, Reason: p.Reason, Block: p.Block, Address: p.Address, Detail: p.Detail, Until: p.Until}
	if p.Action == ipblock.PlaceRefuse {
		step.Action = ipblock.Refuse
	}
	return step
}
