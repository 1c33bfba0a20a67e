package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// keeps reports whether a block stays while no Service has an address of it.
func (all Records) keeps(blockID string) bool {
	return slices.ContainsFunc(all, func(r Record) bool { return r.BlockID == blockID && r.Kept && !r.Deleted })
}

// sharedAs is the record with a name if it is of a block that Services share; the zero Record when there is none.
func (all Records) sharedAs(name string) Record {
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

// unrecordedOwn is the block of the Service's own that its object does not name, or names no more: the purchase had no
// answer, the object is lost, or it names a block that is gone. Without the ID, a block whose tags are not shown any
// more, and which no list shows yet, could not be distinguished from one that does not exist, and another one would be
// bought. Empty when there is none to record; a dry run records nothing.
func (obs Observed) unrecordedOwn() string {
	own := ranked(obs.Owned(obs.Owner), obs.Desired, obs.Account)
	if len(own) == 0 || own[0].Hidden || obs.Options.DryRun {
		return ""
	}
	kept := own[0].Block.ID
	if obs.Purchase == nil {
		return kept
	}
	shown, found := obs.purchased(obs.Owner)
	switch {
	case found && obs.Purchase.BlockID == "":
		return shown.ID
	case found, obs.PurchaseOpen(), obs.remains(obs.Purchase.BlockID):
		return ""
	default:
		return kept
	}
}

// UnrecordedShared is the block of the pool that the last purchase turned out to have bought; empty when there is none.
func (obs Observed) UnrecordedShared() string {
	account := obs.Account
	account.Purchase = obs.PoolPurchase
	shown, found := account.purchased(obs.Pool())
	if !found || obs.PoolPurchase.BlockID != "" || obs.Records.Names(shown.ID) || obs.Options.DryRun {
		return ""
	}
	return shown.ID
}

// remains reports whether the account shows anything of a block.
func (obs Observed) remains(blockID string) bool {
	_, seen := obs.Sighting(blockID)
	return blockID != "" && (seen || obs.Listed(blockID) || obs.Exists(blockID))
}

// recordSpent reports whether a purchase for the Service is recorded of which the account shows nothing any more.
func (obs Observed) recordSpent() bool {
	return obs.Purchase != nil && len(obs.Own) == 0 && !obs.PurchaseOpen() && !obs.remains(obs.Purchase.BlockID)
}

// StaleRecords are records that say nothing any more: of Services that are gone, as the informer shows, whose block is
// gone, too, is not of this cluster or is recorded for another Service; and of purchases for the pool that have no
// answer after a time in which every block would have been seen.
func (obs Observed) StaleRecords() []Record {
	var stale []Record
	for _, r := range obs.Records {
		age := obs.Now.Sub(r.since())
		switch {
		case r.Nodes:
		case r.Service == Holder{}:
			if obs.staleShared(r, age) {
				stale = append(stale, r)
			}
		case age >= PurchaseSettles && !obs.served(r.Service) && obs.givesUp(r):
			stale = append(stale, r)
		}
	}
	return stale
}

// staleShared reports whether a record of the pool says nothing any more. An order stays until it is deleted.
func (obs Observed) staleShared(r Record, age time.Duration) bool {
	switch unanswered := r.BlockID == "" && age >= unassignedFor; {
	case !r.Ordered:
		return unanswered
	case !r.Deleted:
		return false
	case r.BlockID == "":
		return unanswered || r.Purchase == Purchase{}
	default:
		return !obs.remains(r.BlockID)
	}
}

// Unprotected are the records whose objects need a finalizer. An order gets it with the purchase.
func (all Records) Unprotected() Records {
	return slices.DeleteFunc(slices.Clone(all), func(r Record) bool {
		return !r.Unprotected || r.Deleted || r.Ordered && r.Purchase == Purchase{}
	})
}

// since is when the purchase was made. A restored object, and one that a webhook has changed, may have no time of one.
func (r Record) since() time.Time {
	if r.Time.IsZero() {
		return r.Created
	}
	return r.Time
}

// served reports whether the informer shows the Service, and that it needs its block.
func (obs Observed) served(h Holder) bool {
	return slices.ContainsFunc(obs.Services, func(service *corev1.Service) bool {
		return string(service.UID) == h.UID && contract.NeedsBlock(service)
	})
}

// givesUp reports whether the record of a Service that is gone has no block that it must name.
func (obs Observed) givesUp(r Record) bool {
	if obs.NamedForAnother(r) {
		return true
	}
	listed, found := find(obs.Known(), func(b network.Block) bool { return b.ID == r.BlockID })
	if found {
		cluster := listed.Tags[contract.TagCluster]
		return cluster != "" && cluster != obs.Owner.Cluster
	}
	return !obs.remains(r.BlockID)
}

// NamedForAnother reports whether the block of a record is recorded for another Service, which is served: that one has
// taken it up.
func (obs Observed) NamedForAnother(r Record) bool {
	return slices.ContainsFunc(obs.Records, func(other Record) bool {
		return other.Name != r.Name && r.BlockID != "" && other.BlockID == r.BlockID && obs.served(other.Service)
	})
}

// ReportOf is what the object of the Service's own block must show, from what its conditions say; due is false when
// there is none, it is not known which block that is, or the object shows that. Of a block that cannot be seen it goes
// on showing what was seen.
func (obs Observed) ReportOf(service *corev1.Service) (report Report, due bool) {
	record, found := obs.Records.Own(obs.Holder)
	report = Report{CIDR: record.Report.CIDR, Location: record.Report.Location,
		Assigned: conditionOf(service, contract.ServiceConditionBlockAssigned),
		Ready:    conditionOf(service, contract.ServiceConditionAddressPublished)}
	if sighting, seen := obs.Sighting(record.BlockID); seen && record.BlockID != "" {
		report.CIDR = sighting.Block.CIDR
		report.Location = sighting.Block.Location
		if outlives(sighting.Block, service) {
			report.Assigned = retainedFor(obs.Holder)
			report.Ready = report.Assigned
		}
	}
	if !found || !report.CIDR.IsValid() || obs.Kind != Dedicated {
		return Report{}, false
	}
	if a := ClaimedAddress(service); contract.WrittenForThis(service) && report.CIDR.Contains(a) &&
		contract.WantsAddress(service) {
		report.Address = a
	}
	return report, report != record.Report
}

// OfUnused is what the object of a block must show whose Service is gone: that it is retained, or what is wrong.
func OfUnused(b network.Block, h Holder, orphaned Condition) Report {
	report := Report{CIDR: b.CIDR, Location: b.Location, Assigned: retainedFor(h), Ready: retainedFor(h),
		Orphaned: orphaned}
	if orphaned.Reason != "" {
		report.Ready = Condition{Reason: orphaned.Reason, Message: orphaned.Message}
		report.Assigned = Condition{True: b.ResourceID != "", Reason: orphaned.Reason, Message: orphaned.Message}
	}
	return report
}

// outlives reports whether the block stays in the account without use.
func outlives(b network.Block, service *corev1.Service) bool {
	return network.Retained(b) && b.ResourceID == "" && !contract.WantsAddress(service)
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

// ReportOfShared is what the object of a block must show whose addresses several have when an address of it is
// published; due is false when it shows that the block is assigned. The sweep, which shows all else, is too late for
// agents that wait for the block.
func (obs Observed) ReportOfShared(published Step) (r Record, report Report, due bool) {
	r, found := find(obs.Shared, func(r Record) bool { return r.BlockID == published.Block.ID })
	if !found || !published.Block.CIDR.IsValid() {
		return Record{}, Report{}, false
	}
	report = OfShared(published.Block, obs.NetworkID, r)
	return r, report, report.Assigned.True && !r.Report.Assigned.True
}

// ReportDue is what an object must show once a Service was looked at: that of its own block, or else of the shared
// block of its address, whose record shared is then.
func (obs Observed) ReportDue(service *corev1.Service, published Step) (shared *Record, report Report, due bool) {
	if report, due := obs.ReportOf(service); due {
		return nil, report, true
	}
	r, report, due := obs.ReportOfShared(published)
	return &r, report, due
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

func retainedFor(h Holder) Condition {
	return Condition{Reason: v1beta1.AssignedRetained, Message: fmt.Sprintf("the block outlives the address of "+
		"Service %s (annotation %s), and phoenixNAP goes on charging for it; the next Service of that name gets it. To release it, "+
		"give its IPBlock the annotation %s=true and delete that", h, contract.ServiceIPRetain, contract.AllowRelease)}
}

func conditionOf(service *corev1.Service, kind string) Condition {
	c := meta.FindStatusCondition(service.Status.Conditions, kind)
	if c == nil {
		return Condition{}
	}
	return Condition{True: c.Status == metav1.ConditionTrue, Unknown: c.Status == metav1.ConditionUnknown,
		Reason: c.Reason, Message: c.Message}
}
