// Package plan decides the life of public IP blocks: pure values, states, addresses and the next step.
package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Status is the state of a block (phoenixNAP IP API, property "status").
type Status string

// The states that the API documents. Any other word is treated as an error, never as one of these.
const (
	Creating         Status = "creating"
	Unassigned       Status = "unassigned"
	Assigning        Status = "assigning"
	Assigned         Status = "assigned"
	Unassigning      Status = "unassigning"
	ErrorAssigning   Status = "error assigning"
	ErrorUnassigning Status = "error unassigning"
	// Subnetted: the block is divided into parts, which are blocks of their own; it cannot be assigned itself.
	Subnetted Status = "subnetted"
)

// InError reports whether the last change of the block failed.
func (s Status) InError() bool { return s == ErrorAssigning || s == ErrorUnassigning }

// rank says how far a block is on its way to the network, the furthest first.
type rank int

const (
	rankAssigned rank = iota
	rankAssigning
	rankUnassigned
	rankCreating
	// rankStuck is a block whose way may take long.
	rankStuck
	// rankUnknown is a block in a state that is not known.
	rankUnknown
)

func progress(s Status) rank {
	switch s {
	case Assigned:
		return rankAssigned
	case Assigning:
		return rankAssigning
	case Unassigned:
		return rankUnassigned
	case Creating:
		return rankCreating
	case Unassigning, ErrorAssigning, ErrorUnassigning:
		return rankStuck
	default:
		return rankUnknown
	}
}

// order ranks what is last behind what is not.
func order(last bool) int {
	if last {
		return 1
	}
	return 0
}

// Block is one IP block of the account.
type Block struct {
	// ID is the API's ID of the block.
	ID string
	// Location is the 3-letter code of the site, such as ASH.
	Location string
	// CIDR is the block itself.
	CIDR netip.Prefix
	// Status is the word of the API, unchanged.
	Status Status
	// ResourceID is the ID of the network or server that the block is assigned to; empty when none.
	ResourceID string
	// ResourceType is "public network" or "server", folded to lower case with spaces; empty when none.
	ResourceType string
	// Description is free text; ours ends with the purchase nonce.
	Description string
	// Tags by name.
	Tags map[string]string
	// BringYourOwn is true when the account's owner brought the block: never ours to delete.
	BringYourOwn bool
	// SystemManaged is true when phoenixNAP manages the block.
	SystemManaged bool
	// ParentID is the ID of the block from which this one is subnetted; empty for none.
	ParentID string
	// Part is true when the parent is a block of the account: a person divided it, and decides about its parts.
	Part bool
	// CreatedOn is when the API says that the block was created; the zero Time when it does not say.
	CreatedOn time.Time
}

// NetworkStatus is the state of a public network (phoenixNAP Networks API, property "status").
type NetworkStatus string

// The states that the API documents.
const (
	NetworkReady    NetworkStatus = "READY"
	NetworkBusy     NetworkStatus = "BUSY"
	NetworkDeleting NetworkStatus = "DELETING"
	NetworkError    NetworkStatus = "ERROR"
)

// NetworkBlock is a block in a network's list.
type NetworkBlock struct {
	// ID is the API's ID of the block.
	ID string
	// CIDR is the block itself.
	CIDR netip.Prefix
}

// Member is a server that belongs to a network.
type Member struct {
	// ServerID is the API's ID of the server.
	ServerID string
	// IPs are the addresses that the membership lists, ranges expanded.
	IPs []netip.Addr
}

// Network is a public network.
type Network struct {
	// ID is the API's ID of the network.
	ID string
	// Name is the user's name for it.
	Name string
	// Location is the 3-letter code of the site.
	Location string
	// VLAN is its VLAN ID.
	VLAN int
	// Status is the word of the API, unchanged.
	Status NetworkStatus
	// Blocks are the blocks assigned to it, or being assigned.
	Blocks []NetworkBlock
	// Members are the servers that belong to it.
	Members []Member
}

// NetworkBlockLimit is how many IPv4 blocks a public network holds (phoenixNAP Networks API, property
// "ipBlocks" of a public network).
const NetworkBlockLimit = 10

// PurchaseSettles is how long after a purchase without an answer nothing is bought. A block that was
// bought shows in the API's lists well within it.
const PurchaseSettles = 60 * time.Second

// Sighting is a block as the API shows it.
type Sighting struct {
	// Block as it was read by ID, or as listed when it could not be read.
	Block Block
	// Hidden is true when the block is named while reading it by ID is refused. Where a network has it, the API only
	// does not show it; else it was deleted a moment ago, or is not the account's any more.
	Hidden bool
}

