package membership

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// TestServersOfAnotherNetworkAreUnwanted: a recorded server is to leave the network in which it was recorded when its
// Node is not selected, and when another network is configured since.
func TestServersOfAnotherNetworkAreUnwanted(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &Manager{unwanted: map[string]time.Time{"before": at.Add(-time.Minute), "wanted": at.Add(-time.Minute)}}
	m.remember(observed{
		now: at, network: network.Network{ID: "network"},
		wanted: map[string]*corev1.Node{"wanted": {}, "elsewhere": {}},
		memberRecord: memberRecord{members: map[string]joined{
			"wanted": {Network: "network"}, "elsewhere": {Network: "other"},
			"unselected": {Network: "network"}, "before": {Network: "network"},
		}},
	})
	want := map[string]time.Time{"elsewhere": at, "unselected": at, "before": at.Add(-time.Minute)}
	if !maps.Equal(m.unwanted, want) {
		t.Errorf("unwanted %v, want %v", m.unwanted, want)
	}
}

// TestAdopts: the record of the node block's purchase is replaced only when no other block can appear for it.
func TestAdopts(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	kept := network.Block{ID: "kept", Description: "bought for the nodes nonce-1"}
	open := func(nonce, block string) *ipblock.Purchase {
		return &ipblock.Purchase{Nonce: nonce, BlockID: block, Time: now.Add(-time.Second)}
	}
	settled := &ipblock.Purchase{Nonce: "nonce-2", BlockID: "gone", Time: now.Add(-ipblock.PurchaseSettles)}
	for name, test := range map[string]struct {
		recorded *ipblock.Purchase
		visible  []string
		want     bool
	}{
		"nothing recorded":                     {nil, nil, true},
		"recorded already":                     {open("nonce-1", "kept"), []string{"kept"}, false},
		"its own purchase, block not recorded": {open("nonce-1", ""), []string{"kept"}, true},
		"another purchase is open":             {open("nonce-2", ""), []string{"kept"}, false},
		"another block was answered, unseen":   {open("nonce-2", "other"), []string{"kept"}, false},
		"another block was answered, seen":     {open("nonce-2", "other"), []string{"kept", "other"}, true},
		"another purchase is settled":          {settled, []string{"kept"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := blocks{}
			b.Account = ipblock.Account{Now: now, Purchase: test.recorded}
			if test.recorded != nil {
				b.records = ipblock.Records{{Nodes: true, Purchase: *test.recorded}}
			}
			for _, id := range test.visible {
				b.nodes = append(b.nodes, network.Sighting{Block: network.Block{ID: id}})
			}
			if got := b.adopts(kept); got != test.want {
				t.Errorf("adopts is %t, want %t", got, test.want)
			}
		})
	}
}

// TestNoNodeIsWantedOnTheWordOfTheCache: whether a Node is wanted is read live before the node block is released.
func TestNoNodeIsWantedOnTheWordOfTheCache(t *testing.T) {
	for name, selected := range map[string]bool{"a Node is selected": true, "no Node is selected": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, seedOf(1, "203.0.113.0/28", nil), nil)
			w.node(0, selected)
			w.start()
			idle := true
			if _, err := w.only().confirm(t.Context(), observed{}, nil, &idle); err != nil {
				t.Fatal(err)
			}
			if idle == selected {
				t.Errorf("idle is %t", idle)
			}
		})
	}
}

// TestAServerThatItsIDShowsIsNotForgotten: the list of servers may omit one. A server that is gone is forgotten.
func TestAServerThatItsIDShowsIsNotForgotten(t *testing.T) {
	w := newWorld(t, seedOf(1, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.start()
	w.run(2 * time.Minute)
	for _, exists := range []bool{true, false} {
		if !exists {
			w.edit(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: serverID(0)})
			w.sim.Advance(time.Hour)
		}
		recorded, err := w.only().store.load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		network, err := w.manager.config.Account.Network(t.Context(), simtest.NetworkID, w.sim.Clock().Now())
		if err != nil {
			t.Fatal(err)
		}
		p := &pass{Manager: w.only(), observed: observed{now: w.sim.Clock().Now(), network: network,
			memberRecord: recorded}}
		if err := p.confirmLost(testlog.Context(t), serverID(0)); err != nil {
			t.Fatal(err)
		}
		if _, known := p.memberRecord.members[serverID(0)]; known != exists {
			t.Errorf("recorded is %t of a server that exists: %t", known, exists)
		}
	}
}

// TestAChangeExpiresTheCache: what was read before a server or a block was changed serves no other controller.
func TestAChangeExpiresTheCache(t *testing.T) {
	w := newWorldOf(t, lagging(0), seedOf(1, "", ownedBy), nil)
	w.node(0, true)
	w.start()
	changes := func() int {
		w.t.Helper()
		return w.purchases() + w.sim.Count("POST /bmc/v1/servers/{serverId}/network-configuration"+
			"/public-network-configuration/public-networks")
	}
	found := 0
	for range 40 {
		before := changes()
		again, err := w.sync()
		if err != nil {
			t.Fatal(err)
		}
		if changes() > before {
			found++
			const list = "GET /ips/v1/ip-blocks"
			asked := w.sim.Count(list)
			if _, err := w.manager.config.Account.Blocks(t.Context(), time.Time{}); err != nil {
				t.Fatal(err)
			}
			if w.sim.Count(list) == asked {
				t.Error("the list of blocks is one from before the change")
			}
		}
		w.sim.Advance(again)
	}
	if found != 2 {
		t.Errorf("%d changes, want a purchase and a join", found)
	}
}
