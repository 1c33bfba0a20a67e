package plan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// TestOrders: what a person has ordered is bought once, and one purchase for the pool follows the other.
func TestOrders(t *testing.T) {
	order := ipblock.Record{Name: "extra", Ordered: true}
	begun := order
	begun.Purchase = ipblock.Purchase{Nonce: "u1-1", Time: noon}
	bought := begun
	bought.BlockID = "b1"
	deleted := order
	deleted.Deleted = true
	pool := ipblock.Record{Name: "default-shared-1", Purchase: ipblock.Purchase{Time: noon.Add(-time.Hour),
		BlockID: "b2"}}
	for name, test := range map[string]struct {
		records       ipblock.Records
		ordered, last string
	}{
		"not begun":         {ipblock.Records{pool, order}, "extra", "default-shared-1"},
		"only an order":     {ipblock.Records{order}, "extra", ""},
		"without an answer": {ipblock.Records{pool, begun}, "extra", "extra"},
		"bought":            {ipblock.Records{bought, pool}, "", "extra"},
		"taken back":        {ipblock.Records{deleted, pool}, "", "default-shared-1"},
		"of no one":         {ipblock.Records{pool}, "", "default-shared-1"},
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
		action ipblock.Action
		reason ipblock.Reason
	}{
		"bought":               {func(*plan.Observed) {}, ipblock.Buy, ipblock.PurchaseDue},
		"no node can serve it": {func(o *plan.Observed) { o.Nodes = nil }, ipblock.Wait, ipblock.NoNodeReady},
		"another purchase has no answer": {func(o *plan.Observed) {
			o.PoolPurchase = &ipblock.Purchase{Nonce: "u1-1", Time: noon.Add(-time.Second)}
		}, ipblock.Wait, ipblock.PurchaseUnanswered},
		"too many": {func(o *plan.Observed) { o.Slots = ipblock.Slots{MaxBlocks: 1, Bought: 1} }, ipblock.Refuse,
			ipblock.TooManyBlocks},
	} {
		o := asking(nil).Complete()
		test.change(&o)
		step := o.OrderedStep(ipblock.Record{Ordered: true, Size: 28})
		if step.Action != test.action || step.Reason != test.reason {
			t.Errorf("%s: %s, %s; want %s, %s", name, step.Action, step.Reason, test.action, test.reason)
		}
	}
}

// TestUnassignedReasons: agents know the reasons by these words.
func TestUnassignedReasons(t *testing.T) {
	ours := []ipblock.Reason{ipblock.AssignmentDue, ipblock.BlockAssigning, ipblock.UnassignmentDue,
		ipblock.BlockUnassigning, ipblock.NetworkChanging, ipblock.BlockElsewhere, ipblock.BlockLost,
		v1beta1.AssignedRetained, v1beta1.AssignedNotFound}
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
		change func(*ipblock.Record, *network.Block)
		want   bool
	}{
		"not shown yet": {func(*ipblock.Record, *network.Block) {}, true},
		"shown":         {func(r *ipblock.Record, _ *network.Block) { r.Report.Assigned.True = true }, false},
		"of another":    {func(r *ipblock.Record, _ *network.Block) { r.BlockID = "b2" }, false},
		"not assigned":  {func(_ *ipblock.Record, b *network.Block) { b.Status = network.Assigning }, false},
		"elsewhere":     {func(_ *ipblock.Record, b *network.Block) { b.ResourceID = "other" }, false},
		"no block":      {func(_ *ipblock.Record, b *network.Block) { *b = network.Block{} }, false},
	} {
		record := ipblock.Record{Name: "mine", Purchase: ipblock.Purchase{BlockID: "b1"}}
		published := block
		test.change(&record, &published)
		obs := plan.Observed{Shared: ipblock.Records{record},
			Account: ipblock.Account{Network: network.Named{ID: net1}}}
		r, report, due := obs.ObjectsOf().ReportOfShared(ipblock.Step{Block: published})
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
		report := ipblock.OfShared(b, net1, ipblock.Record{Deleted: test.deleted})
		said := func(c ipblock.Condition) string { return fmt.Sprintf("%t %s", c.True, c.Reason) }
		if said(report.Assigned) != test.assigned || said(report.Ready) != test.ready || report.Location != "ASH" ||
			report.CIDR != block.CIDR || report.Ready.Message == "" || report.Assigned.Message == "" {
			t.Errorf("%s: %+v, want %s and %s", name, report, test.assigned, test.ready)
		}
	}
}
