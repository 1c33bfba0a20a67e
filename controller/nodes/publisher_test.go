package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim/simtest"
)

// desk is a publisher over the simulated API and a fake API server.
type desk struct {
	t      *testing.T
	sim    *pnapsim.Sim
	client *fake.Clientset
	config NetworkConfig
}

const testWindow = 200 * time.Millisecond

func newDesk(t *testing.T, nodes ...*corev1.Node) *desk {
	t.Helper()
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	api, err := pnap.New(pnap.Config{
		BaseURL: url, TokenURL: url + pnap.TokenPath, HTTPTimeout: 5 * time.Second,
		Credentials: func() (string, string, error) { return simtest.ClientID, simtest.ClientSecret, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	for _, node := range nodes {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return &desk{t: t, sim: sim, client: client, config: NetworkConfig{
		Client: client, Servers: instances.NewInventory(instances.InventoryConfig{Source: api, Window: testWindow / 2}), Networks: api,
		NetworkID: simtest.NetworkID, Announcer: contract.AnnouncerKubeVIP, Window: testWindow,
	}}
}

// run publishes until the test ends.
func (d *desk) run() {
	d.t.Helper()
	factory := informers.NewSharedInformerFactory(d.client, 0)
	d.config.Nodes = factory.Core().V1().Nodes()
	publisher, err := NewNetworkPublisher(d.config)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	factory.Start(ctx.Done())
	done := make(chan error)
	go func() { done <- publisher.Run(ctx) }()
	d.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
		factory.Shutdown()
	})
}

func serverNode(name, serverID string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"other/annotation": "kept"}}}
	if serverID != "" {
		node.Spec.ProviderID = contract.ProviderID(serverID)
	}
	return node
}

// eventually polls until check succeeds; the last complaint fails the test.
func (d *desk) eventually(node string, check func(map[string]string) error) {
	d.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(10 * time.Second)
	for {
		got, err := d.client.CoreV1().Nodes().Get(d.t.Context(), node, metav1.GetOptions{})
		if err == nil {
			err = check(got.Annotations)
		}
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-limit:
			d.t.Fatalf("node %s: %v", node, err)
		}
	}
}

func equals(want map[string]string) func(map[string]string) error {
	return func(got map[string]string) error {
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New("(-want +got):\n" + diff)
		}
		return nil
	}
}

func wanted(server, ips, member, blocks string) map[string]string {
	return map[string]string{
		"other/annotation": "kept", contract.NodeServerID: server, contract.NodePublicNetworkID: simtest.NetworkID,
		contract.NodePublicNetworkVLAN: "20", contract.NodePublicNetworkIPs: ips, contract.NodePublicNetworkMember: member,
		contract.NodePublicNetworkBlocks: blocks, contract.NodeAnnouncer: "kube-vip",
	}
}

const nodeBlock = `[{"cidr":"203.0.113.0/28","gateway":"203.0.113.1"}]`

func TestAnnotationsFollowTheAPI(t *testing.T) {
	d := newDesk(t, serverNode("node-1", simtest.Server1ID), serverNode("stranger", ""), serverNode("node-2", simtest.Server2ID))
	d.run()
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2", "true", nodeBlock)))
	d.eventually("node-2", equals(wanted(simtest.Server2ID, "203.0.113.3", "true", nodeBlock)))
	d.eventually("stranger", equals(map[string]string{"other/annotation": "kept"}))

	if err := d.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: simtest.Server1ID, Network: simtest.NetworkID}); err != nil {
		t.Fatal(err)
	}
	d.sim.Advance(5 * time.Minute)
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "", "false", nodeBlock)))
}

func TestSteadyStatePatchesNothing(t *testing.T) {
	d := newDesk(t, serverNode("node-1", simtest.Server1ID), serverNode("node-2", simtest.Server2ID))
	d.run()
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2", "true", nodeBlock)))
	d.eventually("node-2", equals(wanted(simtest.Server2ID, "203.0.113.3", "true", nodeBlock)))
	since := d.requests()
	for range 5 { // five more looks at the API
		d.awaitRequests(since + 2)
		since = d.requests()
	}
	patches := 0
	for _, action := range d.client.Actions() {
		if action.GetVerb() == "patch" {
			patches++
		}
	}
	if patches != 2 {
		t.Errorf("%d patches, want one for each Node", patches)
	}
}

func (d *desk) requests() int { return len(d.sim.Log(0)) }

func (d *desk) awaitRequests(count int) {
	d.t.Helper()
	d.eventually("node-1", func(map[string]string) error {
		if got := d.requests(); got < count {
			return fmt.Errorf("%d requests, want %d", got, count)
		}
		return nil
	})
}

// One list and one network serve any number of Nodes.
func TestRequestsDoNotGrowWithNodes(t *testing.T) {
	nodes := []*corev1.Node{serverNode("node-1", simtest.Server1ID)}
	for i := range 30 {
		nodes = append(nodes, serverNode(fmt.Sprintf("n%d", i), simtest.Server2ID))
	}
	d := newDesk(t, nodes...)
	d.config.Window = time.Hour
	d.run()
	for _, node := range nodes[1:] {
		d.eventually(node.Name, equals(wanted(simtest.Server2ID, "203.0.113.3", "true", nodeBlock)))
	}
	if got := d.requests(); got != 3 {
		t.Errorf("%d requests, want 3: token, servers, network", got)
	}
}

// A Node that is initialised between two looks is told at once.
func TestNewNodeIsToldSoon(t *testing.T) {
	d := newDesk(t, serverNode("node-1", ""))
	d.config.Window = time.Hour
	d.run()
	d.awaitRequests(3)
	node := serverNode("node-1", simtest.Server1ID)
	if _, err := d.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2", "true", nodeBlock)))
}

// An API that fails changes nothing that was published, and is asked again.
func TestFailureKeepsAnnotations(t *testing.T) {
	d := newDesk(t, serverNode("node-1", simtest.Server1ID))
	d.run()
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2", "true", nodeBlock)))
	if err := d.sim.Arm(pnapsim.Fault{Path: "/networks/*/*/*", Action: pnapsim.FaultStatus, Status: http.StatusForbidden, Times: 3}); err != nil {
		t.Fatal(err)
	}
	d.awaitRequests(d.requests() + 8)
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2", "true", nodeBlock)))
}

func TestLoadBalancersOff(t *testing.T) {
	before := serverNode("node-1", simtest.Server1ID)
	for name, value := range wanted(simtest.Server1ID, "203.0.113.2", "true", nodeBlock) {
		before.Annotations[name] = value
	}
	d := newDesk(t, before)
	d.config.NetworkID, d.config.Announcer = "", contract.AnnouncerNone
	d.run()
	d.eventually("node-1", equals(map[string]string{"other/annotation": "kept", contract.NodeServerID: simtest.Server1ID, contract.NodeAnnouncer: "none"}))
}
