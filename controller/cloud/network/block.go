package network

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// BlockStatus is the state of a block (phoenixNAP IP API, property "status").
type BlockStatus string

// The states that the API documents. Any other word is treated as an error, never as one of these.
const (
	Creating         BlockStatus = "creating"
	Unassigned       BlockStatus = "unassigned"
	Assigning        BlockStatus = "assigning"
	Assigned         BlockStatus = "assigned"
	Unassigning      BlockStatus = "unassigning"
	ErrorAssigning   BlockStatus = "error assigning"
	ErrorUnassigning BlockStatus = "error unassigning"
	// Subnetted: the block is divided into parts, which are blocks of their own; it cannot be assigned itself.
	Subnetted BlockStatus = "subnetted"
)

// InError reports whether the last change of the block failed.
func (s BlockStatus) InError() bool {
	return s == ErrorAssigning || s == ErrorUnassigning
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
	Status BlockStatus
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

// Sold reports whether the block can be one that a client of the API bought: not one that its owner brought, that
// phoenixNAP manages, or that a person made by dividing another. Tags can be on any of these.
func (b Block) Sold() bool { return !b.BringYourOwn && !b.SystemManaged && !b.Part }

// Purposed reports whether the tags of a block say what it is for.
func Purposed(block Block) bool {
	purposes := []string{contract.TagService, contract.TagServiceName, contract.TagPool, contract.TagNodes}
	return slices.ContainsFunc(purposes, func(name string) bool { return block.Tags[name] != "" })
}

// NamespaceOf is the namespace of the Service for which a block was bought. No namespace has an underscore.
func NamespaceOf(b Block) string {
	if service, tagged := b.Tags[contract.TagService]; tagged {
		namespace, _, _ := strings.Cut(service, "_")
		return namespace
	}
	return b.Tags[contract.TagServiceNamespace]
}

// OfCluster reports whether this provider bought the block for the cluster, for whichever purpose.
func OfCluster(b Block, cluster string) bool {
	return cluster != "" && b.Sold() &&
		b.Tags[contract.TagUsage] == contract.TagUsageAuto && b.Tags[contract.TagCluster] == cluster
}

// Brought reports whether Services of the cluster may name a block that people have brought: it is among their IDs. A
// block that this provider bought, for whichever cluster, belongs to the life of something else and may not be named;
// parts of it may, for they were not bought. Nor may one with the tag of another cluster.
func Brought(b Block, cluster string, brought []string) bool {
	if b.ID == "" || b.SystemManaged || b.Tags[contract.TagUsage] == contract.TagUsageAuto && !b.Part {
		return false
	}
	of := b.Tags[contract.TagCluster]
	return (of == "" || of == cluster) && slices.Contains(brought, b.ID)
}

// Retained reports whether the block outlives its Service: it is never deleted.
func Retained(b Block) bool { return b.Tags[contract.TagRetain] == contract.TagTrue }

// RetainTags returns all tags that the block is to carry when it is, or is no longer, to outlive its
// Service, and whether that differs from what it carries.
func RetainTags(b Block, retain bool) (tags map[string]string, differ bool) {
	tags = maps.Collect(maps.All(b.Tags))
	delete(tags, contract.TagRetain)
	if retain {
		tags[contract.TagRetain] = contract.TagTrue
	}
	return tags, retain != Retained(b)
}
