package plan

import (
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

// OrderedStep decides about a block that a person has ordered and that was not bought: Buy, Wait or Refuse. One
// purchase for the pool follows the other, and its block counts as every other does.
func (obs Observed) OrderedStep(r ipblock.Record) ipblock.Step {
	view := obs.Account
	view.Purchase = obs.awaitedPurchase()
	step := ipblock.Extend(obs.Pool(), ipblock.Request{Location: obs.Public().Location, Size: r.Size}, view)
	blocks, known := obs.poolBlocks()
	if !known {
		return ipblock.Step{Action: ipblock.Wait, Reason: ipblock.BlockInvisible}
	}
	step = obs.grow(blocks, step)
	if ready, why := obs.NodeReady(); step.Action == ipblock.Buy && !ready {
		return ipblock.Step{Action: ipblock.Wait, Reason: ipblock.NoNodeReady, Detail: why}
	}
	return step
}

// KeptUnassigned are the blocks that are kept while no Service needs them, and that are not assigned yet: the first
// Service is served at once then.
func (obs Observed) KeptUnassigned() []network.Sighting {
	var found []network.Sighting
	for _, s := range obs.Sightings {
		if obs.Pool().Owns(s.Block) && obs.Records.Keeps(s.Block.ID) && s.Block.Status == network.Unassigned {
			found = append(found, s)
		}
	}
	return found
}
