package plan

import (
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

// namesNoBrought reports whether the Service names no IPBlock, or one of a block that was bought to be shared.
func (obs Observed) namesNoBrought() bool {
	return obs.Desired.IPBlock == "" || obs.NamedShared.Name != ""
}

// inNamed reports whether the address of the Service is of the shared block that it names, or no ledger says of which.
func (obs Observed) inNamed() bool {
	return !obs.Held.IsValid() || obs.HeldIn.BlockID == obs.NamedShared.BlockID
}

// giving are those blocks of the pool that may give the Service an address, or have given it one: all of them if it
// names none.
func (obs Observed) giving(blocks []ipblock.PoolBlock) []ipblock.PoolBlock {
	if obs.NamedShared.Name == "" {
		return blocks
	}
	return slices.DeleteFunc(blocks, func(p ipblock.PoolBlock) bool {
		_, holds := p.Ledger.AddressOf(obs.Holder)
		return p.Ledger.BlockID != obs.NamedShared.BlockID && !holds && !p.Ledger.CIDR.Contains(obs.Published)
	})
}

// further is where the next address comes from when none is free: another block, unless the Service names one.
func (obs Observed) further(blocks []ipblock.PoolBlock, extend ipblock.Step) ipblock.Step {
	named := obs.NamedShared
	if named.Name == "" {
		return obs.grow(blocks, extend)
	}
	name := obs.describeNamed(named.BlockID)
	block, found := find(blocks, func(p ipblock.PoolBlock) bool { return p.Ledger.BlockID == named.BlockID })
	switch {
	case named.BlockID == "" && named.Deleted, found && block.Ledger.Deleted:
		return ipblock.RefuseStep(block.Sighting.Block, ipblock.BlockUnusable,
			"%s is being given up, because its IPBlock is being deleted; name another one", name)
	case named.BlockID == "":
		return ipblock.Step{Action: ipblock.Wait, Reason: ipblock.PurchaseDue}
	case found:
		return ipblock.RefuseStep(block.Sighting.Block, ipblock.BlockUnusable,
			"all addresses of %s are in use; name another one", name)
	case obs.Listed(named.BlockID) && !obs.Pool().Owns(obs.Block(named.BlockID)):
		return ipblock.RefuseStep(obs.Block(named.BlockID), ipblock.BlockUnusable,
			"%s has the tags of something else; name another one", name)
	case obs.Live && !obs.remains(named.BlockID):
		return ipblock.RefuseStep(block.Sighting.Block, ipblock.BlockUnusable,
			"%s is not in the account; name another one, or remove the annotation", name)
	default:
		return ipblock.Step{Action: ipblock.Wait, Reason: ipblock.BlockInvisible}
	}
}
