package instances

import (
	"context"
	"maps"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	cloudnode "k8s.io/cloud-provider/controllers/node"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

//proves:known-bugs/missing-zone
func TestMetadata(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	got, err := w.InstanceMetadata(testlog.Context(t), w.node("node-1", ""))
	if err != nil {
		t.Fatal(err)
	}
	want := &cloudprovider.InstanceMetadata{
		ProviderID: "phoenixnap://" + simtest.Server1ID, InstanceType: "s1.c1.small", Zone: "ASH", Region: "ASH",
		NodeAddresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "node-1"},
			{Type: corev1.NodeInternalIP, Address: "10.0.0.11"},
			{Type: corev1.NodeExternalIP, Address: "203.0.113.2"},
		},
		AdditionalLabels: map[string]string{
			"phoenixnap.com/location": "ASH", "phoenixnap.com/network-type": "PRIVATE_ONLY",
			"phoenixnap.com/os": "ubuntu-jammy", "phoenixnap.com/server-type": "s1.c1.small",
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The framework's own controller writes exactly these labels to a new Node, and takes its taint away.
func TestLabelsOfANewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMemory(1)
		api.like = pnap.Server{Hostname: "n0", Type: "d2.c3.xlarge", Location: "PHX", OS: "ubuntu/noble",
			NetworkType: "PUBLIC_AND_PRIVATE", PrivateIPs: addrs("10.0.0.11"), Status: pnap.ServerPoweredOn}
		kube := kubefake.NewStore().Client()
		node := newNode("n0")
		node.Spec.ProviderID = contract.ProviderID(memoryID(0))
		node.Labels = map[string]string{"kubernetes.io/hostname": "n0"}
		node.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true",
			Effect: corev1.TaintEffectNoSchedule}}
		if _, err := kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		run(t, kube, api, func(nodes coreinformers.NodeInformer, cloud framework) (loop, error) {
			initialising, err := cloudnode.NewCloudNodeController(nodes, kube, cloud, 5*time.Minute, 1, 1)
			return func(ctx context.Context) {
				initialising.RunWithContext(ctx, controllersmetrics.NewControllerManagerMetrics("labels"))
			}, err
		})
		time.Sleep(time.Minute)
		got, err := kube.CoreV1().Nodes().Get(t.Context(), "n0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]string{
			"kubernetes.io/hostname":                   "n0",
			"beta.kubernetes.io/instance-type":         "d2.c3.xlarge",
			"node.kubernetes.io/instance-type":         "d2.c3.xlarge",
			"failure-domain.beta.kubernetes.io/region": "PHX",
			"topology.kubernetes.io/region":            "PHX",
			"failure-domain.beta.kubernetes.io/zone":   "PHX",
			"topology.kubernetes.io/zone":              "PHX",
			"phoenixnap.com/location":                  "PHX",
			"phoenixnap.com/network-type":              "PUBLIC_AND_PRIVATE",
			"phoenixnap.com/os":                        "ubuntu-noble",
			"phoenixnap.com/server-type":               "d2.c3.xlarge",
		}; !maps.Equal(got.Labels, want) {
			t.Errorf("labels %v, want %v", got.Labels, want)
		}
		if len(got.Spec.Taints) > 0 {
			t.Errorf("taints %v", got.Spec.Taints)
		}
	})
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

// A Node gets a provider ID from whoever is first: its kubelet, the controller of Cluster API, or this one, which then
// has to write what Cluster API would.
func TestFormatOfProviderIDs(t *testing.T) {
	const (
		ours   = "phoenixnap://" + simtest.Server1ID
		theirs = "bmc://servers/" + simtest.Server1ID
	)
	for _, test := range []struct{ format, before, want string }{
		{"", "", ours},
		{contract.ProviderIDPhoenixNAP, "", ours},
		{contract.ProviderIDPhoenixNAP, theirs, theirs},
		{contract.ProviderIDBMC, "", theirs},
		{contract.ProviderIDBMC, theirs, theirs},
		{contract.ProviderIDBMC, ours, ours},
	} {
		w := newWorld(t, simtest.Seed())
		w.config.ProviderIDFormat = test.format
		node := newNode("node-1")
		node.Spec.ProviderID = test.before
		got, err := w.InstanceMetadata(testlog.Context(t), node)
		if err != nil || got.ProviderID != test.want {
			t.Errorf("format %q, before %q: got %+v, %v; want %s", test.format, test.before, got, err, test.want)
			continue
		}
		node.Spec.ProviderID = got.ProviderID
		if exists, err := w.InstanceExists(testlog.Context(t), node); err != nil || !exists {
			t.Errorf("Node with provider ID %s: exists %t, %v", got.ProviderID, exists, err)
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
