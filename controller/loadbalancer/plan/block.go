// Package plan decides the life of public IP blocks: pure values, states, addresses and the next step.
package plan

import (
	"net/netip"
	"time"
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
)

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
