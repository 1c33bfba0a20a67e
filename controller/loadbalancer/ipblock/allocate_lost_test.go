package ipblock_test

import (
	"net/netip"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

// Only the loss of the published address stops a holder: what it had in another block that is gone does not matter.
func TestOnlyThePublishedAddressIsLost(t *testing.T) {
	lost := poolBlock(network.Assigned, ledger29(nil, named("b", "203.0.113.16/29"), func(l *ipblock.Ledger) {
		l.Held[addr("203.0.113.18")] = holder("web")
	}), gone)
	kept := poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.11": "web"}))
	for published, want := range map[string]string{
		"203.0.113.11": "done BlockAssigned a 203.0.113.11; save b 0 held 1 quarantined",
		"203.0.113.18": "refuse BlockLost ",
	} {
		wish := wanted{Published: addr(published)}.request()
		got := ipblock.Allocate(holder("web"), wish, []ipblock.PoolBlock{kept, lost}, false)
		if describeAllocated(got) != want {
			t.Errorf("published %s: %s, want %s", published, describeAllocated(got), want)
		}
	}
}

// An address that phoenixNAP has sold again, with a block of the same pool, goes back to the Service that lost it,
// unless another has it by now or a user wants a different one.
func TestALostAddressThatIsBack(t *testing.T) {
	lost := poolBlock(network.Assigned, ledger29(map[string]string{"203.0.113.11": "web"}), gone)
	back := func(held map[string]string, change ...func(*ipblock.Ledger)) ipblock.PoolBlock {
		changes := append([]func(*ipblock.Ledger){named("b", "203.0.113.8/29")}, change...)
		return poolBlock(network.Assigned, ledger29(held, changes...))
	}
	quarantined := func(l *ipblock.Ledger) {
		l.Quarantined = map[netip.Addr]ipblock.Released{addr("203.0.113.11"): {Holder: holder("api"), Since: noon}}
	}
	for name, c := range map[string]struct {
		block     ipblock.PoolBlock
		requested string
		want      string
	}{
		"free": {back(nil), "",
			"done BlockAssigned b 203.0.113.11; save b 1 held 0 quarantined; save a 0 held 1 quarantined"},
		"given":         {back(map[string]string{"203.0.113.11": "api"}), "", "refuse BlockLost "},
		"quarantined":   {back(nil, quarantined), "", "refuse BlockLost "},
		"not asked for": {back(nil), "203.0.113.12", "refuse BlockLost "},
	} {
		wish := wanted{Published: addr("203.0.113.11"),
			Request: ipblock.Request{Requested: addr(c.requested)}}.request()
		got := ipblock.Allocate(holder("web"), wish, []ipblock.PoolBlock{lost, c.block}, false)
		if describeAllocated(got) != c.want {
			t.Errorf("%s: %s, want %s", name, describeAllocated(got), c.want)
		}
	}
}

// Nothing is bought while a block is on its way, though the others are full.
func TestAFullPoolWaitsForItsNextBlock(t *testing.T) {
	full := []ipblock.PoolBlock{poolBlock(network.Assigned, ledger29(full29))}
	for coming, want := range map[bool]string{true: "wait BlockInvisible ", false: "buy PurchaseDue "} {
		got := describeAllocated(ipblock.Allocate(holder("web"), wanted{}.request(), full, coming))
		if got != want {
			t.Errorf("coming %t: %s, want %s", coming, got, want)
		}
	}
}

// No address is given of a block whose ledger is about other addresses.
func TestALedgerOfOtherAddressesGivesNone(t *testing.T) {
	b := poolBlock(network.Assigned, ledger29(nil), func(b *ipblock.PoolBlock) {
		b.Sighting.Block.CIDR = prefix("203.0.113.64/29")
	})
	got := describeAllocated(ipblock.Allocate(holder("web"), wanted{}.request(), []ipblock.PoolBlock{b}, false))
	if want := "buy PurchaseDue "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
