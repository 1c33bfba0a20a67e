package ipblock

import (
	"net/netip"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

// Action is what a Step asks for.
type Action int

const (
	// Wait asks to look again later; there is nothing to do now.
	Wait Action = iota
	// Buy asks for a new block.
	Buy
	// Assign asks to assign Block to Network.
	Assign
	// Unassign asks to unassign Block from Network, without force.
	Unassign
	// Delete asks to delete Block, which is unassigned.
	Delete
	// Refuse says that nothing may be done; Detail is a sentence for the user.
	Refuse
	// Done says that the goal is reached: for Ensure, Block is assigned and Address is the Service's;
	// for Release, no block is left.
	Done
)

func (a Action) String() string {
	words := []string{"wait", "buy", "assign", "unassign", "delete", "refuse", "done"}
	if a < 0 || int(a) >= len(words) {
		return "unknown action"
	}
	return words[a]
}

// Reason is one word for where a block stands. The same words are the reasons of the Service condition.
type Reason string

// Where a block stands on the way to being assigned, and on the way back.
const (
	// PurchaseDue: no block yet, one must be bought.
	PurchaseDue Reason = "PurchaseDue"
	// PurchaseUnanswered: a block may have been bought; the outcome is not known yet.
	PurchaseUnanswered Reason = "PurchaseUnanswered"
	// BlockCreating: the API is creating the block.
	BlockCreating Reason = "BlockCreating"
	// BlockInvisible: the block exists, for it was just bought or its network or the index of the tags names it, but
	// the API does not show it. A published address keeps working.
	BlockInvisible Reason = "BlockInvisible"
	// AssignmentDue: the block can be assigned now.
	AssignmentDue Reason = "AssignmentDue"
	// BlockAssigning: the API is assigning the block.
	BlockAssigning Reason = "BlockAssigning"
	// BlockAssigned: the block is assigned to the public network.
	BlockAssigned Reason = "BlockAssigned"
	// UnassignmentDue: the block can be unassigned now.
	UnassignmentDue Reason = "UnassignmentDue"
	// BlockUnassigning: the API is unassigning the block.
	BlockUnassigning Reason = "BlockUnassigning"
	// DeletionDue: the block is unassigned and can be deleted now.
	DeletionDue Reason = "DeletionDue"
	// DeletionUnverified: the block cannot be read any more and no network has it, but the list still names it.
	DeletionUnverified Reason = "DeletionUnverified"
	// AddressQuarantined: the only addresses left in the pool were released a moment ago, or the record of who has
	// them was lost; the message says until when the Service waits at the latest.
	AddressQuarantined Reason = "AddressQuarantined"
	// NetworkChanging: the public network is taking in another change, or another block that was bought is about to be
	// assigned to it.
	NetworkChanging Reason = "NetworkChanging"
	// NetworkUnreadable: the network that holds the block cannot be read.
	NetworkUnreadable Reason = "NetworkUnreadable"
	// NoNodeReady: no Node may carry the traffic, so that nothing is bought, and no address published that the status
	// does not have yet. The message names the Nodes, why each may not, and what to do.
	NoNodeReady Reason = "NoNodeReady"
)

// Where a release ends. No Service has these reasons: its conditions are removed then.
const (
	// NoBlock: nothing of the Service is left in the account.
	NoBlock Reason = "noBlock"
	// BlockKept: the block is given up and stays in the account, for it was brought or is retained.
	BlockKept Reason = "blockKept"
)

// Why something is refused. Each needs a person, or a change elsewhere.
const (
	// LocationMissing: neither an option nor the annotation names a location.
	LocationMissing Reason = "LocationMissing"
	// LocationMismatch: the location asked for is not that of the public network or of the block.
	LocationMismatch Reason = "LocationMismatch"
	// NetworkFull: the public network holds ten IPv4 blocks, which is all that it can; the message says who holds them,
	// and until when a block is kept that was bought in vain.
	NetworkFull Reason = "NetworkFull"
	// NetworkNotServed: the public network that the Service names, or has its address in, has no PublicNetwork, or none
	// is in the location that it names; the message names those that are served.
	NetworkNotServed Reason = "NetworkNotServed"
	// NetworkUnusable: the public network cannot be read or is in an error state.
	NetworkUnusable Reason = "NetworkUnusable"
	// TooManyBlocks: the option maxIPBlocks allows no further purchase.
	TooManyBlocks Reason = "TooManyBlocks"
	// TooManyRetained: as many blocks outlive their Services as the options maxRetainedIPBlocks and
	// maxRetainedIPBlocksPerNamespace allow, or are asked to.
	TooManyRetained Reason = "TooManyRetainedBlocks"
	// AddressRefused: the address asked for is in no block that may be used, is reserved, or is in use.
	AddressRefused Reason = "AddressRefused"
	// BlockElsewhere: the block is assigned to something else than the public network; remove it there.
	BlockElsewhere Reason = "BlockElsewhere"
	// BlockLost: the block was deleted outside of the cluster, and no replacement is allowed.
	BlockLost Reason = "BlockLost"
	// BlockRetagged: the tags of the block were changed outside of the cluster, so that it is not touched.
	BlockRetagged Reason = "BlockRetagged"
	// BlockUnusable: the block that the Service has or names is not in the account, is full, too small, or divided into
	// others, or is managed by phoenixNAP; or the IPBlock that the Service names does not exist, or it may not name it.
	BlockUnusable Reason = "BlockUnusable"
	// MemberHoldsIP: a server has an address of the block, so that it cannot be unassigned.
	MemberHoldsIP Reason = "MemberHoldsAddress"
	// StatusNotKnown: the API reports a state of the block that this version does not know.
	StatusNotKnown Reason = "StatusNotKnown"
	// PurchaseRefused: phoenixNAP refused the purchase; the message repeats why.
	PurchaseRefused Reason = "PurchaseRefused"
	// LocationNotOnSale: phoenixNAP sells no blocks at the location of the public network.
	LocationNotOnSale Reason = "LocationNotOnSale"
	// SizeMismatch: the Service has an address from a block of another size than it asks for.
	SizeMismatch Reason = "SizeMismatch"
	// BlockInError: the block is in an error state that only the portal can end.
	BlockInError Reason = "BlockInErrorState"
	// AnnotationsRefused: annotations or spec.loadBalancerIP ask for what cannot be understood.
	AnnotationsRefused Reason = "AnnotationsRefused"
	// AllocationMismatch: the Service asks for an address from elsewhere than where its own is.
	AllocationMismatch Reason = "AllocationMismatch"
	// AddressConflict: the Service cannot have the address of the others with its annotation shared-address: a port is
	// that of another one, or their externalTrafficPolicy does not go together. The message names the other Service.
	AddressConflict Reason = "AddressConflict"
	// LedgerUnreadable: the record of who has which address of the block cannot be read; the message names the
	// IPBlock. A published address keeps working.
	LedgerUnreadable Reason = "LedgerUnreadable"
)

// Step is one decision: at most one change of the account.
type Step struct {
	// Action to take.
	Action Action
	// Reason for it.
	Reason Reason
	// Block that it is about; the zero Block for Buy and where there is none.
	Block network.Block
	// Network is the ID of the public network to change, for Assign and Unassign.
	Network string
	// Address of the Service, for Done of Ensure. A Refuse carries it as well when the block is assigned
	// and only a change that was asked for is refused: the published address goes on working.
	Address netip.Addr
	// SharedAs is the name of the group that may have Address, see Group; empty for one Service.
	SharedAs string
	// Detail is the sentence of a Refuse, and of a Wait for something else than the account.
	Detail string
	// Until is when a Wait ends at the latest; the zero Time when that is not known.
	Until time.Time
}
