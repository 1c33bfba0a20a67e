package reconcile_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

const (
	dividedID = "60473c2509268bc77fd06da0"
	partID    = "60473c2509268bc77fd06da1"
	// secondPartID is the other part.
	secondPartID = "60473c2509268bc77fd06da3"
)

// divided is a /29 that the portal divided into two /30, all with the same tags; the first part may be used.
func divided(tags map[string]string) option {
	return withBlocks(
		pnapsim.BlockSeed{ID: dividedID, Location: "ASH", CIDR: "203.0.113.144/29", Tags: tags},
		pnapsim.BlockSeed{ID: partID, Location: "ASH", CIDR: "203.0.113.144/30", Tags: tags, Parent: dividedID,
			Grants: []string{pnapsim.GrantAssign, pnapsim.GrantUnassign}},
		pnapsim.BlockSeed{ID: secondPartID, Location: "ASH", CIDR: "203.0.113.148/30", Tags: tags, Parent: dividedID},
	)
}

// one is a /29 of that kind.
func one(tags map[string]string, change func(*pnapsim.BlockSeed)) option {
	seed := pnapsim.BlockSeed{ID: dividedID, Location: "ASH", CIDR: "203.0.113.144/29", Tags: tags}
	change(&seed)
	return withBlocks(seed)
}

func managed(b *pnapsim.BlockSeed) { b.SystemManaged = true }

// ofFuture is a status that this version does not know.
func ofFuture(b *pnapsim.BlockSeed) { b.Status = "resting" }

func ofPool() map[string]string {
	return map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID,
		contract.TagPool: v1beta1.DefaultNetwork}
}

// TestUntouchableBlocks: a Service that has or names a block which is divided, or which phoenixNAP manages, or of which
// the status is not known, hears why and what to do. Nothing is bought in its place, and the block and its parts stay
// as they are.
//
//proves:known-bugs/new-state
func TestUntouchableBlocks(t *testing.T) {
	const (
		whole     = "203.0.113.144/29 "
		isDivided = "is divided into smaller ones"
		isResting = `in state "resting"`
		isManaged = "is managed by phoenixNAP"
	)
	quarantined := []string{whole + "resting"}
	unassigned := []string{whole + "unassigned"}
	parts := []string{whole + "subnetted", "203.0.113.144/30 unassigned", "203.0.113.148/30 unassigned"}
	for name, tc := range map[string]struct {
		option option
		change func(*corev1.Service)
		says   string
		want   []string
	}{
		"own, divided":          {divided(ours("web")), nil, isDivided, parts},
		"own, of the future":    {one(ours("web"), ofFuture), nil, isResting, quarantined},
		"shared, divided":       {divided(ofPool()), inPool(), isDivided, parts},
		"shared, of the future": {one(ofPool(), ofFuture), inPool(), isResting, quarantined},
		"brought, divided":      {divided(ofCluster()), inBlock(dividedID), isDivided, parts},
		"brought, of the future": {one(ofCluster(), ofFuture), inBlock(dividedID), isResting,
			quarantined},
		"brought, managed": {one(ofCluster(), managed), inBlock(dividedID), isManaged, unassigned},
		"brought, managed, foreign": {one(map[string]string{contract.TagCluster: "other"}, managed), naming("mine"),
			isManaged, unassigned},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.option)
			w.clock.Advance(time.Hour)
			w.bringBlock("mine", dividedID)
			if tc.change == nil {
				tc.change = func(*corev1.Service) {}
			}
			w.service("web", tc.change)
			if err := w.refused("web", 10*time.Minute); !strings.Contains(err.Error(), tc.says) ||
				!strings.Contains(err.Error(), dividedID) {
				t.Errorf("refused with %q, want %s and %q", err, dividedID, tc.says)
			}
			w.wantPurchases(0)
			w.wantBlocks(tc.want...)
			w.sweep()
			w.wantBlocks(tc.want...)
		})
	}
}

// TestForeignersAreNotCounted: what phoenixNAP manages, and parts, count for nothing, whatever their tags; a divided
// block is still one that was bought. It needs no place in the network, either.
func TestForeignersAreNotCounted(t *testing.T) {
	const managedID = "60473c2509268bc77fd06da2"
	for name, tc := range map[string]struct {
		max       int
		others    int
		purchases int
	}{
		"one more may be bought":       {max: 2, purchases: 1},
		"none may be bought":           {max: 1, purchases: 0},
		"the network has a last place": {others: 8, purchases: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, divided(ofPool()), withBlocks(foreignBlocks(tc.others)...),
				withBlocks(pnapsim.BlockSeed{ID: managedID, Location: "ASH", CIDR: "203.0.113.160/29",
					Tags: ours("web"), SystemManaged: true}),
				configured(func(c *reconcile.Config) { c.MaxBlocks = tc.max }))
			w.clock.Advance(time.Hour)
			w.service("web")
			if tc.purchases > 0 {
				w.settle("web")
			} else if err := w.refused("web", 10*time.Minute); !strings.Contains(err.Error(), "has 1 IP blocks") {
				t.Errorf("refused with %q", err)
			}
			w.wantPurchases(tc.purchases)
			w.delete("web")
			w.settle("web")
			for _, b := range w.accountBlocks() {
				if b.ID == managedID && b.Status != "unassigned" {
					t.Errorf("the block that phoenixNAP manages is %s", b.Status)
				}
			}
		})
	}
}
