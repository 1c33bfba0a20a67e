package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Observed is the input of a decision about one Service.
type Observed struct {
	// Service is the Service itself; an empty one where a decision is about none.
	Service *corev1.Service
	// Owner is whose blocks are the Service's own.
	Owner network.Owner
	// Holder is the name of the Service in ledgers.
	Holder ipblock.Holder
	// Desired is what the Service asks for.
	Desired Desired
	// Problem is what is wrong with what is desired.
	Problem error
	// Account is what decisions about blocks look at: the blocks that matter to the Service, and the intent to buy for
	// it.
	ipblock.Account
	// Facts are what this shows of the Service, see Complete.
	Facts
	// Records are what all purchases and their blocks are recorded in.
	Records ipblock.Records
	// Everywhere are the objects of all blocks, and Elsewhere those of the blocks of other public networks.
	Everywhere, Elsewhere ipblock.Records
	// Shared are the objects of all blocks whose addresses several have, whoever created them.
	Shared ipblock.Records
	// PoolPurchase is the recorded intent to buy for the pool; nil when there is none.
	PoolPurchase *ipblock.Purchase

	// Live is true when blocks were read by ID and ledgers afresh.
	Live bool
	// AskedAt is when the list of blocks was asked for.
	AskedAt time.Time
	// Blocks are all blocks of the account, as listed, but those of Elsewhere.
	Blocks []network.Block
	// Ours is set once an observation has shown a block of this cluster: the account is the right one even where the
	// public network was deleted.
	Ours bool
	// Unlisted are the blocks of the cluster that the list lacks. They are looked for where they count: before a
	// purchase.
	Unlisted []network.Block
	// NetworkSlots is what is known of the slots of the network, this observation included.
	NetworkSlots ipblock.NetworkSlots
	// Options are how the controller is configured.
	Options Options
	// Ledgers are all that are stored: who has which address of shared and brought blocks.
	Ledgers []ipblock.Ledger
	// Unreadable are the stored ledgers that cannot be read.
	Unreadable []ipblock.Unreadable
	// Unrecorded are the blocks with a stored ledger that says nothing of addresses.
	Unrecorded []ipblock.Ledger
	// BroughtBlocks are those that people say Services may name, and IPBlocks the names of all IPBlocks.
	BroughtBlocks ipblock.BroughtBlocks
	// BroughtForNodes are the objects of blocks that people say nodes get addresses of.
	BroughtForNodes ipblock.Records
	IPBlocks        []string
	// FutureDated are those of Ledgers that differ from what is stored: there an address was released in the future.
	FutureDated []ipblock.Ledger
	// Nodes are all of the cluster, and Services all that the public network serves, from the cache.
	Nodes    []*corev1.Node
	Services []*corev1.Service
	// QuarantinedSince is since when the Service waits for an address in quarantine; now when it does not.
	QuarantinedSince time.Time
	// LeavingSince is since when the Service is known to be on its way out; the zero Time when that is news.
	LeavingSince time.Time
}

// Known are all blocks of the account that the observation shows.
func (obs Observed) Known() []network.Block { return slices.Concat(obs.Blocks, obs.Unlisted) }

// Pool is the owner of the blocks whose addresses Services share.
func (obs Observed) Pool() network.Owner {
	return network.PoolOwner(obs.Owner.Cluster, cmp.Or(obs.Network.Name, v1beta1.DefaultNetwork))
}

// Owners are those whose blocks may serve the Service.
func (obs Observed) Owners() []network.Owner {
	var owners []network.Owner
	if obs.Owner.Name != "" {
		owners = append(owners, obs.Owner)
	}
	if obs.WantsPool {
		owners = append(owners, obs.Pool())
	}
	return owners
}

// Listed reports whether the list of blocks names the block. A new block may take some seconds to show.
func (obs Observed) Listed(blockID string) bool {
	return slices.ContainsFunc(obs.Blocks, func(b network.Block) bool { return b.ID == blockID })
}

// Sighting returns the block with the ID among those that matter to the Service.
func (obs Observed) Sighting(blockID string) (network.Sighting, bool) {
	return find(obs.Sightings, func(i network.Sighting) bool { return i.Block.ID == blockID })
}

// Ledger returns the ledger of the block with the ID.
func (obs Observed) Ledger(blockID string) (ipblock.Ledger, bool) {
	return find(obs.Ledgers, func(l ipblock.Ledger) bool { return l.BlockID == blockID })
}

// Unread returns the stored ledger of the block with the ID that cannot be read.
func (obs Observed) Unread(blockID string) (ipblock.Unreadable, bool) {
	return find(obs.Unreadable, func(u ipblock.Unreadable) bool { return u.BlockID == blockID })
}

// stored reports whether a ledger of the block is stored, readable or not.
func (obs Observed) stored(blockID string) bool {
	_, readable := obs.Ledger(blockID)
	_, unreadable := obs.Unread(blockID)
	return readable || unreadable
}

// Block returns the listed block with the ID; the zero Block when there is none.
func (obs Observed) Block(id string) network.Block {
	block, _ := find(obs.Blocks, func(b network.Block) bool { return b.ID == id })
	return block
}

// find returns the first that matches.
func find[T any](all []T, matches func(T) bool) (first T, found bool) {
	if i := slices.IndexFunc(all, matches); i >= 0 {
		return all[i], true
	}
	return first, false
}

