package reconcile

import (
	"cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// decideBrought decides about an address of a block that the user brought. It is never deleted and its
// tags are never touched; several Services may share it.
func decideBrought(s observed) servicePlan {
	held, _, _ := s.held()
	id := cmp.Or(s.desired.blockID, held.BlockID)
	sighting, seen := s.sighting(id)
	switch {
	case !seen && !s.live:
		return servicePlan{step: plan.Step{Action: plan.Wait, Reason: plan.BlockInvisible}}
	case !seen && s.published().IsValid():
		return refusedPlan(plan.BlockLost, "IP block %s of address %s is gone from the account; name another one in annotation %s and set %s to \"true\"",
			id, s.published(), contract.ServiceIPBlockID, contract.ServiceIPReplace)
	case !seen || sighting.Hidden:
		return refusedPlan(plan.BlockUnusable, "IP block %s, which annotation %s names, is not in the account", id, contract.ServiceIPBlockID)
	case !plan.Brought(sighting.Block, s.owner.Cluster, s.options.ownBlocks):
		return refusedPlan(plan.BlockUnusable, "IP block %s may not be named in annotation %s: give it the tag %s=%s, or list it in the option ownIPBlocks",
			id, contract.ServiceIPBlockID, contract.TagCluster, s.owner.Cluster)
	}
	l, stored := s.ledger(id)
	if !stored {
		l = plan.NewLedger(id, sighting.Block.CIDR)
	}
	return placeBrought(s, sighting, l)
}

func placeBrought(s observed, sighting plan.Sighting, l plan.Ledger) servicePlan {
	blocks := []plan.PoolBlock{{Sighting: sighting, Ledger: l}}
	step := plan.EnsureBrought(sighting, l.AssignedHere, s.view(nil))
	if step.Action == plan.Refuse {
		return servicePlan{step: step}
	}
	placement := plan.Place(s.holder, s.placeWish(), blocks, false)
	v := servicePlan{step: step}
	switch placement.Action {
	case plan.PlaceBuy:
		return refusedPlan(plan.BlockUnusable, "all addresses of IP block %s (%s), which annotation %s names, are in use; name another block",
			l.BlockID, l.CIDR, contract.ServiceIPBlockID)
	case plan.PlaceHere:
		v.step.Address, v.save, v.reused = placement.Address, placement.Save, placement.Reused
	case plan.PlaceWait, plan.PlaceRefuse:
		return servicePlan{step: stepOf(placement)}
	default:
		return refusedPlan(reasonAnnotations, "the block answers %s", placement.Action)
	}
	if v.step.Action == plan.Assign && !l.AssignedHere {
		v.save = assignedHere(v.save, l)
	}
	v.save = append(v.save, s.leave(l.BlockID)...)
	if v.step.Action == plan.Done {
		v.surplus = actionable(plan.Release(s.owner, s.view(s.purchase)))
	}
	return v
}

// assignedHere records that the controller is about to assign the block, so that it is the one to unassign it.
func assignedHere(save []plan.Ledger, l plan.Ledger) []plan.Ledger {
	for i := range save {
		if save[i].BlockID == l.BlockID {
			save[i].AssignedHere = true
			return save
		}
	}
	l.AssignedHere = true
	return append(save, l)
}
