package plan

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Observed is the input of a decision about one Service.
type Observed struct {
	// Service is the Service itself; an empty one where a decision is about none.
	Service *corev1.Service
	// Owner is whose blocks are the Service's own.
	Owner network.Owner
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
	// PoolProblem is why the recorded intent to buy for the pool cannot be read; nil when it can.
	PoolProblem error

	// Live is true when blocks were read by ID and ledgers afresh.
	Live bool
	// AskedAt is when the list of blocks was asked for.
	AskedAt time.Time
	// Blocks are all blocks of the account, as listed.
	Blocks []network.Block
	// Ours is set once an observation has shown a block of this cluster: the account is the right one even where the
	// public network was deleted.
	Ours bool
	// Unlisted are the blocks of the cluster that the list lacks. They are looked for where they count: before a
	// purchase.
	Unlisted []network.Block
	// Places is what is known of the places in the network, this observation included.
	Places Places
	// Options are how the controller is configured.
	Options Options
	// Ledgers are all that are stored: who has which address of shared and brought blocks.
	Ledgers []Ledger
	// Unreadable are the stored ledgers that cannot be read.
	Unreadable []Unreadable
	// Misdated are those of Ledgers that differ from what is stored: there an address rests from the future on.
	Misdated []Ledger
	// Nodes and Services are all of the cluster, from the cache.
	Nodes    []*corev1.Node
	Services []*corev1.Service
	// RestingSince is since when the Service waits for an address in quarantine; now when it does not.
	RestingSince time.Time
	// LeavingSince is since when the Service is known to be on its way out; the zero Time when that is news.
	LeavingSince time.Time
}

// Known are all blocks of the account that the observation shows.
func (o Observed) Known() []network.Block { return slices.Concat(o.Blocks, o.Unlisted) }

// ShowsOurs reports whether a block carries the tag of this cluster.
func (o Observed) ShowsOurs() bool {
	return slices.ContainsFunc(o.Blocks, func(b network.Block) bool { return network.OfCluster(b, o.Owner.Cluster) }) ||
		slices.ContainsFunc(o.Sightings, func(i network.Sighting) bool { return network.OfCluster(i.Block, o.Owner.Cluster) })
}

// Pool is the owner of the blocks whose addresses Services share.
func (o Observed) Pool() network.Owner { return network.PoolOwner(o.Owner.Cluster) }

// WantsPool reports whether the pool matters to the Service: it is to get an address of it, or holds an
// address already.
func (o Observed) WantsPool() bool {
	_, _, holds := o.held()
	_, published := o.inPool()
	return o.Desired.BlockID == "" && (o.Desired.Shared || holds || published)
}