// View is the input of a decision about the block of one Service.
type View struct {
	// Now is the time of the decision.
	Now time.Time
	// Sightings are the blocks that may belong to the Service; those that do not are not changed.
	Sightings []Sighting
	// Unseen are the IDs of blocks of the cluster that the index of its tag names, though neither the list nor their ID
	// shows them, or that tag of them.
	Unseen []string
	// Networks are the public networks that could be read, by ID: the configured one and those that hold
	// one of the blocks.
	Networks map[string]Network
	// NetworkID is the ID of the configured public network.
	NetworkID string
	// Purchase is the recorded intent to buy; nil when there is none.
	Purchase *contract.Purchase
}

// Wish is what a Service must get.
type Wish struct {
	Desired
	// Published is the address that the Service has already; the zero Addr when it has none.
	Published netip.Addr
	// MaxBlocks is the most blocks that may be bought for the cluster; 0 for no limit but the network's.
	MaxBlocks int
	// Bought is the number of blocks that the cluster has bought and still has.
	Bought int
	// Reserved is the number of blocks of other Services that are about to be assigned to the network.
	Reserved int
	// Coming is true while another block of the cluster is bought and has no place in the network yet. The next is
	// bought when it has: another cluster may take the places meanwhile, and what is bought for them is paid for in
	// vain.
	Coming bool
}

// Owned returns the sightings of blocks that are provably the owner's, each once, ordered by ID.
func (v View) Owned(o Owner) []Sighting {
	owned := slices.DeleteFunc(slices.Clone(v.Sightings), func(s Sighting) bool { return !o.Owns(s.Block) })
	slices.SortFunc(owned, func(a, b Sighting) int { return cmp.Compare(a.Block.ID, b.Block.ID) })
	return slices.CompactFunc(owned, func(a, b Sighting) bool { return a.Block.ID == b.Block.ID })
}

// PurchaseOpen reports whether the last purchase is too young to conclude anything from not seeing a block.
func (v View) PurchaseOpen() bool {
	return v.Purchase != nil && v.Now.Before(v.Purchase.Time.Add(PurchaseSettles))
}

// purchaseSettled reports whether the view shows the block of the last purchase: by the ID that the API
// answered, or by the nonce at the end of the description.
func (v View) purchaseSettled(o Owner) bool {
	if v.Purchase == nil {
		return true
	}
	return slices.ContainsFunc(v.Owned(o), func(s Sighting) bool {
		if v.Purchase.BlockID != "" {
			return s.Block.ID == v.Purchase.BlockID
		}
		return v.Purchase.Nonce != "" && strings.HasSuffix(s.Block.Description, v.Purchase.Nonce)
	})
}

// boughtUntagged returns a block that the recorded purchase or its description names while its tags do not name the
// owner: they are on their way, the API does not show them, or a person removed them.
func (v View) boughtUntagged(o Owner) (Block, bool) {
	untagged, found := find(v.Sightings, func(s Sighting) bool {
		recorded := v.Purchase != nil && v.Purchase.BlockID != "" && s.Block.ID == v.Purchase.BlockID
		return !o.Owns(s.Block) && !s.Hidden && (recorded || o.describedBy(s.Block))
	})
	return untagged.Block, found
}

// Listed reports whether the network's own list names the block.
func (n Network) Listed(blockID string) bool {
	return slices.ContainsFunc(n.Blocks, func(b NetworkBlock) bool { return b.ID == blockID })
}

// IPv4Blocks counts the network's IPv4 blocks, those being assigned included.
func (n Network) IPv4Blocks() int {
	count := 0
	for _, b := range n.Blocks {
		if !b.CIDR.IsValid() || b.CIDR.Addr().Is4() {
			count++
		}
	}
	return count
}

// holder returns the server that holds an address of the block as a member of the network.
func (n Network) holder(cidr netip.Prefix) (serverID string, address netip.Addr, found bool) {
	for _, member := range n.Members {
		for _, ip := range member.IPs {
			if cidr.IsValid() && cidr.Contains(ip) {
				return member.ServerID, ip, true
			}
		}
	}
	return "", netip.Addr{}, false
}

// holds reports whether a member of the network has the address: it answers for it, whatever the status of a Service.
func (n Network) holds(address netip.Addr) bool {
	return slices.ContainsFunc(n.Members, func(m Member) bool { return slices.Contains(m.IPs, address) })
}

func sameLocation(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}

func (w Wish) requestedSource() string { return cmp.Or(w.RequestedSource, "spec.loadBalancerIP") }
