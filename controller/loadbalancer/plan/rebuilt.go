package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// unstored is the ledger of a block of the pool of which none is stored. One that was bought, which its object records,
// or that no network has, has only free addresses. Of another one there was a ledger that is lost.
func (obs Observed) unstored(b network.Block) ipblock.Ledger {
	l := obs.proven(b).Remade(obs.fresh(b), obs.Now)
	_, l.Deleted = find(obs.Records, func(r ipblock.Record) bool { return r.BlockID == b.ID && r.Deleted })
	return l
}

// unstoredBrought is unstored for a brought block, whose ledger is lost if a Service has an address of it all the same.
func (obs Observed) unstoredBrought(b network.Block) ipblock.Ledger {
	l := obs.proven(b)
	l.Brought = true
	return l.Remade(l.Empty() && !obs.anotherPublishes(b.CIDR) && !b.CIDR.Contains(obs.Published), obs.Now)
}

// proven is a ledger of which nothing is stored, with the addresses that other Services have: all at once, because
// those that are left out could be given before their Services ask. Of several Services that claim an address, one has
// it whose status shows it, which authors of Services do not write, and with it those that share it.
func (obs Observed) proven(b network.Block) ipblock.Ledger {
	l := ipblock.NewLedger(b.ID, b.CIDR)
	unshown := func(s *corev1.Service) bool { return !shows(s, ClaimedAddress(s)) }
	shown := func(s *corev1.Service) bool { return !unshown(s) }
	services := slices.Concat(slices.DeleteFunc(slices.Clone(obs.Services), unshown),
		slices.DeleteFunc(slices.Clone(obs.Services), shown))
	before := map[netip.Addr]*corev1.Service{obs.Published: obs.Service}
	for _, other := range services {
		h := HolderOf(other)
		claim := ClaimedAddress(other)
		_, holds := l.AddressOf(h)
		if holds || h.SameName(obs.Holder) || !obs.beside(before[claim], other, claim) ||
			!network.IsHost(l.CIDR, claim) || !contract.WrittenForThis(other) || !obs.credible(other, claim) {
			continue
		}
		group := cmp.Or(l.Groups[claim].Name, obs.groupOf(other))
		if first := before[claim]; group == "" && first != nil {
			group = obs.groupOf(first)
		}
		l = l.NameGroup(claim, group).Give(claim, h)
		before[claim] = other
	}
	return l
}

// beside reports whether a Service has an address, as it claims, though another one has it: the status of both shows
// it, or they have the same group.
func (obs Observed) beside(first, other *corev1.Service, claim netip.Addr) bool {
	if first == nil {
		return true
	}
	a := obs.groupOf(first)
	b := obs.groupOf(other)
	return a != "" && a == b || cmp.Or(a, b) != "" && shows(first, claim) && shows(other, claim)
}

// fresh reports whether no address of a block can be in use.
func (obs Observed) fresh(b network.Block) bool {
	_, found := find(obs.Records, func(r ipblock.Record) bool { return !r.Time.IsZero() && r.Shows(b) })
	return found || b.ResourceID == ""
}

// Rebuilt are the lost ledgers of the pool. They are stored, so that their quarantine ends.
func (obs Observed) Rebuilt() []ipblock.Ledger {
	var all []ipblock.Ledger
	for _, s := range obs.Sightings {
		if obs.Pool().Owns(s.Block) && s.Block.CIDR.IsValid() && !obs.stored(s.Block.ID) && !obs.fresh(s.Block) {
			all = append(all, obs.unstored(s.Block))
		}
	}
	return all
}

// withRebuilt adds the lost ledgers that are not to be stored anyway.
func (obs Observed) withRebuilt(save []ipblock.Ledger) []ipblock.Ledger {
	for _, l := range obs.Rebuilt() {
		if _, found := find(save, func(other ipblock.Ledger) bool { return other.BlockID == l.BlockID }); !found {
			save = append(save, l)
		}
	}
	return save
}

// rebuilding reports whether the ledger of one of the blocks was lost a moment ago. No other block is bought meanwhile:
// what is lost must not cost anything.
func (obs Observed) rebuilding(blocks []ipblock.PoolBlock) bool {
	return slices.ContainsFunc(blocks, func(p ipblock.PoolBlock) bool {
		return !p.Gone && p.Ledger.Rebuilding(obs.Now)
	})
}

// lostLedger is the ledger if it is not stored since it was lost.
func lostLedger(l ipblock.Ledger, now time.Time) []ipblock.Ledger {
	if l.Version != "" || !l.Rebuilding(now) {
		return nil
	}
	return []ipblock.Ledger{l}
}