// Relevant reports whether a block matters to the Service: it is its own, of its pool, named by it, or one of which it
// holds an address; its own also where only the description says so.
func (o Observed) Relevant(block network.Block) bool {
	for _, owner := range o.Owners() {
		if owner.DescribedBy(block) {
			return true
		}
	}
	if o.Owner.Owns(block) || (o.Desired.BlockID != "" && block.ID == o.Desired.BlockID) ||
		(o.WantsPool() && o.Pool().Owns(block)) {
		return true
	}
	l, stored := o.Ledger(block.ID)
	return stored && Knows(l, o.Holder)
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
func (o Observed) InUse(block network.Block) bool {
	l, stored := o.Ledger(block.ID)
	return stored && !l.Closed && block.Status == network.Assigned && o.Pool().Owns(block) &&
		o.Service.DeletionTimestamp == nil
}

// Owners are those whose blocks may serve the Service.
func (o Observed) Owners() []network.Owner {
	var owners []network.Owner
	if o.Owner.Name != "" {
		owners = append(owners, o.Owner)
	}
	if o.WantsPool() {
		owners = append(owners, o.Pool())
	}
	return owners
}

// NeedsNoIndex reports whether there can be nothing to look for beyond what is seen. The index of the tag of the
// cluster is needed as long as a block is missing that the Service may have, or one that is about to take a place where
// a purchase may follow; and where retained blocks are counted.
func (o Observed) NeedsNoIndex() bool {
	own := o.Owned(o.Owner)
	retained := slices.ContainsFunc(own, func(s network.Sighting) bool { return network.Retained(s.Block) })
	if contract.WantsAddress(o.Service) && len(own) == 0 || o.Desired.Retain && !retained {
		return false
	}
	return !slices.ContainsFunc(o.Owners(), func(owner network.Owner) bool {
		return !slices.ContainsFunc(o.Sightings, func(i network.Sighting) bool {
			return owner.Owns(i.Block) && (owner == o.Owner || i.Block.Status != network.Assigned)
		})
	})
}

// Listed reports whether the list of blocks names the block. A new block may take some seconds to show.
func (o Observed) Listed(blockID string) bool {
	return slices.ContainsFunc(o.Blocks, func(b network.Block) bool { return b.ID == blockID })
}

// Sighting returns the block with the ID among those that matter to the Service.
func (o Observed) Sighting(blockID string) (network.Sighting, bool) {
	return find(o.Sightings, func(i network.Sighting) bool { return i.Block.ID == blockID })
}

// Ledger returns the ledger of the block with the ID.
func (o Observed) Ledger(blockID string) (Ledger, bool) {
	return find(o.Ledgers, func(l Ledger) bool { return l.BlockID == blockID })
}

// Unread returns the stored ledger of the block with the ID that cannot be read.
func (o Observed) Unread(blockID string) (Unreadable, bool) {
	return find(o.Unreadable, func(u Unreadable) bool { return u.BlockID == blockID })
}

// stored reports whether a ledger of the block is stored, readable or not.
func (o Observed) stored(blockID string) bool {
	_, readable := o.Ledger(blockID)
	_, unreadable := o.Unread(blockID)
	return readable || unreadable
}

// Allocated are the IDs of the blocks of which a ledger is to be expected: those of the pool, those that were brought,
// and the one that the Service names.
func (o Observed) Allocated() []string {
	var ids []string
	if named := o.Service.Annotations[contract.ServiceIPBlockID]; o.Listed(named) {
		ids = append(ids, named)
	}
	for _, block := range o.Blocks {
		if o.Pool().Owns(block) || network.Brought(block, o.Owner.Cluster, o.Options.OwnBlocks) {
			ids = append(ids, block.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Block returns the listed block with the ID; the zero Block when there is none.
func (o Observed) Block(id string) network.Block {
	block, _ := find(o.Blocks, func(b network.Block) bool { return b.ID == id })
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
func (o Observed) held() (l Ledger, address netip.Addr, holds bool) {
	claim := ClaimedAddress(o.Service)
	for _, candidate := range o.Ledgers {
		if a, found := candidate.AddressOf(o.Holder); found && (!holds || a == claim) {
			l = candidate
			address = a
			holds = true
		}
	}
	return l, address, holds
}

// inPool returns the listed block of the pool that holds the published address of a Service which neither a ledger nor
// a block of its own provides with one: its ledger was lost, or cannot be read. A ledger that gives the address to
// another decides otherwise.
func (o Observed) inPool() (network.Block, bool) {
	published := o.Published()
	_, _, holds := o.held()
	if !published.IsValid() || holds || len(o.Owned(o.Owner)) > 0 {
		return network.Block{}, false
	}
	return find(o.Blocks, func(b network.Block) bool {
		l, _ := o.Ledger(b.ID)
		_, given := l.Held[published]
		return o.Pool().Owns(b) && b.CIDR.IsValid() && b.CIDR.Contains(published) && !given
	})
}

// Published returns the address that the Service has already: the one that its annotation names, if that was
// written for this Service or a block or ledger of its own confirms it; the zero Addr when there is none.
func (o Observed) Published() netip.Addr {
	claim := ClaimedAddress(o.Service)
	if !claim.IsValid() {
		return netip.Addr{}
	}
	_, held, _ := o.held()
	confirmed := held == claim || slices.ContainsFunc(o.Owned(o.Owner), func(i network.Sighting) bool {
		return i.Block.CIDR.Contains(claim)
	})
	if contract.WrittenForThis(o.Service) || confirmed {
		return claim
	}
	return netip.Addr{}
}

// HasForeignFields reports whether the Service has annotations written for another Service, which nothing of its own
// confirms.
func (o Observed) HasForeignFields() bool {
	if contract.WrittenForThis(o.Service) || o.Published().IsValid() {
		return false
	}
	return o.written()
}

// written reports whether the Service has an annotation that only the controller writes, for this Service or another.
func (o Observed) written() bool {
	return slices.ContainsFunc(contract.OwnedServiceAnnotations(), func(name string) bool {
		_, found := o.Service.Annotations[name]
		return found
	})
}

// Abandoned reports whether an address certainly leads to no server of ours: the public network can be read, so the
// credentials are those of the right account, and none of its blocks has the address, or one that has
// the tags of another owner.
func (o Observed) Abandoned(address netip.Addr) bool {
	public, readable := o.Networks[o.NetworkID]
	if !readable || !address.IsValid() {
		return false
	}
	return !slices.ContainsFunc(public.Blocks, func(n network.ListedBlock) bool {
		return (!n.CIDR.IsValid() || n.CIDR.Contains(address)) && !o.anothers(n.ID)
	})
}

// anothers reports whether a block has the tags of another Service of the cluster.
func (o Observed) anothers(blockID string) bool {
	block := o.Block(blockID)
	return network.OfCluster(block, o.Owner.Cluster) && !o.Owner.Owns(block) && network.Purposed(block)
}

// Unswept reports whether there is something to read live.
func (o Observed) Unswept() bool {
	if len(o.Misdated) > 0 {
		return true
	}
	for _, l := range o.Ledgers {
		if !o.KeptElsewhere(l) && (l.Closed || l.Empty() || !o.Listed(l.BlockID) || len(o.LeftBehind(l)) > 0) {
			return true
		}
	}
	return slices.ContainsFunc(o.Blocks, func(block network.Block) bool {
		return o.Pool().Owns(block) && !o.stored(block.ID) && !o.Awaited()
	})
}

// LeftBehind are the holders of a ledger for which no Service keeps its address, as the informer shows.
func (o Observed) LeftBehind(l Ledger) []Holder {
	var left []Holder
	for _, r := range l.Held {
		if r.Namespace == "" {
			continue // a server; not ours to judge
		}
		if !slices.ContainsFunc(o.Services, func(service *corev1.Service) bool { return KeepsAddress(service, r) }) {
			left = append(left, r)
		}
	}
	return left
}

// KeepsAddress reports whether a Service keeps what a ledger gives to the holder: it bears the name and is ours, and so
// takes over what its predecessor had; or it is the holder itself and has not released it yet.
func KeepsAddress(service *corev1.Service, h Holder) bool {
	switch {
	case service.Namespace != h.Namespace || service.Name != h.Name:
		return false
	case contract.WantsAddress(service):
		return true
	default:
		return (h.UID == "" || h.UID == string(service.UID)) && contract.NeedsBlock(service)
	}
}

// EmptyPool returns the ledgers of those blocks of the pool of which no Service has an address.
func (o Observed) EmptyPool() []Ledger {
	var empty []Ledger
	for _, i := range o.Sightings {
		_, unreadable := o.Unread(i.Block.ID)
		if !o.Pool().Owns(i.Block) || !i.Block.CIDR.IsValid() || unreadable {
			continue
		}
		l, stored := o.Ledger(i.Block.ID)
		if !stored {
			l = NewLedger(i.Block.ID, i.Block.CIDR)
		}
		if l.Empty() && !o.published(i.Block.CIDR) {
			empty = append(empty, l)
		}
	}
	return empty
}

// published reports whether another Service that is served has an address of the block: its ledger may be lost, and
// with it everything else that said so. What a Service only claims counts as in credible.
func (o Observed) published(cidr netip.Prefix) bool {
	return cidr.IsValid() && slices.ContainsFunc(o.Services, func(other *corev1.Service) bool {
		if other.UID == o.Service.UID || !contract.WantsAddress(other) {
			return false
		}
		return slices.ContainsFunc(publishedBy(other), func(a netip.Addr) bool {
			return cidr.Contains(a) && o.credible(other, a)
		})
	})
}

// publishedBy are the addresses of a Service: the one that the controller wrote for it, and those in its status.
func publishedBy(service *corev1.Service) []netip.Addr {
	var addresses []netip.Addr
	if claim := ClaimedAddress(service); contract.WrittenForThis(service) && claim.IsValid() {
		addresses = append(addresses, claim)
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if address, err := netip.ParseAddr(ingress.IP); err == nil {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}

// Named reports whether a Service that is served names the block.
func (o Observed) Named(blockID string) bool {
	return slices.ContainsFunc(o.Services, func(service *corev1.Service) bool {
		return contract.WantsAddress(service) && service.Annotations[contract.ServiceIPBlockID] == blockID
	})
}

// KeptElsewhere reports whether the ledger is that of the nodes' own addresses, which is not ours to judge.
func (o Observed) KeptElsewhere(l Ledger) bool {
	return l.BlockID == o.Options.NodeBlock || HoldsForServers(l)
}

// HoldsForServers reports whether the ledger is that of the nodes' own addresses.
func HoldsForServers(l Ledger) bool {
	server := func(h Holder) bool { return h.Namespace == "" }
	return slices.ContainsFunc(slices.Collect(maps.Values(l.Held)), server) ||
		slices.ContainsFunc(slices.Collect(maps.Values(l.Resting)), func(r Rest) bool { return server(r.Holder) })
}
