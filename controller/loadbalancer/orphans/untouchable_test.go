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
		seed     pnapsim.BlockSeed
		standing string
		says     []string
	}{
		"divided": {pnapsim.BlockSeed{ID: blockID, Tags: tags}, "unclear",
			[]string{"is subnetted", "and its parts with it"}},
		"divided leftover of v1": {pnapsim.BlockSeed{ID: blockID, Tags: leftover}, "unclear",
			[]string{"is subnetted", "and its parts with it"}},
		"of the future": {pnapsim.BlockSeed{ID: blockID, Tags: tags, Network: "public", Status: "resting"}, "unclear",
			[]string{"is resting", "in the phoenixNAP portal if nothing uses it"}},
		"managed": {pnapsim.BlockSeed{ID: blockID, Tags: tags, SystemManaged: true}, "", nil},
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
			if tc.standing == "" && heard > 0 || w.count("OrphanNotCollected") > 0 {
				t.Errorf("heard %q", w.heard)
			}
			report := w.reported()
			if tc.standing == "" {
				if len(report.Blocks) > 0 {
					t.Errorf("reported are %+v", report.Blocks)
				}
				return
			}
			if want := map[bool]int{false: 1, true: 2}[divided]; len(report.Blocks) != want {
				t.Errorf("reported are %+v, want %d blocks", report.Blocks, want)
			}
			for _, b := range report.Blocks { // Services may name a part, for a person brought it
				if b.ID == blockID && (b.Standing != tc.standing || !b.Unusable) ||
					b.ID != blockID && (b.Standing != contract.StandingBrought || b.Unusable) {
					t.Errorf("reported is %+v, want %s and unusable, or a part that may be named", b, tc.standing)
				}
			}
			if w.count(append(tc.says, "OrphanedIPBlock", blockID)...) == 0 {
				t.Errorf("heard %q, want %q", w.heard, tc.says)
			}
		})
	}
}
