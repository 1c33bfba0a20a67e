package ipblock_test

import (
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

// TestUntouchable: every state that is known may be changed, unless phoenixNAP manages the block.
func TestUntouchable(t *testing.T) {
	known := []network.BlockStatus{network.Creating, network.Unassigned, network.Assigning, network.Assigned,
		network.Unassigning, network.ErrorAssigning, network.ErrorUnassigning}
	for _, status := range known {
		b := network.Block{ID: "a", Status: status}
		if refusal, refused := ipblock.Untouchable(b); refused {
			t.Errorf("%s: refused: %s", status, refusal.Detail)
		}
		b.SystemManaged = true
		if refusal, refused := ipblock.Untouchable(b); !refused || refusal.Reason != ipblock.BlockUnusable {
			t.Errorf("%s, managed by phoenixNAP: %+v", status, refusal)
		}
	}
	for status, want := range map[network.BlockStatus]ipblock.Reason{
		network.Subnetted: ipblock.BlockUnusable, "resting": ipblock.StatusNotKnown, "": ipblock.StatusNotKnown,
	} {
		if refusal, refused := ipblock.Untouchable(network.Block{Status: status}); !refused || refusal.Reason != want {
			t.Errorf("%q: %+v, want %s", status, refusal, want)
		}
	}
}

// TestUntouchableKeepsItsTags: the tags of a divided block stay, whether its Service wants it retained or not.
func TestUntouchableKeepsItsTags(t *testing.T) {
	for status, want := range map[network.BlockStatus]bool{
		network.Assigned: true, network.Subnetted: false, "resting": false,
	} {
		if _, tags, due := wish().retag(shop, view(blocks(block("a", status))), true); due != want {
			t.Errorf("%s: new tags %v", status, tags)
		}
	}
}

// TestNodesKeepWhatCanServe: a recorded block that is divided is no reason to release one that serves; one of which
// servers use addresses stays in any case.
func TestNodesKeepWhatCanServe(t *testing.T) {
	for _, status := range []network.BlockStatus{network.Subnetted, "resting"} {
		for used, want := range map[string]string{"": "b", "a": "a"} {
			v := view(blocks(block("a", status), block("b", network.Assigned)))
			kept, _, _ := ipblock.ChooseNodeBlock(v.Sightings, "a",
				func(b network.Block) bool { return b.ID == used }, v)
			if kept.Block.ID != want {
				t.Errorf("%s, used %q: %s is kept, want %s", status, used, kept.Block.ID, want)
			}
		}
	}
}
