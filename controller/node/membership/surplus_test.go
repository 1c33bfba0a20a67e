package membership

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// Blocks that were bought for the nodes before, one of them in the network.
const (
	surplusA = "6047127fed34ecc3ba8402e1"
	surplusB = "6047127fed34ecc3ba8402e2"
	surplusC = "6047127fed34ecc3ba8402e3"
)

// withSurplus is an account with three blocks bought for the nodes; assigned names those that are in the network.
func withSurplus(servers int, assigned ...string) pnapsim.Seed {
	seed := seedOf(servers, "", ownedBy)
	for i, id := range []string{surplusA, surplusB, surplusC} {
		block := pnapsim.BlockSeed{
			ID: id, Location: "ASH", CIDR: []string{"203.0.113.0/28", "203.0.113.16/28", "203.0.113.32/28"}[i],
			Tags: map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID,
				contract.TagNodes: clusterUID},
		}
		for _, each := range assigned {
			if each == id {
				block.Network = simtest.NetworkID
			}
		}
		seed.Accounts[0].Blocks = append(seed.Accounts[0].Blocks, block)
	}
	return seed
}

// recordPurchase records the purchase of a block, an hour ago.
func (w *world) recordPurchase(id string) {
	w.t.Helper()
	w.writePurchase(w.sim.Clock().Now().Add(-time.Hour), id)
}

// writePurchase records a purchase of a time, and the block that it bought, if it had an answer.
func (w *world) writePurchase(at time.Time, id string) {
	w.t.Helper()
	record := allocation.ForNodes(w.blocks, v1beta1.DefaultNetwork, w.records())
	intent, err := record.Begin(w.t.Context(), at, nodeBlockSize)
	if err == nil && id != "" {
		err = record.Bought(w.t.Context(), intent, id)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) records() ipblock.Records {
	w.t.Helper()
	listing, err := allocation.NewStore(w.blocks, nil).List(context.WithoutCancel(w.t.Context()))
	if err != nil {
		w.t.Fatal(err)
	}
	return listing.Records
}

// recorded is the ID of the block of the last purchase for the nodes.
func (w *world) recorded() string {
	w.t.Helper()
	last, _ := w.records().Last(true)
	return last.BlockID
}

// expectBlocks expects exactly these blocks in the account.
func (w *world) expectBlocks(want ...string) {
	w.t.Helper()
	var got []string
	for _, view := range w.sim.State(simtest.AccountID).Blocks {
		id, _ := view["id"].(string)
		got = append(got, id)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		w.t.Errorf("the account has blocks %v, want %v", got, want)
	}
}

// Of several blocks one is kept; the others are released after a grace period, even if the list shows none of them.
func TestSurplusNodeBlocksAreReleased(t *testing.T) {
	for name, test := range map[string]struct {
		recorded string
		assigned []string
		keeps    string
	}{
		"the recorded one is kept": {recorded: surplusC, assigned: []string{surplusB},
			keeps: surplusC},
		"without a record the assigned one is kept": {assigned: []string{surplusB}, keeps: surplusB},
		"without a record one of two assigned":      {assigned: []string{surplusB, surplusC}, keeps: surplusB},
		"a record of a block that is gone": {recorded: "6047127fed34ecc3ba8402ff",
			assigned: []string{surplusC}, keeps: surplusC},
		"no record, none assigned": {keeps: surplusA},
		"no record, all assigned":  {assigned: []string{surplusA, surplusB, surplusC}, keeps: surplusA},
	} {
		for _, lag := range []time.Duration{0, 30 * time.Minute, never} {
			t.Run(name+", lag "+lag.String(), func(t *testing.T) {
				t.Parallel()
				w := newWorldOf(t, lagging(lag), withSurplus(1, test.assigned...), nil)
				if test.recorded != "" {
					w.recordPurchase(test.recorded)
				}
				w.node(0, true)
				w.start()
				w.run(4 * time.Minute)
				w.expectBlocks(surplusA, surplusB, surplusC) // within the grace
				w.run(30 * time.Minute)
				w.expectBlocks(test.keeps)
				w.expectPurchases(0)
				if got := w.member(0); got == "none" {
					t.Error("the server is not a member")
				}
				if got := w.recorded(); got != test.keeps {
					t.Errorf("block %q is recorded, want %s", got, test.keeps)
				}
				w.expectEvents("Normal PublicNetworkJoining", "Normal PublicNetworkJoined", "Normal NodeBlockReleased",
					"Normal NodeBlockReleased")
			})
		}
	}
}

// A block of which a server has an address is kept and reported, whatever is recorded, until the server has left.
func TestSurplusInUseIsReportedAndKept(t *testing.T) {
	seed := withSurplus(2, surplusA, surplusB)
	seed.Accounts[0].Servers[0].Networks = []pnapsim.MembershipSeed{{Network: simtest.NetworkID,
		IPs: []string{"203.0.113.18"}}}
	w := newWorld(t, seed, nil)
	w.recordPurchase(surplusC)
	w.node(0, false)
	w.node(1, true)
	w.start()
	w.run(2 * time.Minute)
	w.expectMember(1, "203.0.113.19 assigned") // an address of the block that is in use, not of the recorded one
	w.run(30 * time.Minute)
	w.expectBlocks(surplusB)
	w.expectEvents("Normal PublicNetworkJoining", "Normal PublicNetworkJoined", "Normal NodeBlockReleased",
		"Normal NodeBlockReleased")

	seed = withSurplus(3, surplusA, surplusB)
	seed.Accounts[0].Servers[0].Networks = []pnapsim.MembershipSeed{{Network: simtest.NetworkID,
		IPs: []string{"203.0.113.2"}}}
	seed.Accounts[0].Servers[1].Networks = []pnapsim.MembershipSeed{{Network: simtest.NetworkID,
		IPs: []string{"203.0.113.18"}}}
	w = newWorld(t, seed, nil)
	w.recordPurchase(surplusB)
	w.node(0, false)
	w.node(2, true)
	w.start()
	w.run(time.Hour)
	w.expectBlocks(surplusA, surplusB)
	w.expectMember(0, "203.0.113.2 assigned")
	w.expectMember(2, "203.0.113.19 assigned")
	w.expectEvents("Normal PublicNetworkJoining", "Normal PublicNetworkJoined", "Normal NodeBlockReleased",
		"Warning NodeBlockSurplus IP block "+surplusA+
			" (203.0.113.0/28) was bought for the nodes and is not needed, but paid for: "+
			"node node-0 (server "+serverID(0)+") uses its address 203.0.113.2")
	w.edit(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID(0), Network: simtest.NetworkID})
	w.run(time.Hour)
	w.expectBlocks(surplusB)
}

