package membership

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// lags are possible delays of the list of blocks.
var lags = []time.Duration{0, 30 * time.Second, 90 * time.Second, 30 * time.Minute, never}

const blocksPath = "/ips/v1/ip-blocks"

// ownedBy allows the client to change blocks with the cluster's tags, although the test seeded them.
func ownedBy(c *pnapsim.ClientSeed) {
	c.OwnershipTags = map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID}
}

func (w *world) purchases() int { return w.sim.Money(simtest.AccountID).Purchases }

func (w *world) expectPurchases(want int) {
	w.t.Helper()
	if got := w.purchases(); got != want {
		w.t.Errorf("%d purchases, want %d", got, want)
	}
}

// loseRecord deletes the object that records the purchase and the addresses.
func (w *world) loseRecord() {
	w.t.Helper()
	if err := kubefake.Lose(w.t.Context(), w.blocks, v1beta1.NodesPrefix(v1beta1.DefaultNetwork)+"1"); err != nil {
		w.t.Fatal(err)
	}
}

// Whatever the list of blocks shows, and even if the answer, the record or the process is lost: one block is bought,
// serves all nodes, and is released.
//
//proves:known-bugs/late-list
func TestNodeBlockIsBoughtOnceUnderAnyLag(t *testing.T) {
	for _, lag := range lags {
		for name, test := range map[string]struct {
			lost   bool
			change func(*world)
		}{
			"undisturbed":            {change: func(*world) {}},
			"answer lost":            {change: func(*world) {}, lost: true},
			"answer lost, restarted": {change: (*world).start, lost: true},
			"record lost":            {change: (*world).loseRecord},
		} {
			t.Run(fmt.Sprintf("lag %s, %s", lag, name), func(t *testing.T) {
				t.Parallel()
				boughtOnce(t, lag, test.lost, test.change)
			})
		}
	}
}

func boughtOnce(t *testing.T, lag time.Duration, lost bool, change func(*world)) {
	w := newWorldOf(t, lagging(lag), seedOf(3, "", ownedBy), nil)
	for i := range 3 {
		w.node(i, i < 2)
	}
	if lost {
		if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath,
			Action: pnapsim.FaultLost}); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	for w.purchases() == 0 {
		again, _ := w.sync()
		w.sim.Advance(again)
	}
	change(w)
	w.run(20 * time.Minute)
	w.expectPurchases(1)
	w.expectMember(0, "203.0.113.2 assigned")
	w.expectMember(1, "203.0.113.3 assigned")
	w.selectNode(0, false)
	w.selectNode(1, false)
	w.run(40 * time.Minute)
	w.expectMember(0, "none")
	w.expectPurchases(1)
	if leaks := w.sim.LeakCheck(simtest.ClientID); len(leaks) > 0 {
		t.Errorf("blocks %v are left", leaks)
	}
	// The list may still show the deleted block, which has no effect.
	w.selectNode(0, true)
	w.run(5 * time.Minute)
	w.expectPurchases(2)
	if got := w.member(0); got == "none" {
		t.Error("the server did not become a member again")
	}
}

// A server joins and leaves once, however late the list of servers shows it.
func TestServerChangesOnceUnderAnyLag(t *testing.T) {
	for _, lag := range lags {
		t.Run(fmt.Sprint("lag ", lag), func(t *testing.T) {
			t.Parallel()
			latency := pnapsim.DefaultLatency()
			latency.ServerListLag = pnapsim.Duration(lag)
			w := newWorldOf(t, pnapsim.Config{Latency: &latency}, seedOf(1, "203.0.113.0/28", nil), nil)
			w.node(0, false)
			w.start()
			// The list that the change is made from is about to expire, and the next one is read soon after.
			if _, err := w.sync(); err != nil {
				t.Fatal(err)
			}
			w.sim.Advance(instances.DefaultWindow - time.Second)
			w.selectNode(0, true)
			w.run(40 * time.Minute)
			w.expectRequests(http.MethodPost, 1)
			if lag == never { // the list never shows that it joined
				return
			}
			w.selectNode(0, false)
			w.run(2 * time.Hour)
			w.expectRequests(http.MethodPost, 1)
			w.expectRequests(http.MethodDelete, 1)
			w.expectMember(0, "none")
		})
	}
}

// expectRequests counts the changes of the memberships of servers.
func (w *world) expectRequests(method string, want int) {
	w.t.Helper()
	got := 0
	for _, entry := range w.sim.Log(0) {
		if entry.Method == method && strings.Contains(entry.Path, "/public-network-configuration/") {
			got++
		}
	}
	if got != want {
		w.t.Errorf("%d %s requests for memberships, want %d", got, method, want)
	}
}

// --max-ip-blocks counts blocks that the list does not show.
func TestUnlistedBlocksCount(t *testing.T) {
	seed := seedOf(1, "203.0.113.0/28", ownedBy)
	seed.Accounts[0].Blocks[0].Network = ""
	seed.Accounts[0].Blocks[0].Tags = map[string]string{
		contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID, contract.TagService: "shop_web",
	}
	w := newWorldOf(t, lagging(never), seed, func(c *Network) { c.MaxBlocks = 1 })
	w.node(0, true)
	w.start()
	w.run(10 * time.Minute)
	w.expectPurchases(0)
	w.expectEvents("Warning NodeBlockUnavailable no block for the nodes' own addresses can be bought: the cluster " +
		"has 1 IP blocks")
}

// A block that a person brings is found by its ID.
func TestUnlistedBroughtBlockIsFound(t *testing.T) {
	w := newWorldOf(t, lagging(never), seedOf(1, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.start()
	w.run(3 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	w.selectNode(0, false)
	w.run(10 * time.Minute)
	w.expectMember(0, "none")
	if held := w.ledger().Held; len(held) > 0 {
		t.Errorf("addresses are held by %v", held)
	}
}
