package metadata

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// harness is a NetworkPublisher with the simulated API and a fake API server.
type harness struct {
	t      *testing.T
	sim    *pnapsim.Sim
	client *fake.Clientset
	events *record.FakeRecorder
	config NetworkConfig
}

const testWindow = 200 * time.Millisecond

func newHarness(t *testing.T, nodes ...*corev1.Node) *harness {
	t.Helper()
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	api, err := pnap.New(pnap.Config{
		BaseURL: url, TokenURL: url + pnap.TokenPath, HTTPTimeout: time.Minute,
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
	events := record.NewFakeRecorder(100)
	return &harness{t: t, sim: sim, client: client, events: events, config: NetworkConfig{
		Client: client, Servers: instances.NewInventory(instances.InventoryConfig{Source: api, Window: testWindow / 2}),
		Networks: account.New(account.Config{Cloud: api, Window: testWindow}), Events: events,
		Published: defaultOnly(contract.AnnouncerKubeVIP), Window: testWindow,
	}}
}

// defaultOnly is one network, as the options name it.
func defaultOnly(announcer string) func() ([]PublicNetwork, bool) {
	return published(PublicNetwork{Named: network.Named{Name: v1beta1.DefaultNetwork, ID: simtest.NetworkID},
		Announcer: announcer})
}

// published are all networks.
func published(all ...PublicNetwork) func() ([]PublicNetwork, bool) {
	return func() ([]PublicNetwork, bool) { return all, true }
}

// run runs the publisher until the test ends.
func (d *harness) run() {
	d.t.Helper()
	factory := informers.NewSharedInformerFactory(d.client, 0)
	d.config.Nodes = factory.Core().V1().Nodes()
	publisher, err := NewNetworkPublisher(d.config)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testlog.Context(d.t))
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
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
		Annotations: map[string]string{"other/annotation": "kept"}}}
	if serverID != "" {
		node.Spec.ProviderID = contract.ProviderID(serverID)
	}
	return node
}

// eventually polls until check succeeds; the last error fails the test.
func (d *harness) eventually(node string, check func(annotations map[string]string) error) {
	d.t.Helper()
	d.eventuallyNode(node, func(n *corev1.Node) error { return check(n.Annotations) })
}

func (d *harness) eventuallyNode(node string, check func(*corev1.Node) error) {
	d.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(time.Minute)
	for {
		got, err := d.client.CoreV1().Nodes().Get(d.t.Context(), node, metav1.GetOptions{})
		if err == nil {
			err = check(got)
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

func wanted(server, ips, member string) map[string]string {
	return map[string]string{
		"other/annotation": "kept", contract.NodeServerID: server,
		contract.NodePublicNetworks: `[` + entry("default", simtest.NetworkID, ips, member, "kube-vip") + `]`,
	}
}

// entry is that of a network with the VLAN ID 20 in the annotation; ip is empty for a server without an address.
func entry(name, id, ip, member, announcer string) string {
	if ip != "" {
		ip = strconv.Quote(ip)
	}
	return `{"name":"` + name + `","id":"` + id + `","vlan":20,"ips":[` + ip + `],"member":` + member +
		`,"announcer":"` + announcer + `"}`
}

//proves:known-bugs/unwritten-annotations
func TestAnnotationsFollowTheAPI(t *testing.T) {
	d := newHarness(t, serverNode("node-1", simtest.Server1ID), serverNode("stranger", ""),
		serverNode("node-2", simtest.Server2ID))
	d.run()
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2/28", "true")))
	d.eventually("node-2", equals(wanted(simtest.Server2ID, "203.0.113.3/28", "true")))
	d.eventually("stranger", equals(map[string]string{"other/annotation": "kept"}))

	if err := d.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: simtest.Server1ID,
		Network: simtest.NetworkID}); err != nil {
		t.Fatal(err)
	}
	d.sim.Advance(5 * time.Minute)
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "", "false")))
}

