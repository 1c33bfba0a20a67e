package plan_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Only a plan that changes nothing but the Service itself can follow from a cache.
func TestWhatFollowsFromACache(t *testing.T) {
	done := ipblock.Step{Action: ipblock.Done}
	for name, c := range map[string]struct {
		plan plan.ServicePlan
		want bool
	}{
		"served":             {plan.ServicePlan{Step: done}, true},
		"a ledger to save":   {plan.ServicePlan{Step: done, Save: []ipblock.Ledger{{}}}, false},
		"tags to set":        {plan.ServicePlan{Step: done, Tags: map[string]string{}}, false},
		"a surplus block":    {plan.ServicePlan{Step: done, Surplus: []ipblock.Step{{Action: ipblock.Delete}}}, false},
		"a block to assign":  {plan.ServicePlan{Step: ipblock.Step{Action: ipblock.Assign}}, false},
		"a block to buy":     {plan.ServicePlan{Step: ipblock.Step{Action: ipblock.Buy}}, false},
		"a block to release": {plan.ServicePlan{Step: ipblock.Step{Action: ipblock.Unassign}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.plan.IsUpToDate(plan.Observed{Service: &corev1.Service{}}.Complete()); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

// With an address in several ledgers, the published one confirms the annotation, whatever the order of the ledgers.
func TestThePublishedAddressOfSeveralCounts(t *testing.T) {
	holder := ipblock.Holder{Namespace: "shop", Name: "web", UID: "uid-1"}
	ledger := func(id, cidr, address string) ipblock.Ledger {
		l := ipblock.NewLedger(id, netip.MustParsePrefix(cidr))
		l.Held = map[netip.Addr]ipblock.Holder{netip.MustParseAddr(address): holder}
		return l
	}
	first := ledger("b1", "203.0.113.8/29", "203.0.113.11")
	second := ledger("b2", "203.0.113.16/29", "203.0.113.19")
	for _, published := range []string{"203.0.113.11", "203.0.113.19"} {
		for _, ledgers := range [][]ipblock.Ledger{{first, second}, {second, first}} {
			service := &corev1.Service{}
			service.Annotations = map[string]string{contract.ServiceIPAddress: published}
			o := plan.Observed{Service: service, Holder: holder, Ledgers: ledgers}
			if got := o.Complete().Published; got.String() != published {
				t.Errorf("with ledgers %s and %s: %v, want %s", ledgers[0].BlockID, ledgers[1].BlockID, got, published)
			}
		}
	}
}
