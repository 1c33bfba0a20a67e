package membership

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// emptyList is an API whose list of servers is empty while their IDs answer.
type emptyList struct{ instances.Source }

func (emptyList) Servers(context.Context) ([]pnap.Server, error) { return nil, nil }

// An empty list of servers changes nothing: neither memberships nor what Nodes show of them.
func TestAnEmptyListOfServersIsNotBelieved(t *testing.T) {
	w := newWorld(t, seedOf(2, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.node(1, true)
	w.start()
	w.run(3 * time.Minute)
	before := w.changes()
	w.only().config.Servers = instances.NewInventory(instances.InventoryConfig{
		Source: emptyList{w.only().config.Cloud}, Now: w.sim.Clock().Now})
	for range 20 {
		if _, err := w.sync(); err == nil {
			t.Error("no error")
		}
		w.sim.Advance(time.Minute)
	}
	if w.changes() != before {
		t.Errorf("%d changes", w.changes()-before)
	}
	for i := range 2 {
		if w.get(i).Annotations[contract.NodeMembershipManaged] != "default" {
			t.Errorf("the annotations of node %d are %v", i, w.get(i).Annotations)
		}
	}
	w.expectRecord(0, 1)
}

// The block of the nodes stays until the address of the last server has been in quarantine. Its ledger is closed before
// it leaves the network.
func TestANodeBlockIsKeptWhileItsAddressesAreInQuarantine(t *testing.T) {
	w := newWorld(t, withSurplus(1, surplusA), nil)
	w.recordPurchase(surplusA)
	w.node(0, true)
	w.start()
	w.run(3 * time.Minute)
	if w.member(0) == "none" {
		t.Fatal("the server has not joined")
	}
	w.selectNode(0, false)
	var left time.Time
	for until := w.sim.Clock().Now().Add(2 * time.Hour); w.sim.Clock().Now().Before(until); {
		if left.IsZero() && w.member(0) == "none" {
			left = w.sim.Clock().Now()
		}
		blocks := w.sim.State(simtest.AccountID).Blocks
		if len(blocks) == 0 {
			break
		}
		ledger, err := w.manager.config.Ledgers.Get(t.Context(), surplusA)
		if status := blocks[0]["status"]; status != string(network.Assigned) && (err != nil || !ledger.Closed) {
			t.Fatalf("the block is %v, and its ledger %+v, %v; want a closed one", status, ledger, err)
		}
		again, err := w.sync()
		if err != nil {
			t.Fatal(err)
		}
		w.sim.Advance(again)
	}
	w.expectBlocks()
	if kept := w.sim.Clock().Now().Sub(left); left.IsZero() || kept < ipblock.Quarantine {
		t.Errorf("the block was kept for %v after the server had left, want %v", kept, ipblock.Quarantine)
	}
}

// An address of a server that does not have it, because a process ended between two writes, is quarantined too before
// its block is released.
func TestAnAddressWithoutAServerIsQuarantined(t *testing.T) {
	w := newWorld(t, withSurplus(1, surplusA), nil)
	w.recordPurchase(surplusA)
	w.node(0, true)
	w.start()
	w.run(3 * time.Minute)
	if err := w.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(t.Context(), RecordName,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.edit(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID(0), Network: simtest.NetworkID})
	w.selectNode(0, false)
	w.run(leaveAfter + ipblock.Quarantine - time.Minute)
	w.expectBlocks(surplusA)
	w.run(time.Hour)
	w.expectBlocks()
}
