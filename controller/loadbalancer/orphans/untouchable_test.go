package orphans_test

import (
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// TestUntouchableOrphans: with --collect-orphans, too, a block stays as it is that is divided or whose status is not
// known. It is paid for, and so reported; parts and what phoenixNAP manages are none of the cluster's, whatever their
// tags.
//
//proves:known-bugs/new-state
func TestUntouchableOrphans(t *testing.T) {
	tags := ours(contract.TagService, "shop_web")
	leftover := ours(contract.TagDelete, "true")
	for name, tc := range map[string]struct {
		seed pnapsim.BlockSeed
		says []string // nothing for a block that is not the cluster's
	}{
		"divided": {pnapsim.BlockSeed{ID: blockID, Tags: tags},
			[]string{"is subnetted", "and its parts with it"}},
		"divided leftover of v1": {pnapsim.BlockSeed{ID: blockID, Tags: leftover},
			[]string{"is subnetted", "and its parts with it"}},
		"of the future": {pnapsim.BlockSeed{ID: blockID, Tags: tags, Network: "public", Status: "resting"},
			[]string{"is resting", "in the phoenixNAP portal if nothing uses it"}},
		"managed": {pnapsim.BlockSeed{ID: blockID, Tags: tags, SystemManaged: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			const part = "60473c2509268bc77fd06d4f"
			divided := tc.seed.Status == "" && !tc.seed.SystemManaged
			w := newWorld(t, collecting, func(_ *pnapsim.Config, a *pnapsim.AccountSeed, _ *orphans.Config) {
				tc.seed.Location = "ASH"
				tc.seed.CIDR = "203.0.113.8/29"
				a.Blocks = append(a.Blocks, tc.seed)
				if divided {
					a.Blocks = append(a.Blocks, pnapsim.BlockSeed{ID: part, Location: "ASH", CIDR: "203.0.113.8/30",
						Tags: tc.seed.Tags, Parent: blockID})
				}
			})
			w.bring(part)
			w.pass(3 * grace)
			w.untouched()
			heard := w.count("OrphanedIPBlock")
			if tc.says == nil && heard > 0 || w.count("OrphanNotCollected") > 0 {
				t.Errorf("heard %q", w.heard)
			}
			if n := w.count("OrphanedIPBlock", part); n > 0 {
				t.Errorf("%d events about a part; heard %q", n, w.heard)
			}
			if tc.says != nil && w.count(append(tc.says, "OrphanedIPBlock", blockID)...) == 0 {
				t.Errorf("heard %q, want %q", w.heard, tc.says)
			}
		})
	}
}
