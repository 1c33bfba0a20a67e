package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Unswept reports whether there is something to read live.
func (s Observed) Unswept() bool {
	for _, l := range s.Ledgers {
		if !s.KeptElsewhere(l) && (l.Closed || l.Empty() || !s.Listed(l.BlockID) || len(s.LeftBehind(l)) > 0) {
			return true
		}
	}
	return slices.ContainsFunc(s.Blocks, func(block Block) bool {
		_, stored := s.Ledger(block.ID)
		return s.Pool().Owns(block) && !stored && !s.Awaited()
	})
}

// LeftBehind are the holders of a ledger whose Service is gone, or has another UID, as the informer shows.
func (s Observed) LeftBehind(l Ledger) []Holder {
	var left []Holder
	for _, h := range l.Held {
		if h.Namespace == "" {
			continue // a server; not ours to judge
		}
		if !slices.ContainsFunc(s.Services, func(service *corev1.Service) bool {
			return service.Namespace == h.Namespace && service.Name == h.Name
		}) {
			left = append(left, h)
		}
	}
	return left
}

// EmptyPool returns the ledgers of those blocks of the pool of which no Service has an address.
func (s Observed) EmptyPool() []Ledger {
	var empty []Ledger
	for _, i := range s.Sightings {
		if !s.Pool().Owns(i.Block) || !i.Block.CIDR.IsValid() {
			continue
		}
		l, stored := s.Ledger(i.Block.ID)
		if !stored {
			l = NewLedger(i.Block.ID, i.Block.CIDR)
		}
		if l.Empty() {
			empty = append(empty, l)
		}
	}
	return empty
}

// Named reports whether a Service that is served names the block.
func (s Observed) Named(blockID string) bool {
	return slices.ContainsFunc(s.Services, func(service *corev1.Service) bool {
		return contract.WantsAddress(service) && service.Annotations[contract.ServiceIPBlockID] == blockID
	})
}

// Block returns the listed block with the ID; the zero Block when there is none.
func (s Observed) Block(id string) Block {
	for _, block := range s.Blocks {
		if block.ID == id {
			return block
		}
	}
	return Block{}
}

// KeptElsewhere reports whether the ledger is that of the nodes' own addresses, which is not ours to judge.
func (s Observed) KeptElsewhere(l Ledger) bool {
	return l.BlockID == s.Options.NodeBlock || HoldsForServers(l)
}

// HoldsForServers reports whether the ledger is that of the nodes' own addresses.
func HoldsForServers(l Ledger) bool {
	for _, h := range l.Held {
		if h.Namespace == "" {
			return true
		}
	}
	for _, r := range l.Resting {
		if r.Holder.Namespace == "" {
			return true
		}
	}
	return false
}
