package instances

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// TestServerWithoutAnAddressYet: the framework removes the taint of a Node whose list of addresses is empty, and pods
// are scheduled onto a Node that is not reachable.
//
//proves:known-bugs/addresses-late
//proves:known-bugs/metadata-nil
func TestServerWithoutAnAddressYet(t *testing.T) {
	seed := simtest.Seed()
	seed.Accounts[0].Servers = append(seed.Accounts[0].Servers, pnapsim.ServerSeed{Hostname: "n", Location: "ASH",
		NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{"10.0.0.9"}})
	w := newWorld(t, seed)
	w.arm(pnapsim.Fault{Path: "/bmc/v1/servers", Action: pnapsim.FaultDropField, Field: "privateIpAddresses",
		Element: len(seed.Accounts[0].Servers) - 1, Times: 1})
	metadata, err := w.InstanceMetadata(testlog.Context(t), newNode("n"))
	if err == nil || metadata != nil || !strings.Contains(err.Error(), "has no address") {
		t.Fatalf("got %+v, %v", metadata, err)
	}
	w.sim.Advance(DefaultWindow)
	if metadata, err = w.InstanceMetadata(testlog.Context(t), newNode("n")); err != nil ||
		render(metadata.NodeAddresses) != "Hostname=n InternalIP=10.0.0.9" {
		t.Errorf("with its address: %+v, %v", metadata, err)
	}
}

// TestRenamedServerStaysItsNode: a search by name, although the ID is known, loses a server that is renamed in the
// portal, or finds another one that has the name now.
//
//proves:known-bugs/server-renamed
func TestRenamedServerStaysItsNode(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	node := w.node("node-1", simtest.Server1ID)
	w.edit(pnapsim.Edit{Kind: pnapsim.EditRenameServer, Server: simtest.Server1ID, Hostname: "another"})
	w.edit(pnapsim.Edit{Kind: pnapsim.EditRenameServer, Server: simtest.Server2ID, Hostname: "node-1"})
	w.edit(pnapsim.Edit{Kind: pnapsim.EditServerStatus, Server: simtest.Server2ID, Status: "powered-off"})
	if found, err := w.exists(node, simtest.Server1ID); !found || err != nil {
		t.Errorf("exists: %v, %v", found, err)
	}
	if down, err := w.InstanceShutdown(testlog.Context(t), node); down || err != nil {
		t.Errorf("shut down: %v, %v", down, err)
	}
	metadata, err := w.InstanceMetadata(testlog.Context(t), node)
	if err != nil || metadata.ProviderID != node.Spec.ProviderID ||
		!strings.Contains(render(metadata.NodeAddresses), "10.0.0.11") {
		t.Errorf("metadata %+v, %v", metadata, err)
	}
}

// TestAddressesDoNotDependOnTheOrderOfTheAPI: an API that lists addresses in varying order must not change the
// addresses of Nodes every five minutes, and especially not which of them is the first.
//
//proves:known-bugs/address-order
func TestAddressesDoNotDependOnTheOrderOfTheAPI(t *testing.T) {
	server := pnap.Server{
		PrivateIPs: addrs("10.0.0.11", "192.168.0.11", "172.16.0.11"),
		PublicIPs: addrs("198.51.100.2", "198.51.100.3", "198.51.100.4", "2001:db8::2", "2001:db8::3", "203.0.113.2",
			"203.0.113.3"),
		PublicNetworks: []pnap.Membership{
			{Network: "a", Status: pnap.MembershipAssigned, IPs: addrs("203.0.113.2", "203.0.113.3")},
			{Network: "b", Status: pnap.MembershipAssigned, IPs: addrs("192.0.2.2")},
		},
	}
	node := newNode("n")
	node.Status.Addresses = nodeAddresses(node, server)
	want := render(node.Status.Addresses)
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		shuffle(random, server.PrivateIPs)
		shuffle(random, server.PublicIPs)
		shuffle(random, server.PublicNetworks)
		for _, membership := range server.PublicNetworks {
			shuffle(random, membership.IPs)
		}
		if got := render(nodeAddresses(node, server)); got != want {
			t.Fatalf("%s became %s", want, got)
		}
	}
	server.PrivateIPs = addrs("192.168.0.11", "10.9.9.9")
	if got := render(nodeAddresses(node, server)); !strings.HasPrefix(got,
		"Hostname=n InternalIP=192.168.0.11 InternalIP=10.9.9.9 ExternalIP=") {
		t.Errorf("after a change of the networks: %s", got)
	}
}

func shuffle[T any](random *rand.Rand, all []T) {
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}
