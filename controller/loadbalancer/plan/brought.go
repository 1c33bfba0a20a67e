package plan

import (
	"cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

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
	step := EnsureBrought(sighting, l.AssignedHere, s.View(nil))
	if step.Action == Refuse {
		return ServicePlan{Step: step}
	}
	placement := Place(s.Holder, s.placeWish(), blocks, false)
	v := ServicePlan{Step: step}
	switch placement.Action {
	case PlaceBuy:
		return refusedPlan(BlockUnusable,
			"all addresses of IP block %s (%s), which annotation %s names, are in use; name another block",
			l.BlockID, l.CIDR, contract.ServiceIPBlockID)
	case PlaceHere:
		v.Step.Address = placement.Address
		v.Save = placement.Save
		v.Reused = placement.Reused
	case PlaceWait, PlaceRefuse:
		return ServicePlan{Step: stepOf(placement)}
	default:
		return refusedPlan(AnnotationsRefused, "the block answers %s", placement.Action)
	}
	if v.Step.Action == Assign && !l.AssignedHere {
		v.Save = assignedHere(v.Save, l)
	}
	v.Save = append(v.Save, s.leave(l.BlockID)...)
	if v.Step.Action == Done {
		v.Surplus = actionable(Release(s.Owner, s.View(s.Purchase)))
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
