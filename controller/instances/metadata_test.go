package instances

import (
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim/simtest"
)

func TestMetadata(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	got, err := w.InstanceMetadata(t.Context(), w.node("node-1", ""))
	if err != nil {
		t.Fatal(err)
	}
	if got.ProviderID != contract.ProviderID(simtest.Server1ID) || got.Region != "ASH" || got.InstanceType == "" {
		t.Errorf("got %+v", got)
	}
	if want := "Hostname=node-1 InternalIP=10.0.0.11 ExternalIP=203.0.113.2"; render(got.NodeAddresses) != want {
		t.Errorf("addresses %q, want %q", render(got.NodeAddresses), want)
	}
}

// Whatever networks a server was ordered with, its Node is initialised.
func TestServersOfAllNetworkTypesInitialise(t *testing.T) {
	own := []string{"198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4", "198.51.100.5", "198.51.100.6"}
	network := []pnapsim.MembershipSeed{{Network: simtest.NetworkID, IPs: []string{"203.0.113.4 - 203.0.113.9"}}}
	for name, test := range map[string]struct {
		server pnapsim.ServerSeed
		want   string
	}{
		"private only":       {server: pnapsim.ServerSeed{NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{"10.0.0.9"}}, want: "Hostname=n InternalIP=10.0.0.9"},
		"public only":        {server: pnapsim.ServerSeed{NetworkType: "PUBLIC_ONLY", PublicIPs: own, Gateway: own[0]}, want: "Hostname=n ExternalIP=198.51.100.2"},
		"public and private": {server: pnapsim.ServerSeed{PrivateIPs: []string{"10.0.0.9"}, PublicIPs: own, Gateway: own[0]}, want: "Hostname=n InternalIP=10.0.0.9 ExternalIP=198.51.100.2"},
		"range of a network": {server: pnapsim.ServerSeed{NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{"10.0.0.9"}, Networks: network}, want: "Hostname=n InternalIP=10.0.0.9 ExternalIP=203.0.113.4"},
		"none":               {server: pnapsim.ServerSeed{NetworkType: "NONE"}, want: "Hostname=n"},
		"user defined":       {server: pnapsim.ServerSeed{NetworkType: "USER_DEFINED"}, want: "Hostname=n"},
	} {
		t.Run(name, func(t *testing.T) {
			seed := simtest.Seed()
			test.server.Hostname, test.server.Location = "n", "ASH"
			seed.Accounts[0].Servers = append(seed.Accounts[0].Servers, test.server)
			got, err := newWorld(t, seed).InstanceMetadata(t.Context(), newNode("n"))
			if err != nil || render(got.NodeAddresses) != test.want {
				t.Errorf("got %+v, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestMetadataKeepsTheProviderID(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	for _, form := range []string{simtest.Server2ID, "bmc://servers/" + simtest.Server2ID} {
		node := newNode("renamed")
		node.Spec.ProviderID = form
		got, err := w.InstanceMetadata(t.Context(), node)
		if err != nil || got.ProviderID != form {
			t.Errorf("%s: got %+v, %v", form, got, err)
		}
	}
}

func TestNodeOfAnotherProvider(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	node := newNode("node-1")
	for _, form := range []string{"", "aws:///i-1", "phoenixnap://x"} {
		node.Spec.ProviderID = form
		if exists, err := w.InstanceExists(t.Context(), node); err == nil {
			t.Errorf("InstanceExists with provider ID %q: %v and no error", form, exists)
		}
		if _, err := w.InstanceMetadata(t.Context(), node); err == nil && form != "" {
			t.Errorf("InstanceMetadata with provider ID %q: no error", form)
		}
	}
}

func TestServerNotFoundIsToldOnTheNode(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	w.node("node-1", simtest.Server1ID)
	metadata, err := w.InstanceMetadata(t.Context(), w.node("NODE-1.example", ""))
	if err == nil || metadata != nil {
		t.Fatalf("got %+v, %v", metadata, err)
	}
	w.expectEvent("Warning ServerNotFound", simtest.Server1ID, "the server of Node node-1")
}
