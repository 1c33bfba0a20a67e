package plan_test

import (
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
)

// Only the loss of the published address stops a holder: what it had in another block that is gone does not matter.
func TestOnlyThePublishedAddressIsLost(t *testing.T) {
	lost := poolBlock(network.Assigned, ledger29(nil, named("b", "203.0.113.16/29"), func(l *plan.Ledger) {
		l.Held[addr("203.0.113.18")] = holder("web")
	}), gone)
	kept := poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.11": "web"}))
	for published, want := range map[string]string{
		"203.0.113.11": "done BlockAssigned a 203.0.113.11; save b 0 held 1 quarantined",
		"203.0.113.18": "refuse BlockLost ",
	} {
		wish := wanted{Published: addr(published)}.request()
		got := plan.Allocate(holder("web"), wish, []plan.PoolBlock{kept, lost}, false)
		if describeAllocated(got) != want {
			t.Errorf("published %s: %s, want %s", published, describeAllocated(got), want)
		}
	}
}

// Nothing is bought while a block is on its way, though the others are full.
func TestAFullPoolWaitsForItsNextBlock(t *testing.T) {
	full := []plan.PoolBlock{poolBlock(network.Assigned, ledger29(full29))}
	for coming, want := range map[bool]string{true: "wait BlockInvisible ", false: "buy PurchaseDue "} {
		got := describeAllocated(plan.Allocate(holder("web"), wanted{}.request(), full, coming))
		if got != want {
			t.Errorf("coming %t: %s, want %s", coming, got, want)
		}
	}
}

// No address is given of a block whose ledger is about other addresses.
func TestALedgerOfOtherAddressesGivesNone(t *testing.T) {
	b := poolBlock(network.Assigned, ledger29(nil), func(b *plan.PoolBlock) {
		b.Sighting.Block.CIDR = prefix("203.0.113.64/29")
	})
	got := describeAllocated(plan.Allocate(holder("web"), wanted{}.request(), []plan.PoolBlock{b}, false))
	if want := "buy PurchaseDue "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
