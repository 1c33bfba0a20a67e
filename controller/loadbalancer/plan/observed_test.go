package plan_test

import (
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

// TestABlockThatOnlyALookupShows: the list may lack a block of this cluster that was found by its ID.
func TestABlockThatOnlyALookupShows(t *testing.T) {
	o := leavingService(block("a", network.Assigned, func(b *network.Block) { b.Tags = pool.Tags() }), ipblock.Ledger{})
	o.Blocks = nil
	if !o.Complete().Ours {
		t.Error("a block with the tags of the cluster was found, and does not count")
	}
	if o.Sightings = nil; o.Complete().Ours {
		t.Error("nothing was found, and counts")
	}
}
