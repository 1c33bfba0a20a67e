package balancer

import (
	"cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// decideBrought decides about an address of a block that the user brought. It is never deleted and its
// tags are never touched; several Services may share it.
func (b *Balancer) decideBrought(s scene) verdict {
	held, _, _ := s.held()
	id := cmp.Or(s.intent.blockID, held.BlockID)
	sighting, seen := s.sighting(id)
	switch {
	case !seen && !s.close:
		return verdict{step: ipblock.Step{Action: ipblock.Wait, Reason: ipblock.BlockInvisible}}
	case !seen && s.published().IsValid():
		return refused(ipblock.BlockLost, "IP block %s of address %s is gone from the account; name another one in annotation %s and set %s to \"true\"",
			id, s.published(), contract.ServiceIPBlockID, contract.ServiceIPReplace)
	case !seen || sighting.Hidden:
		return refused(ipblock.BlockUnusable, "IP block %s, which annotation %s names, is not in the account", id, contract.ServiceIPBlockID)
	case !ipblock.Brought(sighting.Block, s.owner.Cluster, b.config.OwnBlocks):
		return refused(ipblock.BlockUnusable, "IP block %s may not be named in annotation %s: give it the tag %s=%s, or list it in the option ownIPBlocks",
			id, contract.ServiceIPBlockID, contract.TagCluster, s.owner.Cluster)
	}
	l, stored := s.ledger(id)
	if !stored {
		l = ipblock.NewLedger(id, sighting.Block.CIDR)
	}
	return b.placeBrought(s, sighting, l)
}

func (b *Balancer) placeBrought(s scene, sighting ipblock.Sighting, l ipblock.Ledger) verdict {
	blocks := []ipblock.PoolBlock{{Sighting: sighting, Ledger: l}}
	step := ipblock.EnsureBrought(sighting, l.AssignedHere, s.view(nil))
	if step.Action == ipblock.Refuse {
		return verdict{step: step}
	}
	placement := ipblock.Place(s.holder, s.placeWish(), blocks, false)
	v := verdict{step: step}
	switch placement.Action {
	case ipblock.PlaceBuy:
		return refused(ipblock.BlockUnusable, "all addresses of IP block %s (%s), which annotation %s names, are in use; name another block",
			l.BlockID, l.CIDR, contract.ServiceIPBlockID)
	case ipblock.PlaceHere:
		v.step.Address, v.save, v.reused = placement.Address, placement.Save, placement.Reused
	case ipblock.PlaceWait, ipblock.PlaceRefuse:
		return verdict{step: stepOf(placement)}
	default:
		return refused(reasonAnnotations, "the block answers %s", placement.Action)
	}
	if v.step.Action == ipblock.Assign && !l.AssignedHere {
		v.save = b.assignedHere(v.save, l)
	}
	v.save = append(v.save, s.leave(l.BlockID)...)
	if v.step.Action == ipblock.Done {
		v.surplus = actionable(ipblock.Release(s.owner, s.view(s.purchase)))
	}
	return v
}

// assignedHere records that the controller is about to assign the block, so that it is the one to unassign it.
func (b *Balancer) assignedHere(save []ipblock.Ledger, l ipblock.Ledger) []ipblock.Ledger {
	for i := range save {
		if save[i].BlockID == l.BlockID {
			save[i].AssignedHere = true
			return save
		}
	}
	l.AssignedHere = true
	return append(save, l)
}
