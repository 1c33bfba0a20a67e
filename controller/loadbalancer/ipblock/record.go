package ipblock

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Purchase is the intent to buy a block. It is recorded by compare-and-swap before the block is bought, because the API
// has no idempotency key: a later reconciliation finds the block by the nonce in its description, or knows how long to
// wait before buying again.
type Purchase struct {
	// Nonce is at the end of the description of the block.
	Nonce string
	// Time of the intent; the zero Time of a block that was found without one.
	Time time.Time
	// BlockID is the ID in the API's answer; empty until it is known.
	BlockID string
}

// Record is what an IPBlock records: the intent to buy a block, and which block that became.
type Record struct {
	Purchase
	// Name of the object and its Version, which is empty while there is no object, and its UID.
	Name, Version, UID string
	// Network is the name of the public network that the block is for.
	Network string
	// Service is the Service whose block this is; the zero Holder for a block of the pool or of the nodes.
	Service Holder
	// Nodes is true for a block from which nodes get addresses.
	Nodes bool
	// Ordered is true for an object with which a person orders a block that Services share, and Size its size. The
	// block stays until the object is deleted.
	Ordered bool
	Size    Size
	// Kept is true for a block that stays while no Service has an address of it.
	Kept bool
	// Namespaces are those that the object lists, whose Services may name the block; none for all.
	Namespaces []string
	// Created is when the object was created.
	Created time.Time
	// Allocated is true while an address of the block is allocated, Holders are the Services that have one, and Groups
	// the names of those that have one together.
	Allocated bool
	Holders   []Holder
	Groups    []string
	// Report is what the object shows.
	Report Report
	// Deleted is true once a person has deleted the object: it stays until its block is released, which is done as soon
	// as nothing uses that.
	Deleted bool
	// Unprotected is true while the object has no finalizer, so that its deletion would remove it at once.
	Unprotected bool
}

// Report is what an IPBlock shows of its block, for people. One decision reads it: an orphan that waited for a person
// waits on after a restart.
type Report struct {
	CIDR     netip.Prefix
	Location string
	// Address that the Service has; the zero Addr while it has none.
	Address netip.Addr
	// Assigned, Ready and Orphaned are conditions; without a reason it is not known.
	Assigned, Ready, Orphaned Condition
}

// Condition is a condition without its time. It is False if it is neither True nor Unknown.
type Condition struct {
	True, Unknown   bool
	Reason, Message string
}

// Records are all that are stored.
type Records []Record

// Own is the record of the block of a Service.
func (all Records) Own(service Holder) (own Record, found bool) {
	return find(all, func(r Record) bool { return r.Service.UID != "" && r.Service.UID == service.UID })
}

// Of is the recorded purchase of the block of a Service; nil when there is none.
func (all Records) Of(service Holder) *Purchase {
	own, found := all.Own(service)
	if !found {
		return nil
	}
	return &own.Purchase
}

