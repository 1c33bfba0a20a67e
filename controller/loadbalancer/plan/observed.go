package plan

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Observed is the input of a decision about one Service.
type Observed struct {
	// Service is the Service itself; an empty one where a decision is about none.
	Service *corev1.Service
	// Owner is whose blocks are the Service's own.
	Owner Owner
	// Holder is the name of the Service in ledgers.
	Holder Holder
	// Desired is what the Service asks for.
	Desired Desired
	// Problem is what is wrong with what is desired.
	Problem error
	// View is what decisions about blocks look at: the blocks that matter to the Service, and the intent to buy for it.
	View
	// PoolPurchase is the recorded intent to buy for the pool. It is read only when the account is read live.
	PoolPurchase *contract.Purchase

	// Live is true when blocks were read by ID and ledgers afresh.
	Live bool
	// AskedAt is when the list of blocks was asked for.
	AskedAt time.Time
	// Blocks are all blocks of the account, as listed.
	Blocks []Block
	// Ours is set once an observation has shown a block of this cluster: the account is the right one even where the
	// public network was deleted.
	Ours bool
	// Unlisted are the blocks of the cluster that the list lacks. They are looked for where they count: before a
	// purchase that --max-ip-blocks bounds.
	Unlisted []Block
	// Options are how the controller is configured.
	Options Options
	// Ledgers are all that are stored: who has which address of shared and brought blocks.
	Ledgers []Ledger
	// Nodes and Services are all of the cluster, from the cache.
	Nodes    []*corev1.Node
	Services []*corev1.Service
	// RestingSince is since when the Service waits for an address in quarantine; now when it does not.
	RestingSince time.Time
	// LeavingSince is since when the Service is known to be on its way out; the zero Time when that is news.
	LeavingSince time.Time
}

// ShowsOurs reports whether a block carries the tag of this cluster.
func (s Observed) ShowsOurs() bool {
	return slices.ContainsFunc(s.Blocks, func(b Block) bool { return OfCluster(b, s.Owner.Cluster) }) ||
		slices.ContainsFunc(s.Sightings, func(i Sighting) bool { return OfCluster(i.Block, s.Owner.Cluster) })
}

// Pool is the owner of the blocks whose addresses Services share.
func (s Observed) Pool() Owner { return PoolOwner(s.Owner.Cluster) }

// WantsPool reports whether the pool matters to the Service: it is to get an address of it, or holds an
// address already.
func (s Observed) WantsPool() bool {
	_, _, holds := s.held()
	return s.Desired.BlockID == "" && (s.Desired.Shared || holds)
}

// Relevant reports whether a block matters to the Service: it is its own, of its pool, named by it, or one
// of which it holds an address.
func (s Observed) Relevant(block Block) bool {
	if s.Owner.Owns(block) || (s.Desired.BlockID != "" && block.ID == s.Desired.BlockID) ||
		(s.WantsPool() && s.Pool().Owns(block)) {
		return true
	}
	l, stored := s.Ledger(block.ID)
	return stored && Knows(l, s.Holder)
}

// Knows reports whether the ledger knows the holder: an address is given to it, or rests after it.
func Knows(l Ledger, h Holder) bool {
	if _, holds := l.AddressOf(h); holds {
		return true
	}
	return l.Closed && slices.ContainsFunc(slices.Collect(maps.Values(l.Resting)), func(r Rest) bool {
		return r.Holder == h
	})
}

// InUse reports whether the block is an assigned one of the pool with an open ledger.
func (s Observed) InUse(block Block) bool {
	l, stored := s.Ledger(block.ID)
	return stored && !l.Closed && block.Status == Assigned && s.Pool().Owns(block) && s.Service.DeletionTimestamp == nil
}

// Owners are those whose blocks may serve the Service.
func (s Observed) Owners() []Owner {
	var owners []Owner
	if s.Owner.Name != "" {
		owners = append(owners, s.Owner)
	}
	if s.WantsPool() {
		owners = append(owners, s.Pool())
	}
	return owners
}

