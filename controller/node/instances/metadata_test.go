package instances

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim/simtest"
)

//proves:known-bugs/missing-zone
func TestMetadata(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	got, err := w.InstanceMetadata(testlog.Context(t), w.node("node-1", ""))
	if err != nil {
		t.Fatal(err)
	}
	if got.ProviderID != contract.ProviderID(simtest.Server1ID) || got.Region != "ASH" || got.Zone != "ASH" ||
		got.InstanceType != "s1.c1.small" {
		t.Errorf("got %+v", got)
	}
	if want := "Hostname=node-1 InternalIP=10.0.0.11 ExternalIP=203.0.113.2"; render(got.NodeAddresses) != want {
		t.Errorf("addresses %q, want %q", render(got.NodeAddresses), want)
	}
}

// Type, region and zone are those of the server, made legal if necessary. An existing zone of the Node is kept, since
// volumes may be bound to it; the deprecated label counts first, as for the framework.
//
//proves:known-bugs/zone-overwritten
func TestMetadataNamesTypeAndPlace(t *testing.T) {
	const ga, beta = corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone
	for name, test := range map[string]struct {
		kind, location string
		labels         map[string]string
		wantType       string
		region, zone   string
	}{
		"server":              {"d2.c3.xlarge", "PHX", nil, "d2.c3.xlarge", "PHX", "PHX"},
		"illegal characters":  {"s9/huge", "ASH", nil, "s9-huge", "ASH", "ASH"},
		"zone of the kubelet": {"s1.c1.small", "ASH", map[string]string{ga: "rack-7"}, "s1.c1.small", "ASH", "rack-7"},
		"deprecated zone": {"s1.c1.small", "ASH", map[string]string{beta: "rack-8"}, "s1.c1.small", "ASH",
			"rack-8"},
		"two zones": {"s1.c1.small", "ASH", map[string]string{ga: "rack-7", beta: "rack-8"}, "s1.c1.small",
			"ASH", "rack-8"},
		"zone without a name": {"s1.c1.small", "ASH", map[string]string{ga: ""}, "s1.c1.small", "ASH", ""},
	} {
		t.Run(name, func(t *testing.T) {
			seed := simtest.Seed()
			seed.Accounts[0].Servers = append(seed.Accounts[0].Servers, pnapsim.ServerSeed{
				Hostname: "n", Type: test.kind, Location: test.location, NetworkType: "PRIVATE_ONLY",
				PrivateIPs: []string{"10.0.0.9"},
			})
			node := newNode("n")
			node.Labels = test.labels
			got, err := newWorld(t, seed).InstanceMetadata(testlog.Context(t), node)
			if err != nil || got.InstanceType != test.wantType || got.Region != test.region || got.Zone != test.zone {
				t.Errorf("got %+v, %v; want type %s, region %s, zone %q", got, err, test.wantType, test.region,
					test.zone)
			}
		})
	}
}

// The Node of a server is initialized with any network type.
//
//proves:known-bugs/missing-address
func TestServersOfAllNetworkTypesInitialise(t *testing.T) {
	own := []string{"198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4", "198.51.100.5", "198.51.100.6"}
	network := []pnapsim.MembershipSeed{{Network: simtest.NetworkID, IPs: []string{"203.0.113.4 - 203.0.113.9"}}}
	for name, test := range map[string]struct {
		server pnapsim.ServerSeed
		want   string
	}{
		"private only": {server: pnapsim.ServerSeed{NetworkType: "PRIVATE_ONLY",
			PrivateIPs: []string{"10.0.0.9"}}, want: "Hostname=n InternalIP=10.0.0.9"},
		"public only": {server: pnapsim.ServerSeed{NetworkType: "PUBLIC_ONLY", PublicIPs: own, Gateway: own[0]},
			want: "Hostname=n ExternalIP=198.51.100.2"},
		"public and private": {server: pnapsim.ServerSeed{PrivateIPs: []string{"10.0.0.9"}, PublicIPs: own,
			Gateway: own[0]}, want: "Hostname=n InternalIP=10.0.0.9 ExternalIP=198.51.100.2"},
		"range of a network": {server: pnapsim.ServerSeed{NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{"10.0.0.9"},
			Networks: network}, want: "Hostname=n InternalIP=10.0.0.9 ExternalIP=203.0.113.4"},
		"none":         {server: pnapsim.ServerSeed{NetworkType: "NONE"}, want: "Hostname=n"},
		"user defined": {server: pnapsim.ServerSeed{NetworkType: "USER_DEFINED"}, want: "Hostname=n"},
	} {
		t.Run(name, func(t *testing.T) {
			seed := simtest.Seed()
			test.server.Hostname = "n"
			test.server.Location = "ASH"
			seed.Accounts[0].Servers = append(seed.Accounts[0].Servers, test.server)
			got, err := newWorld(t, seed).InstanceMetadata(testlog.Context(t), newNode("n"))
			if err != nil || render(got.NodeAddresses) != test.want {
				t.Errorf("got %+v, %v; want %q", got, err, test.want)
			}
		})
	}
}

//proves:known-bugs/server-renamed
//proves:known-bugs/capi-provider-ids
func TestMetadataKeepsTheProviderID(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	for _, form := range []string{simtest.Server2ID, "bmc://servers/" + simtest.Server2ID} {
		node := newNode("renamed")
		node.Spec.ProviderID = form
		got, err := w.InstanceMetadata(testlog.Context(t), node)
		if err != nil || got.ProviderID != form {
			t.Errorf("%s: got %+v, %v", form, got, err)
		}
	}
}

//proves:known-bugs/foreign-nodes
func TestNodeOfAnotherProvider(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	node := newNode("node-1")
	for _, form := range []string{"", "aws:///i-1", "phoenixnap://x"} {
		node.Spec.ProviderID = form
		if exists, err := w.InstanceExists(testlog.Context(t), node); err == nil {
			t.Errorf("InstanceExists with provider ID %q: %v and no error", form, exists)
		}
		if _, err := w.InstanceMetadata(testlog.Context(t), node); err == nil && form != "" {
			t.Errorf("InstanceMetadata with provider ID %q: no error", form)
		}
	}
}

//proves:known-bugs/same-name
//proves:known-bugs/metadata-nil
func TestServerNotFoundIsReportedOnTheNode(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	w.node("node-1", simtest.Server1ID)
	metadata, err := w.InstanceMetadata(testlog.Context(t), w.node("NODE-1.example", ""))
	if err == nil || metadata != nil {
		t.Fatalf("got %+v, %v", metadata, err)
	}
	w.expectEvent("Warning ServerNotFound", simtest.Server1ID, "the server of Node node-1")
}
