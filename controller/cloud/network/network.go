// Package network is what the account holds, as values: IP blocks with their tags and owners, and public networks with
// their members.
package network

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Status is the state of a public network (phoenixNAP Networks API, property "status").
type Status string

// The states that the API documents.
const (
	StatusReady    Status = "READY"
	StatusBusy     Status = "BUSY"
	StatusDeleting Status = "DELETING"
	StatusError    Status = "ERROR"
)

// ListedBlock is a block in a network's list.
type ListedBlock struct {
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

// Named is a public network that is served: the name of its PublicNetwork, and the API's ID.
type Named struct{ Name, ID string }

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
	Status Status
	// Blocks are the blocks assigned to it, or being assigned.
	Blocks []ListedBlock
	// Members are the servers that belong to it.
	Members []Member
}

// BlockLimit is how many IPv4 blocks a public network holds (phoenixNAP Networks API, property "ipBlocks" of a public
// network).
const BlockLimit = 10

// Sighting is a block as the API shows it.
type Sighting struct {
	// Block as it was read by ID, or as listed when it could not be read.
	Block Block
	// Hidden is true when the block is named while reading it by ID is refused. Where a network has it, the API only
	// does not show it; else it was deleted a moment ago, or is not the account's any more.
	Hidden bool
}

// Listed reports whether the network's own list names the block.
func (n Network) Listed(blockID string) bool {
	return slices.ContainsFunc(n.Blocks, func(b ListedBlock) bool { return b.ID == blockID })
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

// Holder returns the server that holds an address of the block as a member of the network.
func (n Network) Holder(cidr netip.Prefix) (serverID string, address netip.Addr, found bool) {
	for _, member := range n.Members {
		for _, ip := range member.IPs {
			if cidr.IsValid() && cidr.Contains(ip) {
				return member.ServerID, ip, true
			}
		}
	}
	return "", netip.Addr{}, false
}

// Holds reports whether a member of the network has the address: it answers for it, whatever the status of a Service.
func (n Network) Holds(address netip.Addr) bool {
	return slices.ContainsFunc(n.Members, func(m Member) bool { return slices.Contains(m.IPs, address) })
}

// SameLocation reports whether two codes of a site, as people and the API write them, name the same one.
func SameLocation(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}

// Awaits reports whether the block is on no network yet, as far as it and the network say.
func (n Network) Awaits(b Block) bool {
	return b.ResourceID == "" && (b.Status == Creating || b.Status == Unassigned) && !n.Listed(b.ID)
}

// Lacks reports whether the block is on no network and may come to this one. One that is divided never does.
func (n Network) Lacks(b Block) bool {
	return b.ResourceID == "" && b.Status != Subnetted && !n.Listed(b.ID)
}

// Taken says who holds the slots of a network, as far as the account shows it.
func (n Network) Taken(cluster string, blocks []Block) string {
	counts := map[string]int{}
	for _, slot := range n.Blocks {
		if slot.CIDR.IsValid() && !slot.CIDR.Addr().Is4() {
			continue
		}
		var block Block
		i := slices.IndexFunc(blocks, func(b Block) bool { return b.ID == slot.ID })
		listed := i >= 0
		if listed {
			block = blocks[i]
		}
		other := block.Tags[contract.TagCluster]
		switch {
		case listed && OfCluster(block, cluster):
			counts["this cluster"]++
		case listed && OfCluster(block, other):
			counts["cluster "+other]++
		default:
			counts["others"]++
		}
	}
	var taken []string
	for _, who := range slices.Sorted(maps.Keys(counts)) {
		taken = append(taken, fmt.Sprintf("%d by %s", counts[who], who))
	}
	if most := 5; len(taken) > most { // a condition is no place for a list without end
		taken = append(taken[:most], "and more")
	}
	return strings.Join(taken, ", ")
}

// Unreadable says to a user that a public network cannot be read, and what to check.
func Unreadable(id string) string {
	return fmt.Sprintf("public network %s cannot be read; check its ID, and that the credentials are those of the "+
		"account that owns it", id)
}