// Listed reports whether the list of blocks names the block. A new block may take some seconds to show.
func (s Observed) Listed(blockID string) bool {
	return slices.ContainsFunc(s.Blocks, func(b Block) bool { return b.ID == blockID })
}

// Sighting returns the block with the ID among those that matter to the Service.
func (s Observed) Sighting(blockID string) (Sighting, bool) {
	return find(s.Sightings, func(i Sighting) bool { return i.Block.ID == blockID })
}

// Ledger returns the ledger of the block with the ID.
func (s Observed) Ledger(blockID string) (Ledger, bool) {
	return find(s.Ledgers, func(l Ledger) bool { return l.BlockID == blockID })
}

// Block returns the listed block with the ID; the zero Block when there is none.
func (s Observed) Block(id string) Block {
	block, _ := find(s.Blocks, func(b Block) bool { return b.ID == id })
	return block
}

// find returns the first that matches.
func find[T any](all []T, matches func(T) bool) (first T, found bool) {
	if i := slices.IndexFunc(all, matches); i >= 0 {
		return all[i], true
	}
	return first, false
}

// held returns the ledger in which the Service has an address; with several the one of the published
// address goes first.
func (s Observed) held() (l Ledger, address netip.Addr, holds bool) {
	claim := ClaimedAddress(s.Service)
	for _, candidate := range s.Ledgers {
		if a, found := candidate.AddressOf(s.Holder); found && (!holds || a == claim) {
			l = candidate
			address = a
			holds = true
		}
	}
	return l, address, holds
}

// Published returns the address that the Service has already: the one that its annotation names, if that was
// written for this Service or a block or ledger of its own confirms it; the zero Addr when there is none.
func (s Observed) Published() netip.Addr {
	claim := ClaimedAddress(s.Service)
	if !claim.IsValid() {
		return netip.Addr{}
	}
	_, held, _ := s.held()
	confirmed := held == claim || slices.ContainsFunc(s.Owned(s.Owner), func(i Sighting) bool {
		return i.Block.CIDR.Contains(claim)
	})
	if contract.WrittenForThis(s.Service) || confirmed {
		return claim
	}
	return netip.Addr{}
}

// HasForeignFields reports whether the Service has annotations of another life that nothing of its own confirms.
func (s Observed) HasForeignFields() bool {
	if contract.WrittenForThis(s.Service) || s.Published().IsValid() {
		return false
	}
	return s.written()
}

// written reports whether the Service has an annotation that only the controller writes, for this Service or another.
func (s Observed) written() bool {
	return slices.ContainsFunc(contract.OwnedServiceAnnotations(), func(name string) bool {
		_, found := s.Service.Annotations[name]
		return found
	})
}

// Abandoned reports whether an address certainly leads to no server of ours: the public network can be read, so the
// credentials are those of the right account, and none of its blocks has the address, or one that has
// the tags of another owner.
func (s Observed) Abandoned(address netip.Addr) bool {
	network, readable := s.Networks[s.NetworkID]
	if !readable || !address.IsValid() {
		return false
	}
	return !slices.ContainsFunc(network.Blocks, func(n NetworkBlock) bool {
		return (!n.CIDR.IsValid() || n.CIDR.Contains(address)) && !s.anothers(n.ID)
	})
}

// anothers reports whether a block has the tags of another Service of the cluster.
func (s Observed) anothers(blockID string) bool {
	block := s.Block(blockID)
	return OfCluster(block, s.Owner.Cluster) && !s.Owner.Owns(block) && purposed(block)
}

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

// KeptElsewhere reports whether the ledger is that of the nodes' own addresses, which is not ours to judge.
func (s Observed) KeptElsewhere(l Ledger) bool {
	return l.BlockID == s.Options.NodeBlock || HoldsForServers(l)
}

// HoldsForServers reports whether the ledger is that of the nodes' own addresses.
func HoldsForServers(l Ledger) bool {
	server := func(h Holder) bool { return h.Namespace == "" }
	return slices.ContainsFunc(slices.Collect(maps.Values(l.Held)), server) ||
		slices.ContainsFunc(slices.Collect(maps.Values(l.Resting)), func(r Rest) bool { return server(r.Holder) })
}