func TestSteadyStatePatchesNothing(t *testing.T) {
	nodes := []*corev1.Node{serverNode("node-1", simtest.Server1ID), serverNode("node-2", simtest.Server2ID)}
	for _, node := range nodes { // as the framework leaves them
		node.Labels = map[string]string{corev1.LabelTopologyZone: "ASH", corev1.LabelFailureDomainBetaZone: "ASH"}
	}
	d := newHarness(t, nodes...)
	d.run()
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2/28", "true")))
	d.eventually("node-2", equals(wanted(simtest.Server2ID, "203.0.113.3/28", "true")))
	since := d.requests()
	for range 5 { // five more reads of the API
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

func (d *harness) requests() int { return len(d.sim.Log(0)) }

func (d *harness) awaitRequests(count int) {
	d.t.Helper()
	d.awaitRequestsOf("node-1", count)
}

// awaitRequestsOf waits until the API got that many requests; any Node can be used.
func (d *harness) awaitRequestsOf(node string, count int) {
	d.t.Helper()
	d.eventually(node, func(map[string]string) error {
		if got := d.requests(); got < count {
			return fmt.Errorf("%d requests, want %d", got, count)
		}
		return nil
	})
}

// One list and one network serve any number of Nodes.
//
//proves:known-bugs/request-per-node
func TestRequestsDoNotGrowWithNodes(t *testing.T) {
	nodes := []*corev1.Node{serverNode("node-1", simtest.Server1ID)}
	for i := range 30 {
		nodes = append(nodes, serverNode(fmt.Sprintf("n%d", i), simtest.Server2ID))
	}
	d := newHarness(t, nodes...)
	d.config.Window = time.Hour
	d.run()
	for _, node := range nodes[1:] {
		d.eventually(node.Name, equals(wanted(simtest.Server2ID, "203.0.113.3/28", "true")))
	}
	if got := d.requests(); got != 3 {
		t.Errorf("%d requests, want 3: token, servers, network", got)
	}
}

// A Node that is initialized between two reads is updated at once.
func TestNewNodeIsPublishedSoon(t *testing.T) {
	d := newHarness(t, serverNode("node-1", ""))
	d.config.Window = time.Hour
	d.run()
	d.awaitRequests(3)
	node := serverNode("node-1", simtest.Server1ID)
	if _, err := d.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2/28", "true")))
}

// Labels follow the server after the Node was initialized; other labels stay, and nothing is written twice.
//
//proves:known-bugs/labels-once
func TestLabelsAreKeptInLine(t *testing.T) {
	node := serverNode("node-1", simtest.Server1ID)
	node.Labels = map[string]string{contract.NodeLocation: "PHX", "other/label": "kept"}
	d := newHarness(t, node)
	d.run()
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2/28", "true")))
	got, err := d.client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		contract.NodeLocation: "ASH", contract.NodeNetworkType: "PRIVATE_ONLY", contract.NodeServerType: "s1.c1.small",
		"other/label": "kept",
	} {
		if got.Labels[name] != want {
			t.Errorf("label %s is %q, want %q", name, got.Labels[name], want)
		}
	}
	got.Labels[contract.NodeServerType] = "edited-by-a-user"
	if _, err := d.client.CoreV1().Nodes().Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.awaitRequests(d.requests() + 6)
	if got, err = d.client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{}); err != nil ||
		got.Labels[contract.NodeServerType] != "s1.c1.small" {
		t.Errorf("labels %v, %v", got.Labels, err)
	}
}

// A Node that was initialized by a version without zones gets the current labels. A zone that a user or the kubelet
// set, with either label, is kept: volumes may be bound to it.
//
//proves:known-bugs/missing-zone
func TestNodesOfAnEarlierVersionGetTheirZone(t *testing.T) {
	const ga, beta = corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone
	zones := func(ga, beta *string) map[string]*string {
		return map[string]*string{corev1.LabelTopologyZone: ga, corev1.LabelFailureDomainBetaZone: beta}
	}
	location := "ASH"
	rack := "rack-7"
	empty := ""
	tests := map[string]struct {
		labels map[string]string
		want   map[string]*string
	}{
		"upgraded": {map[string]string{corev1.LabelTopologyRegion: "ASH"}, zones(&location, &location)},
		"bare":     {nil, zones(&location, &location)},
		"own":      {map[string]string{ga: rack}, zones(&rack, nil)},
		"old":      {map[string]string{beta: rack}, zones(nil, &rack)},
		"both":     {map[string]string{ga: rack, beta: "ASH"}, zones(&rack, &location)},
		"nameless": {map[string]string{ga: ""}, zones(&empty, nil)},
	}
	var nodes []*corev1.Node
	for name, test := range tests {
		node := serverNode(name, simtest.Server1ID)
		node.Labels = test.labels
		nodes = append(nodes, node)
	}
	d := newHarness(t, nodes...)
	d.run()
	d.eventuallyNode("bare", hasZones(tests["bare"].want))
	d.awaitRequestsOf("bare", d.requests()+6) // three more reads
	for name, test := range tests {
		d.eventuallyNode(name, hasZones(test.want))
	}
	d.label("upgraded", ga, rack)
	d.awaitRequestsOf("upgraded", d.requests()+6)
	d.eventuallyNode("upgraded", hasZones(zones(&rack, &location)))
}

