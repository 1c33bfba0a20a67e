package membership

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

func TestSelectedServersJoinAndLeave(t *testing.T) {
	w := newWorld(t, seedOf(3, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.node(1, true)
	w.node(2, false)
	w.start()
	w.run(2 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	w.expectMember(1, "203.0.113.3 assigned")
	w.expectMember(2, "none")
	w.expectRecord(0, 1)
	w.expectEvents("Normal PublicNetworkJoining", "Normal PublicNetworkJoining", "Normal PublicNetworkJoined",
		"Normal PublicNetworkJoined")
	if got := w.get(0).Annotations[contract.NodeMembershipManaged]; got != "default" {
		t.Errorf("annotation %q", got)
	}

	w.selectNode(0, false)
	w.run(4 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned") // the label may have been edited by mistake
	w.run(3 * time.Minute)
	w.expectMember(0, "none")
	w.expectMember(1, "203.0.113.3 assigned")
	w.expectRecord(1)
	w.expectEvents("Normal PublicNetworkLeaving", "Normal PublicNetworkLeft")
	if got, ok := w.get(0).Annotations[contract.NodeMembershipManaged]; ok {
		t.Errorf("annotation %q is left", got)
	}

	// The address of the server that left is quarantined before another server gets it.
	w.selectNode(2, true)
	w.run(2 * time.Minute)
	w.expectMember(2, "203.0.113.4 assigned")
	if _, quarantined := w.ledger().Quarantined[netip.MustParseAddr("203.0.113.2")]; !quarantined {
		t.Errorf("the address of the server that left is not in quarantine: %+v", w.ledger())
	}
}

// TestRefusedLeaveIsReported: the API rejects that a server leaves the network.
func TestRefusedLeaveIsReported(t *testing.T) {
	w := newWorld(t, seedOf(1, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.start()
	w.run(2 * time.Minute)
	w.takeEvents()
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodDelete, Path: "/bmc/v1/servers/*/network-configuration/*/*/*",
		Times:  -1,
		Action: pnapsim.FaultStatus, Status: http.StatusForbidden}); err != nil {
		t.Fatal(err)
	}
	w.selectNode(0, false)
	w.run(10 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	if got := w.takeEvents(); !slices.ContainsFunc(got, func(text string) bool {
		return strings.HasPrefix(text, "Warning "+ReasonLeaveRefused) && strings.Contains(text, "403")
	}) {
		t.Errorf("events %q", got)
	}
}

func TestSteadyStateChangesAndAsksNothingOfItsOwn(t *testing.T) {
	w := newWorld(t, seedOf(2, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.node(1, false)
	w.start()
	w.run(5 * time.Minute)
	before, changes := len(w.sim.Log(0)), w.changes()
	w.run(10 * time.Minute)
	// The list of servers and the network are shared with other controllers: one request each in 30 seconds, and
	// tokens.
	if calls := len(w.sim.Log(0)) - before; calls > 42 || w.changes() != changes {
		t.Errorf("%d requests in ten minutes, %d changes", calls, w.changes()-changes)
	}
}

//proves:known-bugs/membership-by-cache
func TestForeignMembershipsAreNotChanged(t *testing.T) {
	seed := seedOf(2, "203.0.113.0/28", nil)
	seed.Accounts[0].Servers[0].Networks = []pnapsim.MembershipSeed{{Network: simtest.NetworkID,
		IPs: []string{"203.0.113.2"}}}
	w := newWorld(t, seed, nil)
	w.node(0, false)
	w.node(1, true)
	w.start()
	w.run(15 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	w.expectMember(1, "203.0.113.3 assigned") // not the address that the other has without an entry in the ledger
	w.expectRecord(1)
	// A server that a user gives other addresses is no longer managed.
	w.edit(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID(1), Network: simtest.NetworkID})
	w.edit(pnapsim.Edit{Kind: pnapsim.EditAddMember, Server: serverID(1), Network: simtest.NetworkID,
		IPs: []string{"203.0.113.9"}})
	w.selectNode(1, false)
	w.run(15 * time.Minute)
	w.expectMember(1, "203.0.113.9 assigned")
	w.expectRecord()
}

func TestLostMembershipIsRenewedWithItsAddress(t *testing.T) {
	w := newWorld(t, seedOf(2, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.node(1, true)
	w.start()
	w.run(2 * time.Minute)
	w.edit(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID(0), Network: simtest.NetworkID})
	w.run(3 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
}

func TestServerOfADeletedNodeLeaves(t *testing.T) {
	w := newWorld(t, seedOf(3, "203.0.113.0/28", nil), nil)
	for i := range 3 {
		w.node(i, true)
	}
	w.start()
	w.run(2 * time.Minute)
	if err := w.kube.CoreV1().Nodes().Delete(t.Context(), nodeName(0), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.kube.CoreV1().Nodes().Delete(t.Context(), nodeName(1), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.edit(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: serverID(1)})
	w.run(10 * time.Minute)
	w.expectMember(0, "none")
	w.expectRecord(2)
	if held := w.ledger().Held; len(held) != 1 {
		t.Errorf("addresses are held by %v", held)
	}
}

// A cluster without Nodes, or with an empty cache, is being restored: no server leaves.
//
//proves:known-bugs/membership-by-cache
func TestNoNodeAtAllIsNotBelieved(t *testing.T) {
	w := newWorld(t, seedOf(1, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.start()
	w.run(2 * time.Minute)
	if err := w.kube.CoreV1().Nodes().Delete(t.Context(), nodeName(0), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	failures := 0
	for range 100 {
		if _, err := w.sync(); err != nil {
			failures++
		}
		w.sim.Advance(10 * time.Second)
	}
	w.expectMember(0, "203.0.113.2 assigned")
	if failures == 0 {
		t.Error("no error")
	}
}

// The cache is stale: the live Nodes are still selected.
//
//proves:known-bugs/membership-by-cache
func TestNoServerLeavesOnTheWordOfTheCache(t *testing.T) {
	w := newWorld(t, seedOf(2, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.node(1, true)
	w.start()
	w.run(2 * time.Minute)
	stale := w.get(0)
	stale.Labels["edge"] = "false"
	indexer := w.manager.config.Nodes.Informer().GetIndexer()
	for range 60 {
		if err := indexer.Update(stale); err != nil {
			t.Fatal(err)
		}
		if _, err := w.manager.Sync(testlog.Context(t)); err != nil {
			t.Fatal(err)
		}
		w.sim.Advance(10 * time.Second)
	}
	w.expectMember(0, "203.0.113.2 assigned")
}

func TestFullNodeBlockIsReported(t *testing.T) {
	w := newWorld(t, seedOf(2, "203.0.113.0/30", nil), nil)
	w.node(0, true)
	w.node(1, true)
	w.start()
	w.run(30 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	w.expectMember(1, "none")
	w.expectEvents("Normal PublicNetworkJoining", "Normal PublicNetworkJoined", "Warning NodeBlockFull")
	before := len(w.sim.Log(0))
	w.run(10 * time.Minute)
	if calls := len(w.sim.Log(0)) - before; calls > 120 {
		t.Errorf("%d requests in ten minutes while the block is full", calls)
	}
}

func TestServerElsewhereIsReported(t *testing.T) {
	seed := seedOf(2, "203.0.113.0/28", nil)
	seed.Accounts[0].Servers[0].Location = "PHX"
	w := newWorld(t, seed, nil)
	w.node(0, true)
	w.node(1, true)
	w.start()
	w.run(10 * time.Minute)
	w.expectMember(1, "203.0.113.2 assigned")
	w.expectEvents("Warning PublicNetworkJoinRefused", "Normal PublicNetworkJoining", "Normal PublicNetworkJoined")
}

// The user's block is assigned if necessary, and never deleted.
func TestBroughtBlockIsAssigned(t *testing.T) {
	seed := seedOf(1, "203.0.113.0/28", nil)
	seed.Accounts[0].Blocks[0].Network = ""
	seed.Accounts[0].Blocks[0].Grants = []string{pnapsim.GrantAssign}
	w := newWorld(t, seed, nil)
	w.node(0, true)
	w.start()
	w.run(5 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	if !w.ledger().AssignedHere {
		t.Error("the tags do not record which cluster assigned the block")
	}
}

// unusable is a block that a person brings and of which nodes get no address.
type unusable struct {
	of   func(*pnapsim.BlockSeed)
	says string
}

// tagged is a block with tags in the portal.
func tagged(tags map[string]string) func(*pnapsim.BlockSeed) {
	return func(b *pnapsim.BlockSeed) { b.Tags = tags }
}

const otherNetwork = "60473a6115e34466c9f8f0a7"

func TestUnusableNodeBlockIsReported(t *testing.T) {
	owned := "which was bought for something else, or has the tag cluster of another cluster; bring another block"
	for name, test := range map[string]unusable{
		"missing": {of: func(b *pnapsim.BlockSeed) { b.ID = largerBlock },
			says: "is of IP block " + simtest.NodeBlockID + ", which the account does not have; delete it"},
		"a Service's": {of: tagged(map[string]string{"usage": contract.TagUsageAuto, "cluster": clusterUID,
			"service": "shop_web"}), says: owned},
		"a pool's": {of: tagged(map[string]string{"usage": contract.TagUsageAuto, "cluster": clusterUID,
			"pool": "default"}), says: owned},
		"another cluster's": {of: tagged(map[string]string{"cluster": "another"}), says: owned},
		"in another location": {of: func(b *pnapsim.BlockSeed) {
			b.Location = "PHX"
			b.Network = ""
		}, says: "is in location PHX; bring one in ASH, where public network " + simtest.NetworkID + " is"},
		"in another network": {of: func(b *pnapsim.BlockSeed) { b.Network = otherNetwork },
			says: "is assigned to " + otherNetwork + " instead of public network " + simtest.NetworkID + "; remove it"},
		"too small": {of: func(b *pnapsim.BlockSeed) { b.CIDR = "203.0.113.0/32" }, says: "use one of size"},
	} {
		t.Run(name, func(t *testing.T) {
			seed := seedOf(1, "203.0.113.0/28", nil)
			seed.Accounts[0].Networks = append(seed.Accounts[0].Networks,
				pnapsim.NetworkSeed{ID: otherNetwork, Name: "other", Location: "ASH", VLAN: 77})
			test.of(&seed.Accounts[0].Blocks[0])
			w := newWorld(t, seed, nil)
			if w.objectOf(simtest.NodeBlockID) == "" {
				w.bring(broughtObject, simtest.NodeBlockID)
			}
			w.node(0, true)
			w.start()
			w.run(10 * time.Minute)
			w.expectMember(0, "none")
			said := w.takeEvents()
			if len(said) != 1 || !strings.HasPrefix(said[0], "Warning NodeBlockUnavailable IPBlock "+broughtObject) ||
				!strings.Contains(said[0], test.says) {
				t.Errorf("events %q, want one that says %q", said, test.says)
			}
		})
	}
}

// Without a block of the user, one is bought, serves all nodes, and is released when no Node is selected any more.
func TestNodeBlockIsBoughtAndReleased(t *testing.T) {
	one := 1
	w := newWorld(t, seedOf(3, "", func(c *pnapsim.ClientSeed) { c.MaxPurchases = &one }), nil)
	for i := range 3 {
		w.node(i, i < 2)
	}
	w.start()
	w.run(5 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	w.expectMember(1, "203.0.113.3 assigned")
	w.selectNode(0, false)
	w.selectNode(1, false)
	w.run(40 * time.Minute)
	w.expectMember(0, "none")
	w.expectRecord()
	if leaks := w.sim.LeakCheck(simtest.ClientID); len(leaks) > 0 {
		t.Errorf("blocks %v are left", leaks)
	}
	list, err := w.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(t.Context(),
		metav1.ListOptions{LabelSelector: "phoenixnap.com/ip-block-ledger=true"})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("ledgers are left: %v, %v", list.Items, err)
	}
}

func TestJoiningWithoutAddresses(t *testing.T) {
	w := newWorld(t, seedOf(2, "", func(c *pnapsim.ClientSeed) { c.AllowForce = []string{pnapsim.ForceJoin} }),
		func(c *Network) { c.WithoutAddress = true })
	w.node(0, true)
	w.node(1, true)
	w.start()
	w.run(3 * time.Minute)
	w.expectMember(0, "assigned")
	w.selectNode(0, false)
	w.run(8 * time.Minute)
	w.expectMember(0, "none")
	w.expectMember(1, "assigned")
}

func TestDryRunChangesNothing(t *testing.T) {
	for name, cidr := range map[string]string{"with a block": "203.0.113.0/28", "without": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, seedOf(1, cidr, nil), nil)
			w.dryRun = true
			w.node(0, true)
			w.start()
			w.run(20 * time.Minute)
			if changes := w.changes(); changes != 0 {
				t.Errorf("%d changes", changes)
			}
			w.expectEvents("Normal DryRun dry run: would")
			w.expectRecord()
		})
	}
}

// A rejected request is reported once, and the server waits for a while.
func TestRefusalIsReported(t *testing.T) {
	w := newWorld(t, seedOf(1, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	if err := w.sim.Arm(pnapsim.Fault{Method: "POST",
		Path:   "/bmc/v1/servers/*/network-configuration/public-network-configuration/public-networks",
		Action: pnapsim.FaultStatus, Status: 400, Times: 3}); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.run(14 * time.Minute)
	if got := w.changes(); got != 3 {
		t.Errorf("%d requests to join in 14 minutes, want 3", got)
	}
	w.expectEvents("Warning PublicNetworkJoinRefused")
	w.run(4 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
}

//proves:known-bugs/endless-loops
func TestRunEndsWithItsContext(t *testing.T) {
	w := newWorld(t, seedOf(1, "203.0.113.0/28", nil), nil)
	w.start()
	ctx, cancel := context.WithCancel(testlog.Context(t))
	cancel()
	if err := w.manager.Run(ctx); err != nil {
		t.Error(err)
	}
}

// westID is a second public network of the account, in another location.
const westID = "60473c2509268bc77fd06d2b"

// TestTwoNetworks: each server joins the network of its location, with an address of a block that is bought there, and
// leaves it when its Node is not selected any more. A Node names the networks.
func TestTwoNetworks(t *testing.T) {
	seed := seedOf(2, "203.0.113.0/28", nil)
	account := &seed.Accounts[0]
	account.Servers[1].Location = "PHX"
	account.Networks = append(account.Networks, pnapsim.NetworkSeed{ID: westID, Name: "west", Location: "PHX",
		VLAN: 56})
	w := newWorld(t, seed, nil)
	west := w.network
	west.Named = network.Named{Name: "west", ID: westID}
	w.config.Networks = func() []Network { return []Network{w.network, west} }
	w.config.Elsewhere = func(string) bool { return true }
	w.start()
	w.node(0, true)
	w.node(1, true)
	w.run(10 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	entry, member := membershipOf(w.servers()[serverID(1)], westID)
	if !member || len(entry.IPs) != 1 || entry.Status != pnap.MembershipAssigned {
		t.Errorf("server in PHX: %+v", entry)
	}
	for i, want := range []string{"default", "west"} {
		if got := w.get(i).Annotations[contract.NodeMembershipManaged]; got != want {
			t.Errorf("Node %d: managed in %q, want %q", i, got, want)
		}
	}
	object, err := w.blocks.Get(t.Context(), v1beta1.NodesPrefix("west")+"1", metav1.GetOptions{})
	if err != nil || object.Spec.Attachment.Name != "west" || object.Spec.BlockID == "" {
		t.Errorf("the block of the nodes in the west: %+v, %v", object, err)
	}
	for _, event := range w.takeEvents() {
		if strings.HasPrefix(event, "Warning") {
			t.Error(event)
		}
	}
	w.selectNode(1, false)
	w.run(20 * time.Minute)
	if _, member := membershipOf(w.servers()[serverID(1)], westID); member {
		t.Error("the server stays in the west")
	}
	if got, has := w.get(1).Annotations[contract.NodeMembershipManaged]; has {
		t.Errorf("managed in %q", got)
	}
	w.expectMember(0, "203.0.113.2 assigned")
}

// TestOneChangeAtATime: a server joins a second network once its membership of the first one has changed.
func TestOneChangeAtATime(t *testing.T) {
	seed := seedOf(1, "203.0.113.0/28", func(c *pnapsim.ClientSeed) {
		c.AllowForce = []string{pnapsim.ForceJoin}
	})
	account := &seed.Accounts[0]
	account.Networks = append(account.Networks, pnapsim.NetworkSeed{ID: westID, Name: "west", Location: "ASH",
		VLAN: 57})
	w := newWorld(t, seed, nil)
	west := w.network
	west.Named = network.Named{Name: "west", ID: westID}
	west.WithoutAddress = true
	w.config.Networks = func() []Network { return []Network{w.network, west} }
	w.start()
	w.node(0, true)
	w.run(10 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	if entry, member := membershipOf(w.servers()[serverID(0)], westID); !member ||
		entry.Status != pnap.MembershipAssigned {
		t.Errorf("in the west: %+v", entry)
	}
	if got := w.get(0).Annotations[contract.NodeMembershipManaged]; got != "default,west" {
		t.Errorf("managed in %q", got)
	}
	if broken := w.sim.Violations(); len(broken) > 0 {
		t.Errorf("rules broken: %v", broken)
	}
}
