package plan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// TestOrders: what a person has ordered is bought once, and one purchase for the pool follows the other.
func TestOrders(t *testing.T) {
	order := plan.Record{Name: "extra", Ordered: true}
	begun := order
	begun.Purchase = plan.Purchase{Nonce: "u1-1", Time: noon}
	bought := begun
	bought.BlockID = "b1"
	deleted := order
	deleted.Deleted = true
	pool := plan.Record{Name: "default-shared-1", Purchase: plan.Purchase{Time: noon.Add(-time.Hour), BlockID: "b2"}}
	for name, test := range map[string]struct {
		records       plan.Records
		ordered, last string
	}{
		"not begun":         {plan.Records{pool, order}, "extra", "default-shared-1"},
		"only an order":     {plan.Records{order}, "extra", ""},
		"without an answer": {plan.Records{pool, begun}, "extra", "extra"},
		"bought":            {plan.Records{bought, pool}, "", "extra"},
		"taken back":        {plan.Records{deleted, pool}, "", "default-shared-1"},
		"of no one":         {plan.Records{pool}, "", "default-shared-1"},
	} {
		ordered, _ := test.records.Ordered()
		last, _ := test.records.Last(false)
		if ordered.Name != test.ordered || last.Name != test.last {
			t.Errorf("%s: ordered is %q, want %q; the last purchase is %q, want %q", name, ordered.Name, test.ordered,
				last.Name, test.last)
		}
	}
}

func TestOrderedStep(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*plan.Observed)
		action plan.Action
		reason plan.Reason
	}{
		"bought":               {func(*plan.Observed) {}, plan.Buy, plan.PurchaseDue},
		"no node can serve it": {func(o *plan.Observed) { o.Nodes = nil }, plan.Wait, plan.NoNodeReady},
		"another purchase has no answer": {func(o *plan.Observed) {
			o.PoolPurchase = &plan.Purchase{Nonce: "u1-1", Time: noon.Add(-time.Second)}
		}, plan.Wait, plan.PurchaseUnanswered},
		"too many": {func(o *plan.Observed) { o.Slots = plan.Slots{MaxBlocks: 1, Bought: 1} }, plan.Refuse,
			plan.TooManyBlocks},
	} {
		o := asking(nil).Complete()
		test.change(&o)
		step := o.OrderedStep(plan.Record{Ordered: true, Size: 28})
		if step.Action != test.action || step.Reason != test.reason {
			t.Errorf("%s: %s, %s; want %s, %s", name, step.Action, step.Reason, test.action, test.reason)
		}
	}
}

// TestUnassignedReasons: agents know the reasons by these words.
func TestUnassignedReasons(t *testing.T) {
	ours := []plan.Reason{plan.AssignmentDue, plan.BlockAssigning, plan.UnassignmentDue, plan.BlockUnassigning,
		plan.NetworkChanging, plan.BlockElsewhere, plan.BlockLost, v1beta1.AssignedRetained, v1beta1.AssignedNotFound}
	var words []string
	for _, reason := range ours {
		words = append(words, string(reason))
	}
	if !slices.Equal(words, v1beta1.UnassignedReasons()) {
		t.Errorf("the reasons are %q, and agents know %q", words, v1beta1.UnassignedReasons())
	}
}

// TestReportOfShared: that a block is assigned is shown when an address of it is published, and nothing else then.
func TestReportOfShared(t *testing.T) {
	block := network.Block{ID: "b1", CIDR: netip.MustParsePrefix("203.0.113.8/29"), Status: network.Assigned,
		ResourceID: net1}
	for name, test := range map[string]struct {
		change func(*plan.Record, *network.Block)
		want   bool
	}{
		"not shown yet": {func(*plan.Record, *network.Block) {}, true},
		"shown":         {func(r *plan.Record, _ *network.Block) { r.Report.Assigned.True = true }, false},
		"of another":    {func(r *plan.Record, _ *network.Block) { r.BlockID = "b2" }, false},
		"not assigned":  {func(_ *plan.Record, b *network.Block) { b.Status = network.Assigning }, false},
		"elsewhere":     {func(_ *plan.Record, b *network.Block) { b.ResourceID = "other" }, false},
		"no block":      {func(_ *plan.Record, b *network.Block) { *b = network.Block{} }, false},
	} {
		record := plan.Record{Name: "mine", Purchase: plan.Purchase{BlockID: "b1"}}
		published := block
		test.change(&record, &published)
		obs := plan.Observed{Shared: plan.Records{record}, Account: plan.Account{NetworkID: net1}}
		r, report, due := obs.ReportOfShared(plan.Step{Block: published})
		if due != test.want || due && (r.Name != "mine" || !report.Assigned.True) {
			t.Errorf("%s: %+v, due %t; want %t", name, report, due, test.want)
		}
	}
}

// TestOfShared: where a block is, in each state that the API knows.
func TestOfShared(t *testing.T) {
	block := network.Block{ID: "b1", CIDR: netip.MustParsePrefix("203.0.113.8/29"), Location: "ASH"}
	for name, test := range map[string]struct {
		change   func(*network.Block)
		deleted  bool
		assigned string
		ready    string
	}{
		"assigned": {func(b *network.Block) { b.Status = network.Assigned }, false, "true BlockAssigned",
			"true BlockAssigned"},
		"assigned, being deleted": {func(b *network.Block) { b.Status = network.Assigned }, true, "true BlockAssigned",
			"false Deleting"},
		"elsewhere": {func(b *network.Block) {
			b.Status = network.Assigned
			b.ResourceID = "other"
		}, false, "false BlockElsewhere", "false BlockElsewhere"},
		"unassigned": {func(b *network.Block) {
			b.Status = network.Unassigned
			b.ResourceID = ""
		}, false, "false Unassigned", "false Unassigned"},
		"on its way": {func(b *network.Block) { b.Status = network.Assigning }, false, "false BlockAssigning",
			"false BlockAssigning"},
		"in error": {func(b *network.Block) { b.Status = network.ErrorAssigning }, false, "false BlockInErrorState",
			"false BlockInErrorState"},
		"divided": {func(b *network.Block) { b.Status = network.Subnetted }, false, "false BlockUnusable",
			"false BlockUnusable"},
	} {
		b := block
		b.ResourceID = net1
		test.change(&b)
		report := plan.OfShared(b, net1, plan.Record{Deleted: test.deleted})
		said := func(c plan.Condition) string { return fmt.Sprintf("%t %s", c.True, c.Reason) }
		if said(report.Assigned) != test.assigned || said(report.Ready) != test.ready || report.Location != "ASH" ||
			report.CIDR != block.CIDR || report.Ready.Message == "" || report.Assigned.Message == "" {
			t.Errorf("%s: %+v, want %s and %s", name, report, test.assigned, test.ready)
		}
	}
}
