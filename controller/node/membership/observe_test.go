package membership

import (
	"errors"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// TestServersOfAnotherNetworkAreUnwanted: a recorded server is to leave the network in which it was recorded when its
// Node is not selected, and when another network is configured since.
func TestServersOfAnotherNetworkAreUnwanted(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &Manager{unwanted: map[string]time.Time{"before": at.Add(-time.Minute), "wanted": at.Add(-time.Minute)}}
	m.remember(picture{
		now: at, network: plan.Network{ID: "network"},
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
	kept := plan.Block{ID: "kept", Description: "bought for the nodes nonce-1"}
	open := func(nonce, block string) *contract.Purchase {
		return &contract.Purchase{Nonce: nonce, BlockID: block, Time: now.Add(-time.Second)}
	}
	settled := &contract.Purchase{Nonce: "nonce-2", BlockID: "gone", Time: now.Add(-plan.PurchaseSettles)}
	for name, test := range map[string]struct {
		recorded   *contract.Purchase
		unreadable error
		visible    []string
		want       bool
	}{
		"nothing recorded":                     {nil, nil, nil, true},
		"the record cannot be read":            {nil, errors.New("garbage"), nil, false},
		"recorded already":                     {open("nonce-1", "kept"), nil, []string{"kept"}, false},
		"its own purchase, block not recorded": {open("nonce-1", ""), nil, []string{"kept"}, true},
		"another purchase is open":             {open("nonce-2", ""), nil, []string{"kept"}, false},
		"another block was answered, unseen":   {open("nonce-2", "other"), nil, []string{"kept"}, false},
		"another block was answered, seen":     {open("nonce-2", "other"), nil, []string{"kept", "other"}, true},
		"another purchase is settled":          {settled, nil, []string{"kept"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := blocks{unreadable: test.unreadable}
			b.View = plan.View{Now: now, Purchase: test.recorded}
			for _, id := range test.visible {
				b.nodes = append(b.nodes, plan.Sighting{Block: plan.Block{ID: id}})
			}
			if got := b.adopts(kept); got != test.want {
				t.Errorf("adopts is %t, want %t", got, test.want)
			}
		})
	}
}