// If nodes need no bought block, unused blocks are not kept.
func TestNoBoughtBlockIsKeptThatIsNotNeeded(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Network)
		brings bool
	}{
		"a block of a person's": {brings: true},
		"without addresses":     {change: func(c *Network) { c.WithoutAddress = true }},
	} {
		t.Run(name, func(t *testing.T) {
			seed := withSurplus(1, surplusA)
			seed.Accounts[0].Clients[0].AllowForce = []string{pnapsim.ForceJoin}
			var kept []string
			if test.brings {
				kept = append(kept, simtest.NodeBlockID)
				seed.Accounts[0].Blocks = append(seed.Accounts[0].Blocks,
					pnapsim.BlockSeed{ID: simtest.NodeBlockID, Location: "ASH", CIDR: "203.0.113.64/28",
						Network: simtest.NetworkID})
			}
			w := newWorld(t, seed, test.change)
			w.recordPurchase(surplusA)
			w.node(0, true)
			w.start()
			w.run(time.Hour)
			w.expectBlocks(kept...)
			if got := w.member(0); got == "none" {
				t.Error("the server is not a member")
			}
		})
	}
}

// Nothing is released without certainty.
func TestNothingIsReleasedOnAGuess(t *testing.T) {
	for name, fault := range map[string]pnapsim.Fault{
		"the network cannot be read": {Method: "GET", Path: "/networks/v1/public-networks/*",
			Action: pnapsim.FaultStatus, Status: 403},
		"no block can be read by ID": {Method: "GET", Path: blocksPath + "/*", Action: pnapsim.FaultStatus,
			Status: 500},
		"tags cannot be read": {Method: "GET", Path: "/tag-manager/v1/tags", Action: pnapsim.FaultStatus,
			Status: 500},
		"the list cannot be read": {Method: "GET", Path: blocksPath, Action: pnapsim.FaultStatus, Status: 500},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withSurplus(1, surplusA), nil)
			w.recordPurchase(surplusA)
			w.node(0, true)
			fault.Times = -1
			fault.Client = simtest.ClientID
			if err := w.sim.Arm(fault); err != nil {
				t.Fatal(err)
			}
			w.start()
			try := func() { // failures are expected, also for a while after the last fault
				for range 120 {
					_, _ = w.sync()
					w.sim.Advance(15 * time.Second)
				}
			}
			try()
			w.expectBlocks(surplusA, surplusB, surplusC)
			w.expectPurchases(0)
			w.sim.Disarm()
			try()
			w.expectBlocks(surplusA)
		})
	}
}

// An address of a server that does not have it, because a process ended between two writes, does not keep a block.
func TestAnAddressWithoutAServerKeepsNoBlock(t *testing.T) {
	w := newWorld(t, withSurplus(2, surplusA), nil)
	w.recordPurchase(surplusA)
	w.node(0, true)
	w.node(1, true)
	w.start()
	w.run(3 * time.Minute)
	if err := w.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(t.Context(), RecordName,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		w.edit(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID(i), Network: simtest.NetworkID})
		w.selectNode(i, false)
	}
	w.run(time.Hour)
	w.expectBlocks()
}

func TestDryRunGivesNothingBack(t *testing.T) {
	w := newWorld(t, withSurplus(1, surplusA, surplusB), nil)
	w.recordPurchase(surplusA)
	w.dryRun = true
	w.start()
	w.node(0, false)
	w.run(time.Hour)
	w.expectBlocks(surplusA, surplusB, surplusC)
	if changes := w.changes(); changes != 0 {
		t.Errorf("%d changes", changes)
	}
	for _, text := range w.takeEvents() {
		if !strings.HasPrefix(text, "Normal DryRun dry run: would") {
			t.Errorf("event %q", text)
		}
	}
}

// A block that a user marked as retained is not changed, needed or not.
func TestRetainedNodeBlockIsNotChanged(t *testing.T) {
	seed := withSurplus(1, surplusA)
	seed.Accounts[0].Blocks[2].Tags[contract.TagRetain] = contract.TagTrue
	w := newWorld(t, seed, nil)
	w.recordPurchase(surplusA)
	w.node(0, false)
	w.start()
	w.run(time.Hour)
	w.expectBlocks(surplusC)
}