// written reports whether the Service has an annotation that only the controller writes, for this Service or another.
func (obs Observed) written() bool {
	return slices.ContainsFunc(contract.OwnedServiceAnnotations(), func(name string) bool {
		_, found := obs.Service.Annotations[name]
		return found
	})
}

// abandoned reports whether an address certainly leads to no server of ours: the public network can be read, so the
// credentials are those of the right account, and none of its blocks has the address, or one that has
// the tags of another owner.
func (obs Observed) abandoned(address netip.Addr) bool {
	public, readable := obs.Networks[obs.Network.ID]
	if !readable || !address.IsValid() {
		return false
	}
	return !slices.ContainsFunc(public.Blocks, func(n network.ListedBlock) bool {
		return (!n.CIDR.IsValid() || n.CIDR.Contains(address)) && !obs.anothers(n.ID)
	})
}

// anothers reports whether a block has the tags of another owner, in this cluster or in another one.
func (obs Observed) anothers(blockID string) bool {
	block := obs.Block(blockID)
	bought := network.OfCluster(block, block.Tags[contract.TagCluster])
	return bought && !obs.Owner.Owns(block) && network.Purposed(block)
}

// Unswept reports whether there is something to read live.
func (obs Observed) Unswept() bool {
	if len(obs.FutureDated) > 0 {
		return true
	}
	for _, l := range slices.Concat(obs.Ledgers, obs.Unrecorded) {
		if !obs.KeptElsewhere(l) && (l.Closed || l.Empty() || !obs.Listed(l.BlockID) || len(obs.LeftBehind(l)) > 0) {
			return true
		}
	}
	_, ordered := obs.Records.Ordered()
	if ordered || len(obs.StaleRecords()) > 0 || len(obs.Records.Unprotected()) > 0 {
		return true
	}
	return slices.ContainsFunc(obs.Blocks, func(block network.Block) bool {
		if obs.Records.Keeps(block.ID) && obs.Public().Awaits(block) {
			return true
		}
		return obs.Pool().Owns(block) && !obs.stored(block.ID) && !obs.Awaited()
	})
}

// LeftBehind are the holders of a ledger for which no Service keeps its address, as the informer shows.
func (obs Observed) LeftBehind(l ipblock.Ledger) []ipblock.Holder {
	var left []ipblock.Holder
	for address := range l.Held {
		left = append(left, slices.DeleteFunc(l.Holders(address), func(h ipblock.Holder) bool {
			server := h.Namespace == "" // not ours to judge
			return server || slices.ContainsFunc(obs.Services,
				func(service *corev1.Service) bool { return KeepsAddress(service, h) })
		})...)
	}
	return left
}

// KeepsAddress reports whether a Service keeps what a ledger gives to the holder: it has the name and is ours, and so
// takes over what its predecessor had; or it is the holder itself and has not released it yet.
func KeepsAddress(service *corev1.Service, h ipblock.Holder) bool {
	switch {
	case service.Namespace != h.Namespace || service.Name != h.Name:
		return false
	case WantsAddress(service):
		return true
	default:
		return (h.UID == "" || h.UID == string(service.UID)) && NeedsBlock(service)
	}
}

// EmptyPool returns the ledgers of those blocks of the pool of which no Service has an address.
func (obs Observed) EmptyPool() []ipblock.Ledger {
	var empty []ipblock.Ledger
	for _, i := range obs.Sightings {
		_, unreadable := obs.Unread(i.Block.ID)
		if !obs.Pool().Owns(i.Block) || !i.Block.CIDR.IsValid() || unreadable {
			continue
		}
		l, stored := obs.Ledger(i.Block.ID)
		if !stored {
			l = obs.unstored(i.Block)
		}
		if l.Empty() && !l.Rebuilding(obs.Now) && !obs.kept(l) {
			empty = append(empty, l)
		}
	}
	return empty
}

// kept reports whether a person or a Service keeps an empty block of the pool.
func (obs Observed) kept(l ipblock.Ledger) bool {
	return obs.Records.Keeps(l.BlockID) || obs.Named(l.BlockID) && !l.Deleted || obs.anotherPublishes(l.CIDR)
}

// anotherPublishes reports whether another Service that is served has an address of the block: its ledger may be lost,
// and with it everything else that said so. What a Service only claims counts as in credible.
func (obs Observed) anotherPublishes(cidr netip.Prefix) bool {
	return cidr.IsValid() && slices.ContainsFunc(obs.Services, func(other *corev1.Service) bool {
		if other.UID == obs.Service.UID || !WantsAddress(other) {
			return false
		}
		return slices.ContainsFunc(publishedBy(other), func(a netip.Addr) bool {
			return cidr.Contains(a) && obs.credible(other, a)
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

// Named reports whether a Service that is served names the block and may do so.
func (obs Observed) Named(blockID string) bool {
	return slices.ContainsFunc(obs.Services, func(service *corev1.Service) bool {
		brought, _ := obs.BroughtBlocks.Named(namedBy(service), service.Namespace)
		shared := obs.Records.SharedAs(namedBy(service))
		return WantsAddress(service) && (brought.BlockID == blockID || shared.BlockID == blockID)
	})
}

// KeptElsewhere reports whether the ledger is that of the nodes' own addresses, which is not ours to judge, unless a
// person has deleted it and no server has, or had a moment ago, an address of it.
func (obs Observed) KeptElsewhere(l ipblock.Ledger) bool {
	if l.Deleted && l.Spent(nil, obs.Now) {
		return false
	}
	return l.Nodes && !l.Brought || obs.BroughtForNodes.Names(l.BlockID) || l.HoldsForServers()
}
