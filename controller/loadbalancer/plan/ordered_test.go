package plan_test

import (
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
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
