package plan

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// LacksLedger reports whether a block from which the Service may get an address has no ledger: it is new, or its
// allocations are lost.
func (obs Observed) LacksLedger() bool {
	return slices.ContainsFunc(obs.Sightings, func(s network.Sighting) bool {
		return (obs.Pool().Owns(s.Block) || s.Block.ID == obs.NamedBlock) && !obs.stored(s.Block.ID)
	})
}

// rebuilt is a ledger of which nothing is stored, with the addresses that other Services have: all at once, because
// those that are left out could be given before their Services ask. Of several Services that claim an address, one has
// it whose status shows it, which authors of Services do not write.
func (obs Observed) rebuilt(l Ledger) Ledger {
	proven := slices.Clone(obs.Services)
	slices.SortStableFunc(proven, func(a, b *corev1.Service) int {
		return cmp.Compare(order(!shows(a, ClaimedAddress(a))), order(!shows(b, ClaimedAddress(b))))
	})
	for _, other := range proven {
		h := HolderOf(other)
		claim := ClaimedAddress(other)
		_, taken := l.Held[claim]
		_, holds := l.AddressOf(h)
		if taken || holds || h.sameName(obs.Holder) || claim == obs.Published || !network.IsHost(l.CIDR, claim) ||
			!contract.WrittenForThis(other) || !obs.credible(other, claim) {
			continue
		}
		l = l.give(claim, h)
	}
	return l
}
