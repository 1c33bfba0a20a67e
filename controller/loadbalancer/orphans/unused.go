package orphans

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// showUnused shows in the IPBlocks of blocks whose Services are gone what is wrong with them, or that they are
// retained. A block that no object names gets one: so everything that is paid for can be seen, and released by a
// deletion.
func (c *Collector) showUnused(ctx context.Context, ours []network.Block, f *facts) error {
	var problems []error
	for _, b := range ours {
		service, named := serviceNamed(b)
		orphaned, unused := c.standing(b, *f)
		if !named || !unused || !b.CIDR.IsValid() {
			continue
		}
		if err := c.show(ctx, b, f, ipblock.OfUnused(b, service, orphaned), service); err != nil &&
			!errors.Is(err, allocation.ErrConflict) {
			problems = append(problems, fmt.Errorf("show that IP block %s is not used: %w", b.ID, err))
		}
	}
	return errors.Join(problems...)
}

func (c *Collector) show(
	ctx context.Context, b network.Block, f *facts, report ipblock.Report, service ipblock.Holder,
) error {
	record, found := f.of(b.ID)
	if !found {
		if f.records.Names(b.ID) {
			return nil // for something else; a Service that is served says what it needs
		}
		holder, known := c.holderOf(b)
		if !known {
			return nil
		}
		klog.FromContext(ctx).Info("Creating the IPBlock of a block without one", "block", b.ID, "service", service)
		var err error
		if record, err = allocation.Import(ctx, c.config.Ledgers.Objects(), holder, b.ID, service); err != nil {
			return err
		}
		f.records = append(f.records, record)
	}
	if record.Report == report {
		return nil
	}
	return allocation.ShowUnused(ctx, c.config.Ledgers.Objects(), record, report, c.config.Now())
}

// standing is the condition Orphaned of a block, without a reason where it is retained; false while it is used, or only
// seems not to be.
func (c *Collector) standing(b network.Block, f facts) (orphaned ipblock.Condition, unused bool) {
	s := c.suspicions[b.ID]
	switch {
	case classify(b, f) == retained:
		return ipblock.Condition{}, true
	case s == nil || s.state != orphan || s.looks < confirmed:
		return ipblock.Condition{}, false
	}
	orphaned = ipblock.Condition{True: true, Reason: v1beta1.OrphanedServiceGone,
		Message: problemOf(s.state, b) + ". " + c.remedy(s)}
	if s.held && !s.confirmed {
		orphaned.Reason = v1beta1.OrphanedAwaitingConfirmation
	}
	return orphaned, true
}

// serviceNamed is the Service that the tags of a block name; false where they name none, or shorten its name.
func serviceNamed(b network.Block) (ipblock.Holder, bool) {
	service, tagged := serviceOf(b)
	namespace, name, both := strings.Cut(service, "_")
	valid := len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Label(name)) == 0
	return ipblock.Holder{Namespace: namespace, Name: name}, tagged && both && valid
}

// showShared shows of each block whose addresses several have whether it is assigned. One that a person brings or has
// ordered may not exist any more; what is said of another one that the account does not show stays.
func (c *Collector) showShared(ctx context.Context, all []network.Block, f facts) error {
	var problems []error
	for _, r := range f.shared {
		report := r.Report
		i := slices.IndexFunc(all, func(b network.Block) bool { return b.ID == r.BlockID })
		switch {
		case i >= 0 && all[i].CIDR.IsValid():
			report = c.reportOfShared(all[i], r)
			report.Orphaned = c.notUsed(r.BlockID)
		case i < 0 && (r.Ordered || slices.Contains(f.brought, r.BlockID) || f.broughtForNodes.Names(r.BlockID)):
			_, found, err := c.config.Account.Block(ctx, r.BlockID, c.config.Now().Add(-lookupWindow))
			if err == nil && !found {
				report.Assigned = missing(r.BlockID)
				report.Ready = report.Assigned
			}
			problems = append(problems, err)
		}
		if report == r.Report {
			continue
		}
		err := allocation.ShowConditions(ctx, c.config.Ledgers.Objects(), r, report, c.config.Now())
		if err != nil && !errors.Is(err, allocation.ErrConflict) {
			problems = append(problems, fmt.Errorf("show where IP block %s is: %w", r.BlockID, err))
		}
	}
	return errors.Join(problems...)
}

// notUsed is the condition Orphaned of a block whose addresses several have; without a reason while one is in use, or
// none only seems to be.
func (c *Collector) notUsed(blockID string) ipblock.Condition {
	s := c.suspicions[blockID]
	if s == nil || s.looks < confirmed {
		return ipblock.Condition{}
	}
	return ipblock.Condition{True: true, Reason: v1beta1.OrphanedNotUsed,
		Message: problemOf(s.state, s.block) + ". " + c.remedy(s)}
}

// reportOfShared is what the object of a block shows whose addresses several have. Of one whose network is not served
// it goes on showing what it did.
func (c *Collector) reportOfShared(b network.Block, r ipblock.Record) ipblock.Report {
	for _, served := range c.served() {
		if served.Name == r.Network {
			report := ipblock.OfShared(b, served.ID, r)
			report.Address = r.Report.Address
			return report
		}
	}
	return r.Report
}

// holderOf is the name of the network that a block is assigned to, or of the option loadbalancer if the block is
// assigned to none; false while the one that it is assigned to is not served.
func (c *Collector) holderOf(b network.Block) (name string, known bool) {
	for _, served := range c.served() {
		if served.ID == b.ResourceID {
			return served.Name, true
		}
	}
	return v1beta1.DefaultNetwork, b.ResourceID == ""
}

func missing(blockID string) ipblock.Condition {
	return ipblock.Condition{Reason: v1beta1.AssignedNotFound, Message: "the account shows no IP block " + blockID +
		"; delete this IPBlock, and create another one for a block that the phoenixNAP portal shows, or to order one"}
}
