package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// TestNodeBlockWithoutASlotIsReleased: others took the last slots while the node block was bought. It is paid for in
// vain, so it goes after some minutes, the Node says who has the slots, and nothing is bought until there is one.
func TestNodeBlockWithoutASlotIsReleased(t *testing.T) {
	seed := withSurplus(1, "")
	account := &seed.Accounts[0]
	account.Blocks = account.Blocks[:1]
	for i := range network.BlockLimit {
		account.Blocks = append(account.Blocks, pnapsim.BlockSeed{ID: fmt.Sprintf("60473c2509268bc77fd0ff%02x", i),
			Location: "ASH", CIDR: fmt.Sprintf("198.51.100.%d/29", 8*i), Network: simtest.NetworkID})
	}
	bought := len(account.Blocks)
	w := newWorldOf(t, pnapsim.Config{}, seed, nil)
	w.node(0, true)
	w.start()
	count := func() int { return len(w.sim.State(simtest.AccountID).Blocks) }
	w.run(4 * time.Minute)
	if n := count(); n != bought {
		t.Errorf("the account has %d blocks after minutes, want %d", n, bought)
	}
	w.run(10 * time.Minute)
	if n := count(); n != bought-1 {
		t.Errorf("the account has %d blocks, want only the ten of others", n)
	}
	w.expectPurchases(0)
	if said := strings.Join(w.takeEvents(), "\n"); !strings.Contains(said, "the slots are held: 10 by others") ||
		!strings.Contains(said, "is released at") {
		t.Errorf("the events are:\n%s", said)
	}
	w.edit(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: account.Blocks[bought-1].ID})
	w.run(5 * time.Minute)
	w.expectPurchases(1)
	if got := w.member(0); !strings.HasSuffix(got, "assigned") {
		t.Errorf("the membership is %s although there is a place again", got)
	}
}

// TestNodeBlockLeavesThePlaceOfAService: the last place of the network is for the block that was bought for a Service.
func TestNodeBlockLeavesThePlaceOfAService(t *testing.T) {
	seed := seedOf(1, "", ownedBy)
	account := &seed.Accounts[0]
	for i := range network.BlockLimit - 1 {
		account.Blocks = append(account.Blocks, pnapsim.BlockSeed{ID: fmt.Sprintf("60473c2509268bc77fd0ff%02x", i),
			Location: "ASH", CIDR: fmt.Sprintf("198.51.100.%d/29", 8*i), Network: simtest.NetworkID})
	}
	account.Blocks = append(account.Blocks, pnapsim.BlockSeed{ID: surplusA, Location: "ASH", CIDR: "203.0.113.0/29",
		Tags: map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID,
			contract.TagService: "shop_web"}})
	w := newWorldOf(t, pnapsim.Config{}, seed, nil)
	w.node(0, true)
	w.start()
	w.run(30 * time.Minute)
	w.expectPurchases(0)
}
