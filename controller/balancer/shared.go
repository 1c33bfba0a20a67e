package balancer

import (
	"net/netip"
	"slices"

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
	placement := ipblock.Place(s.holder, s.placeWish(blocks), blocks, extend.Action == ipblock.Wait)
	switch placement.Action {
	case ipblock.PlaceBuy:
		v.step = extend
	case ipblock.PlaceWait, ipblock.PlaceRefuse:
		v.step = stepOf(placement)
		if placement.Reason == ipblock.BlockLost {
			return b.lost(s, published)
		}
	case ipblock.PlaceHere:
		sighting, _ := s.sighting(placement.Block.ID)
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

// placeWish is what the Service is to get of the pool or of a brought block. An address that is published and
// that no ledger knows, because its ledger was lost, is asked for again where nobody else has it.
func (s scene) placeWish(blocks []ipblock.PoolBlock) ipblock.PlaceWish {
	w := ipblock.PlaceWish{
		Published: s.published(), Requested: s.intent.requested, RequestedSource: s.intent.requestedSource, Replace: s.intent.replace,
		Silent: func(a netip.Addr) bool { return silent(s.nodes, a) }, Barred: s.barred, Now: s.now,
	}
	_, _, holds := s.held()
	if !holds && !w.Requested.IsValid() && ownLife(s.service) && s.recoverable(blocks, w.Published) {
		w.Requested, w.RequestedSource = w.Published, "annotation "+contract.ServiceIPAddress
	}
	return w
}

// recoverable tells whether the address could be given to the Service again.
func (s scene) recoverable(blocks []ipblock.PoolBlock, address netip.Addr) bool {
	if !address.IsValid() || s.barred(address) {
		return false
	}
	return slices.ContainsFunc(blocks, func(p ipblock.PoolBlock) bool {
		_, held := p.Ledger.Held[address]
		_, rests := p.Ledger.Resting[address]
		return ipblock.IsHost(p.Sighting.Block.CIDR, address) && !p.Gone && !held && !rests
	})
}

// barred tells whether an address is in use in ways that no ledger knows: by a member of the network, or
// by another Service that was told it.
func (s scene) barred(address netip.Addr) bool {
	for _, member := range s.networks[s.networkID].Members {
		if slices.Contains(member.IPs, address) {
			return true
		}
	}
	return slices.ContainsFunc(s.services, func(other *corev1.Service) bool {
		return other.UID != s.service.UID && ownLife(other) && claimed(other) == address &&
			!(other.Namespace == s.service.Namespace && other.Name == s.service.Name)
	})
}

// poolBlocks returns the blocks of the pool with their ledgers, and those that are gone and in which the
// Service holds an address. known is false when a look by ID must tell which that is.
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
		if _, holds := l.AddressOf(s.holder); !holds || s.sees(l.BlockID) {
			continue
		}
		if !s.close {
			return nil, false
		}
		blocks = append(blocks, ipblock.PoolBlock{Gone: true, Ledger: l})
	}
	return blocks, true
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
	step := ipblock.Step{Action: ipblock.Wait, Reason: p.Reason, Block: p.Block, Address: p.Address, Detail: p.Detail}
	if p.Action == ipblock.PlaceRefuse {
		step.Action = ipblock.Refuse
	}
	return step
}
