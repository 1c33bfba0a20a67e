package plan

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestGrow: a block is bought for the pool unless one is on its way, which more Services than one may share.
func TestGrow(t *testing.T) {
	block := func(status network.BlockStatus) []ipblock.PoolBlock {
		return []ipblock.PoolBlock{{Sighting: network.Sighting{Block: network.Block{ID: "block", Status: status}}}}
	}
	closed := block(network.Creating)
	closed[0].Ledger.Closed = true
	buy := ipblock.Step{Action: ipblock.Buy, Reason: ipblock.PurchaseDue}
	full := ipblock.Step{Action: ipblock.Refuse, Reason: ipblock.NetworkFull}
	for name, test := range map[string]struct {
		blocks []ipblock.PoolBlock
		extend ipblock.Step
		want   ipblock.Step
	}{
		"no block":                         {nil, buy, buy},
		"its block is assigned":            {block(network.Assigned), buy, buy},
		"a block is created":               {block(network.Creating), buy, ipblock.Step{Action: ipblock.Wait, Reason: ipblock.BlockCreating}},
		"a block is assigned soon":         {block(network.Unassigned), buy, ipblock.Step{Action: ipblock.Wait, Reason: ipblock.BlockAssigning}},
		"the block that comes is released": {closed, buy, buy},
		"nothing may be bought":            {block(network.Creating), full, full},
	} {
		t.Run(name, func(t *testing.T) {
			got := Observed{}.grow(test.blocks, test.extend)
			if got.Action != test.want.Action || got.Reason != test.want.Reason {
				t.Errorf("%s %s, want %s %s", got.Action, got.Reason, test.want.Action, test.want.Reason)
			}
		})
	}
}

// TestUnrecorded: a published address that no ledger and no block has is lost, unless the user wants another one.
func TestUnrecorded(t *testing.T) {
	published := netip.MustParseAddr("203.0.113.10")
	for name, replace := range map[string]bool{"kept": false, "to be replaced": true} {
		t.Run(name, func(t *testing.T) {
			o := Observed{Service: &corev1.Service{}, Account: ipblock.Account{Network: network.Named{ID: "network"},
				Networks: map[string]network.Network{"network": {ID: "network"}}}}
			o.Desired.Replace = replace
			p, decided := o.unrecorded(nil, published)
			if decided == replace || decided && p.Step.Reason != ipblock.BlockLost {
				t.Errorf("decided is %t, %+v; want a refusal unless %s is set", decided, p.Step,
					contract.ServiceIPReplace)
			}
		})
	}
}
