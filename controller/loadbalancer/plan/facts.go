package plan

import (
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Facts are what an observation shows of the Service, each found once by Complete. The address that it has already is
// Account.Published.
type Facts struct {
	// Own are the blocks of the Service's own.
	Own []network.Sighting
	// Held is the address that a ledger gives to the Service, of several the published one, and HeldIn that ledger. The
	// zero Addr when none does.
	Held   netip.Addr
	HeldIn ipblock.Ledger
	// Pooled is the block of the pool that holds the published address of a Service which neither a ledger nor a
	// block of its own provides with one: its ledger was lost, or cannot be read. A ledger that gives the address to
	// another decides otherwise. The zero Block when there is none.
	Pooled network.Block
	// NamedBlock is the ID of the brought block whose IPBlock the Service names and may name; empty when there is none.
	NamedBlock string
	// NamedShared is the record of the block that Services share whose IPBlock the Service names; the zero Record when
	// there is none. Only that block gives it an address, and none is bought.
	NamedShared ipblock.Record
	// Sharing is true when the Service has its address together with others, or asks for one that it may have so.
	Sharing bool
	// WantsPool reports whether the pool matters to the Service: it is to get an address of it, or holds one already.
	WantsPool bool
	// Kind is where the address of the Service comes from: from where it is published, else from where something is
	// already that the author does not object to, else from where it was asked for.
	Kind Kind
	// Objects are the objects that show something of the Service.
	Objects Objects
	// ForeignFields is true when the Service has annotations written for another Service, which nothing of its own
	// confirms.
	ForeignFields bool
}

// Kind is where the address of a Service comes from, in words.
type Kind string

// The kinds of blocks that addresses come from.
const (
	Dedicated Kind = "an IP block of its own"
	Shared    Kind = "an IP block shared with others"
	Brought   Kind = "an IP block that was brought"
)

// Complete finds the facts. Every decision needs them; they are found again when what is observed or desired changes.
func (obs Observed) Complete() Observed {
	obs = obs.withFacts()
	obs.Ours = obs.Ours || obs.showsOurs()
	obs.Slots = ipblock.Slots{MaxBlocks: obs.Options.MaxBlocks, Bought: obs.bought(), Reserved: obs.reserved(),
		Coming: obs.coming()}
	return obs
}

func (obs Observed) withFacts() Observed {
	claim := ClaimedAddress(obs.Service)
	if obs.Options.LocationOfNetwork && obs.Desired.Location == "" {
		obs.Desired.Location = obs.Public().Location
	}
	obs.Own = obs.Owned(obs.Owner)
	obs.Held = netip.Addr{}
	obs.HeldIn = ipblock.Ledger{}
	for _, candidate := range obs.Ledgers {
		a, found := candidate.AddressOf(obs.Holder)
		if found && !obs.leavesGroup(candidate) && (!obs.Held.IsValid() || a == claim) {
			obs.HeldIn = candidate
			obs.Held = a
		}
	}
	obs.Published = obs.published(claim)
	obs.Pooled = obs.pooled()
	named, _ := obs.BroughtBlocks.Named(obs.Desired.IPBlock, obs.Holder.Namespace)
	obs.NamedBlock = named.BlockID
	obs.NamedShared = obs.Records.SharedAs(obs.Desired.IPBlock)
	obs.Desired.Shared = obs.Desired.Shared || obs.NamedShared.Name != ""
	obs.WantsPool = obs.namesNoBrought() && (obs.Desired.Shared || obs.Held.IsValid() || obs.Pooled.ID != "")
	obs.Kind = obs.kind()
	obs.Sharing = WantsAddress(obs.Service) && (obs.group() != "" || obs.HeldIn.Groups[obs.Held].Name != "")
	obs.Objects = obs.objects()
	obs.ForeignFields = !contract.WrittenForThis(obs.Service) && !obs.Published.IsValid() && obs.written()
	return obs
}

// published is the address that the annotation of the Service names, if that was written for this Service or a block
// or ledger of its own confirms it.
func (obs Observed) published(claim netip.Addr) netip.Addr {
	if claim.IsValid() && (contract.WrittenForThis(obs.Service) || obs.Held == claim || obs.ownHolds(claim)) {
		return claim
	}
	return netip.Addr{}
}

// ownHolds reports whether a block of the Service's own has an address.
func (obs Observed) ownHolds(address netip.Addr) bool {
	return slices.ContainsFunc(obs.Own, func(i network.Sighting) bool { return i.Block.CIDR.Contains(address) })
}

func (obs Observed) pooled() network.Block {
	if !obs.Published.IsValid() || obs.Held.IsValid() || len(obs.Own) > 0 {
		return network.Block{}
	}
	all := slices.Clone(obs.Blocks)
	for _, s := range obs.Sightings {
		all = append(all, s.Block)
	}
	block, _ := find(all, func(b network.Block) bool {
		l, _ := obs.Ledger(b.ID)
		_, given := l.Held[obs.Published]
		return obs.Pool().Owns(b) && b.CIDR.IsValid() && b.CIDR.Contains(obs.Published) && !given
	})
	return block
}

func (obs Observed) kind() Kind {
	switch {
	case obs.Published.IsValid() && obs.ownHolds(obs.Published):
		return Dedicated
	case obs.Held.IsValid() && (obs.Held == obs.Published || !obs.Desired.namesAllocation()):
		return obs.ledgerKind(obs.HeldIn)
	case len(obs.Own) > 0 && !obs.Desired.namesAllocation():
		return Dedicated
	case obs.Pooled.ID != "":
		return Shared
	case !obs.namesNoBrought():
		return Brought
	case obs.Desired.Shared:
		return Shared
	default:
		return Dedicated
	}
}

// showsOurs reports whether a block carries the tag of this cluster.
func (obs Observed) showsOurs() bool {
	ours := func(b network.Block) bool { return network.OfCluster(b, obs.Owner.Cluster) }
	return slices.ContainsFunc(obs.Blocks, ours) ||
		slices.ContainsFunc(obs.Sightings, func(i network.Sighting) bool { return ours(i.Block) })
}