// hasZones expects labels; nil stands for none.
func hasZones(want map[string]*string) func(*corev1.Node) error {
	return func(node *corev1.Node) error {
		for name, value := range want {
			got, exists := node.Labels[name]
			if exists != (value != nil) || exists && got != *value {
				return fmt.Errorf("labels %v, want %s: %v", node.Labels, name, ptr.Deref(value, "none"))
			}
		}
		return nil
	}
}

func (d *harness) label(node, name, value string) {
	d.t.Helper()
	got, err := d.client.CoreV1().Nodes().Get(d.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	got.Labels[name] = value
	if _, err := d.client.CoreV1().Nodes().Update(d.t.Context(), got, metav1.UpdateOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// A selected Node whose server is not a member is reported once, and again after a later loss of the membership.
func TestMissingMembershipIsReported(t *testing.T) {
	d := newHarness(t, serverNode("node-1", simtest.Server1ID), serverNode("node-2", simtest.Server2ID))
	if err := d.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: simtest.Server1ID,
		Network: simtest.NetworkID}); err != nil {
		t.Fatal(err)
	}
	d.sim.Advance(5 * time.Minute)
	d.run()
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "", "false")))
	d.awaitRequests(d.requests() + 8)
	if text := <-d.events.Events; !strings.Contains(text, "Warning PublicNetworkMembershipMissing") ||
		!strings.Contains(text, simtest.Server1ID) {
		t.Errorf("event %q", text)
	}
	if len(d.events.Events) > 0 {
		t.Errorf("further event %q", <-d.events.Events)
	}
	if err := d.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditAddMember, Server: simtest.Server1ID,
		Network: simtest.NetworkID, IPs: []string{"203.0.113.5"}}); err != nil {
		t.Fatal(err)
	}
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.5/28", "true")))
	if len(d.events.Events) > 0 {
		t.Errorf("event of a member: %q", <-d.events.Events)
	}
}

func TestMissingMembership(t *testing.T) {
	network := network.Network{ID: "n", Location: "ASH"}
	for name, test := range map[string]struct {
		server pnap.Server
		want   string
	}{
		"no member": {server: pnap.Server{ID: "s", Location: "ash"}, want: "--manage-membership"},
		"of another": {server: pnap.Server{ID: "s", PublicNetworks: []pnap.Membership{{Network: "m"}}},
			want: "is not a member of public network n"},
		"other location": {server: pnap.Server{ID: "s", Location: "PHX"},
			want: "in location PHX, but public network n is in ASH"},
		"unknown location": {server: pnap.Server{ID: "s"}, want: "is not a member"},
	} {
		got := missingMembership(test.server, network)
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A failing API does not change published values, and is retried.
func TestFailureKeepsAnnotations(t *testing.T) {
	d := newHarness(t, serverNode("node-1", simtest.Server1ID))
	d.run()
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2/28", "true")))
	if err := d.sim.Arm(pnapsim.Fault{Path: "/networks/*/*/*", Action: pnapsim.FaultStatus,
		Status: http.StatusForbidden, Times: 3}); err != nil {
		t.Fatal(err)
	}
	d.awaitRequests(d.requests() + 8)
	d.eventually("node-1", equals(wanted(simtest.Server1ID, "203.0.113.2/28", "true")))
}

func TestLoadBalancersOff(t *testing.T) {
	before := serverNode("node-1", simtest.Server1ID)
	for name, value := range wanted(simtest.Server1ID, "203.0.113.2/28", "true") {
		before.Annotations[name] = value
	}
	d := newHarness(t, before)
	d.config.Published = published()
	d.run()
	d.eventually("node-1", equals(map[string]string{"other/annotation": "kept",
		contract.NodeServerID: simtest.Server1ID, contract.NodePublicNetworks: "[]"}))
}