// Last is the record of the last purchase for the pool, or for the nodes: one without an answer, else the latest.
func (all Records) Last(nodes bool) (last Record, found bool) {
	shared := slices.DeleteFunc(slices.Clone(all), func(r Record) bool {
		return r.Service != Holder{} || r.Nodes != nodes || r.Ordered && r.Purchase == Purchase{}
	})
	if len(shared) == 0 {
		return Record{}, false
	}
	return slices.MaxFunc(shared, func(a, b Record) int {
		return cmp.Or(cmp.Compare(order(a.BlockID == ""), order(b.BlockID == "")), a.Time.Compare(b.Time),
			a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	}), true
}

// Ordered is the record of the first block that a person has ordered and that was not bought; false when there is none.
func (all Records) Ordered() (Record, bool) {
	return find(all, func(r Record) bool { return r.Ordered && r.BlockID == "" && !r.Deleted })
}

// Keeps reports whether a block stays while no Service has an address of it.
func (all Records) Keeps(blockID string) bool {
	return slices.ContainsFunc(all, func(r Record) bool { return r.BlockID == blockID && r.Kept && !r.Deleted })
}

// SharedAs is the record with a name if it is of a block that Services share; the zero Record when there is none.
func (all Records) SharedAs(name string) Record {
	named, _ := find(all, func(r Record) bool {
		return name != "" && r.Name == name && r.Service == Holder{} && !r.Nodes
	})
	return named
}

// IDs are those of the blocks that objects name.
func (all Records) IDs() []string {
	ids := make([]string, 0, len(all))
	for _, r := range all {
		ids = append(ids, r.BlockID)
	}
	return ids
}

// Names reports whether an object names the block.
func (all Records) Names(blockID string) bool {
	return slices.ContainsFunc(all, func(r Record) bool { return r.BlockID == blockID })
}

// Without are those of the blocks that no record is of.
func (all Records) Without(blocks []network.Block) []network.Block {
	if len(all) == 0 {
		return blocks
	}
	return slices.DeleteFunc(slices.Clone(blocks), func(b network.Block) bool {
		return slices.ContainsFunc(all, func(r Record) bool { return r.Shows(b) })
	})
}

// Shows reports whether the block is that of the purchase: by its ID, or by the nonce at the end of its description.
func (p Purchase) Shows(b network.Block) bool {
	if p.BlockID != "" {
		return b.ID == p.BlockID
	}
	return p.Nonce != "" && strings.HasSuffix(b.Description, " "+p.Nonce)
}

// Unprotected are the records whose objects need a finalizer. An order gets it with the purchase.
func (all Records) Unprotected() Records {
	return slices.DeleteFunc(slices.Clone(all), func(r Record) bool {
		return !r.Unprotected || r.Deleted || r.Ordered && r.Purchase == Purchase{}
	})
}

// Since is when the purchase was made. A restored object, and one that a webhook has changed, may have no time of one.
func (r Record) Since() time.Time {
	if r.Time.IsZero() {
		return r.Created
	}
	return r.Time
}

// OfUnused is what the object of a block must show whose Service is gone: that it is retained, or what is wrong.
func OfUnused(b network.Block, h Holder, orphaned Condition) Report {
	report := Report{CIDR: b.CIDR, Location: b.Location, Assigned: RetainedFor(h), Ready: RetainedFor(h),
		Orphaned: orphaned}
	if orphaned.Reason != "" {
		report.Ready = Condition{Reason: orphaned.Reason, Message: orphaned.Message}
		report.Assigned = Condition{True: b.ResourceID != "", Reason: orphaned.Reason, Message: orphaned.Message}
	}
	return report
}

// OfShared is what the object of a block must show whose addresses several have: whether the block is assigned to the
// public network, and so whether addresses of it can answer.
func OfShared(b network.Block, networkID string, r Record) Report {
	report := Report{CIDR: b.CIDR, Location: b.Location, Assigned: assignedAs(b, networkID)}
	report.Ready = report.Assigned
	if r.Deleted {
		report.Ready = Condition{Reason: "Deleting", Message: "the IPBlock is being deleted: no other Service gets " +
			"an address, and the block is given up when the last one has left"}
	}
	return report
}

func assignedAs(b network.Block, networkID string) Condition {
	refusal, untouchable := Untouchable(b)
	switch {
	case untouchable:
		return Condition{Reason: string(refusal.Reason), Message: refusal.Detail}
	case Changing(b) != "":
		return Condition{Reason: string(Changing(b)), Message: "the block is " + string(b.Status)}
	case b.Status == network.Unassigned:
		return Condition{Reason: "Unassigned", Message: "the block is assigned as soon as an address of it is needed"}
	case b.Status != network.Assigned:
		return Condition{Reason: string(BlockInError), Message: "the block is in state " + string(b.Status)}
	case b.ResourceID != networkID:
		return Condition{Reason: string(BlockElsewhere), Message: "the block is assigned to " + b.ResourceID +
			" instead of public network " + networkID}
	default:
		return Condition{True: true, Reason: string(BlockAssigned),
			Message: "the block is assigned to public network " + networkID}
	}
}

// RetainedFor is the condition of a block that outlives the Service which had it.
func RetainedFor(h Holder) Condition {
	return Condition{Reason: v1beta1.AssignedRetained, Message: fmt.Sprintf("the block outlives the address of "+
		"Service %s (annotation %s), and phoenixNAP goes on charging for it; the next Service of that name gets it. "+
		"To release it, give its IPBlock the annotation %s=true and delete that", h, contract.ServiceIPRetain,
		contract.AllowRelease)}
}

// Has reports whether one of the records is of a block that a Service has, or has an address of.
func (all Records) Has(h Holder) bool {
	return h.UID != "" && slices.ContainsFunc(all, func(r Record) bool {
		return r.Service.UID == h.UID || slices.ContainsFunc(r.Holders, func(other Holder) bool {
			return other.UID == h.UID
		})
	})
}
