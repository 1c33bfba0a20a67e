package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// unrecordedOwn is the block of the Service's own that its object does not name, or names no more: the purchase had no
// answer, the object is lost, or it names a block that is gone. Without the ID, a block whose tags are not shown any
// more, and which no list shows yet, could not be distinguished from one that does not exist, and another one would be
// bought. Empty when there is none to record; a dry run records nothing.
func (obs Observed) unrecordedOwn() string {
	own := ipblock.Ranked(obs.Owned(obs.Owner), obs.Desired.Request, obs.Account)
	if len(own) == 0 || own[0].Hidden || obs.Options.DryRun {
		return ""
	}
	kept := own[0].Block.ID
	if obs.Purchase == nil {
		return kept
	}
	shown, found := obs.Purchased(obs.Owner)
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
	shown, found := account.Purchased(obs.Pool())
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
func (obs Observed) StaleRecords() []ipblock.Record {
	var stale []ipblock.Record
	for _, r := range obs.Records {
		age := obs.Now.Sub(r.Since())
		switch {
		case r.Nodes:
		case r.Service == ipblock.Holder{}:
			if obs.staleShared(r, age) {
				stale = append(stale, r)
			}
		case age >= ipblock.PurchaseSettles && !obs.served(r.Service) && obs.givesUp(r):
			stale = append(stale, r)
		}
	}
	return stale
}

// staleShared reports whether a record of the pool says nothing any more. An order stays until it is deleted.
func (obs Observed) staleShared(r ipblock.Record, age time.Duration) bool {
	switch unanswered := r.BlockID == "" && age >= ipblock.UnassignedFor; {
	case !r.Ordered:
		return unanswered
	case !r.Deleted:
		return false
	case r.BlockID == "":
		return unanswered || r.Purchase == ipblock.Purchase{}
	default:
		return !obs.remains(r.BlockID)
	}
}

// served reports whether the informer shows the Service, and that it needs its block.
func (obs Observed) served(h ipblock.Holder) bool {
	return slices.ContainsFunc(obs.Services, func(service *corev1.Service) bool {
		return string(service.UID) == h.UID && NeedsBlock(service)
	})
}

// givesUp reports whether the record of a Service that is gone has no block that it must name.
func (obs Observed) givesUp(r ipblock.Record) bool {
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
func (obs Observed) NamedForAnother(r ipblock.Record) bool {
	return slices.ContainsFunc(obs.Records, func(other ipblock.Record) bool {
		return other.Name != r.Name && r.BlockID != "" && other.BlockID == r.BlockID && obs.served(other.Service)
	})
}

// Objects are those that show something of a Service: that of a block of its own, and those of shared blocks.
type Objects struct {
	// own is the object of its own block; the zero Record when it has none, or gets its address from elsewhere.
	own ipblock.Record
	// block is that block; the zero Block where it cannot be seen.
	block   network.Block
	shared  ipblock.Records
	network network.Named
}

func (obs Observed) objects() Objects {
	objects := Objects{shared: obs.Shared, network: obs.Network}
	if obs.Kind == Dedicated {
		objects.own, _ = obs.Records.Own(obs.Holder)
	}
	if seen, found := obs.Sighting(objects.own.BlockID); found && objects.own.BlockID != "" {
		objects.block = seen.Block
	}
	return objects
}

// ReportDue is what an object must show once a Service was looked at: that of its own block, or else of the shared
// block of its address, whose record shared is then.
func (o Objects) ReportDue(said Said, published ipblock.Step) (shared *ipblock.Record, report ipblock.Report,
	due bool) {
	if report, due := o.ReportOf(said); due {
		return nil, report, true
	}
	r, report, due := o.ReportOfShared(published)
	return &r, report, due
}

// ReportOf is what the object of the Service's own block must show, from what its conditions say; due is false when
// there is none, it is not known which block that is, or the object shows that. Of a block that cannot be seen it goes
// on showing what was seen.
func (o Objects) ReportOf(said Said) (report ipblock.Report, due bool) {
	report = ipblock.Report{CIDR: o.own.Report.CIDR, Location: o.own.Report.Location, Assigned: said.Assigned,
		Ready: said.Published}
	if o.block.ID != "" {
		report.CIDR = o.block.CIDR
		report.Location = o.block.Location
	}
	if network.Retained(o.block) && o.block.ResourceID == "" && !said.Wants { // it stays in the account without use
		report.Assigned = ipblock.RetainedFor(o.own.Service)
		report.Ready = report.Assigned
	}
	if o.own.Name == "" || !report.CIDR.IsValid() {
		return ipblock.Report{}, false
	}
	if said.Wants && report.CIDR.Contains(said.Address) {
		report.Address = said.Address
	}
	return report, report != o.own.Report
}

// ReportOfShared is what the object of a block must show whose addresses several have when an address of it is
// published; due is false when it shows that the block is assigned. The sweep, which shows all else, is too late for
// agents that wait for the block.
func (o Objects) ReportOfShared(published ipblock.Step) (r ipblock.Record, report ipblock.Report, due bool) {
	r, found := find(o.shared, func(r ipblock.Record) bool { return r.BlockID == published.Block.ID })
	if !found || !published.Block.CIDR.IsValid() {
		return ipblock.Record{}, ipblock.Report{}, false
	}
	report = ipblock.OfShared(published.Block, o.network.ID, r)
	return r, report, report.Assigned.True && !r.Report.Assigned.True
}

func conditionOf(service *corev1.Service, kind string) ipblock.Condition {
	c := meta.FindStatusCondition(service.Status.Conditions, kind)
	if c == nil {
		return ipblock.Condition{}
	}
	return ipblock.Condition{True: c.Status == metav1.ConditionTrue, Unknown: c.Status == metav1.ConditionUnknown,
		Reason: c.Reason, Message: c.Message}
}
