package instances

import (
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim/simtest"
)

// TestServerWithoutAnAddressYet: the framework takes the taint off a Node whose list of addresses is empty, and
// pods are scheduled onto a Node that nobody can reach.
func TestServerWithoutAnAddressYet(t *testing.T) {
	seed := simtest.Seed()
	seed.Accounts[0].Servers = append(seed.Accounts[0].Servers, pnapsim.ServerSeed{Hostname: "n", Location: "ASH", NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{"10.0.0.9"}})
	w := newWorld(t, seed)
	w.arm(pnapsim.Fault{Path: "/bmc/v1/servers", Action: pnapsim.FaultDropField, Field: "privateIpAddresses", Element: len(seed.Accounts[0].Servers) - 1, Times: 1})
	metadata, err := w.InstanceMetadata(t.Context(), newNode("n"))
	if err == nil || metadata != nil || !strings.Contains(err.Error(), "has no address") {
		t.Fatalf("got %+v, %v", metadata, err)
	}
	w.sim.Advance(DefaultWindow)
	if metadata, err = w.InstanceMetadata(t.Context(), newNode("n")); err != nil || render(metadata.NodeAddresses) != "Hostname=n InternalIP=10.0.0.9" {
		t.Errorf("with its address: %+v, %v", metadata, err)
	}
}

// TestRenamedServerStaysItsNode: who looks for a server by its name though its ID is known loses it when it is
// renamed in the portal, or finds another one that has the name now.
func TestRenamedServerStaysItsNode(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	node := w.node("node-1", simtest.Server1ID)
	w.edit(pnapsim.Edit{Kind: pnapsim.EditRenameServer, Server: simtest.Server1ID, Hostname: "another"})
	w.edit(pnapsim.Edit{Kind: pnapsim.EditRenameServer, Server: simtest.Server2ID, Hostname: "node-1"})
	w.edit(pnapsim.Edit{Kind: pnapsim.EditServerStatus, Server: simtest.Server2ID, Status: "powered-off"})
	if found, err := w.exists(node, simtest.Server1ID); !found || err != nil {
		t.Errorf("exists: %v, %v", found, err)
	}
	if down, err := w.InstanceShutdown(t.Context(), node); down || err != nil {
		t.Errorf("shut down: %v, %v", down, err)
	}
	metadata, err := w.InstanceMetadata(t.Context(), node)
	if err != nil || metadata.ProviderID != node.Spec.ProviderID || !strings.Contains(render(metadata.NodeAddresses), "10.0.0.11") {
		t.Errorf("metadata %+v, %v", metadata, err)
	}
}
