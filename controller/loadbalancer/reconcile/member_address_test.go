package reconcile_test

import (
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// TestAddressOfAServerIsNotTakenByADedicatedBlock: a server that was given the address in the portal answers for it,
// so the Service needs another one of its block. What is published stays.
//
//proves:known-bugs/portal-address-reused
func TestAddressOfAServerIsNotTakenByADedicatedBlock(t *testing.T) {
	w := newWorld(t, withBlocks(pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29", Tags: ours("web"),
		Network: "public"}))
	w.portal(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID, Network: networkID})
	w.clock.Advance(10 * time.Minute)
	w.portal(pnapsim.Edit{Kind: pnapsim.EditAddMember, Server: serverID, Network: networkID,
		IPs: []string{"203.0.113.10"}})
	w.clock.Advance(10 * time.Minute)
	w.service("web")
	w.settle("web")
	if got := w.address("web"); got != "203.0.113.11" {
		t.Errorf("address is %s, and 203.0.113.10 is a server's", got)
	}
}
