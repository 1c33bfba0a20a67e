package membership

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// The observer reads the account for the test: faults that are armed for the Manager do not affect it.
const (
	observerID     = "observer"
	observerSecret = "nT8vQ2xLr5KcYw1d"
)

const clusterUID = "0b5c6b1e-5f0e-4a57-9d7e-6a0f5b1c2d3e"

// world is a Manager with the simulated API and an API server that stores ConfigMaps by compare-and-swap.
type world struct {
	t       *testing.T
	sim     *pnapsim.Sim
	url     string
	blocks  *client.IPBlocks
	kube    *fake.Clientset
	events  *record.FakeRecorder
	config  Config
	dryRun  bool
	manager *Managers
	network Network
}

// seedOf is an account whose servers are no members yet, with a node block of the given size in the network.
func seedOf(servers int, nodeBlock string, client func(*pnapsim.ClientSeed)) pnapsim.Seed {
	seed := simtest.Seed()
	a := &seed.Accounts[0]
	if client != nil {
		client(&a.Clients[0])
	}
	a.Clients = append(a.Clients, pnapsim.ClientSeed{ID: observerID, Secret: observerSecret})
	a.Blocks = nil
	if nodeBlock != "" {
		a.Blocks = []pnapsim.BlockSeed{{ID: simtest.NodeBlockID, Name: "nodes", Location: "ASH", CIDR: nodeBlock,
			Network: simtest.NetworkID}}
	}
	a.Servers = nil
	for i := range servers {
		a.Servers = append(a.Servers, pnapsim.ServerSeed{
			ID: serverID(i), Hostname: nodeName(i), Location: "ASH", NetworkType: "PRIVATE_ONLY",
			PrivateIPs: []string{fmt.Sprintf("10.0.0.%d", 11+i)},
		})
	}
	return seed
}

func serverID(i int) string { return fmt.Sprintf("5fa54d1e91867c03a0a7b4%02x", i) }

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func newWorld(t *testing.T, seed pnapsim.Seed, change func(*Network)) *world {
	t.Helper()
	return newWorldOf(t, pnapsim.Config{}, seed, change)
}

// never is a list delay longer than every test: the list does not even show seeded blocks.
const never = 1000 * time.Hour

// lagging is an API whose list of blocks is delayed; reads by ID and tags are not.
func lagging(lag time.Duration) pnapsim.Config {
	latency := pnapsim.DefaultLatency()
	latency.ListLag = pnapsim.Duration(lag)
	return pnapsim.Config{Latency: &latency}
}

func newWorldOf(t *testing.T, simulated pnapsim.Config, seed pnapsim.Seed, change func(*Network)) *world {
	t.Helper()
	sim, url := simtest.New(t, simulated, seed)
	store := kubefake.NewStore()
	w := &world{t: t, sim: sim, url: url, kube: store.Client(), blocks: store.IPBlocks(),
		events: record.NewFakeRecorder(10000)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: clusterUID}}
	if _, err := w.kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	selector, err := labels.Parse("edge=true")
	if err != nil {
		t.Fatal(err)
	}
	w.config = Config{
		Kube: w.kube, Events: w.events, Now: sim.Clock().Now,
		Networks: func() []Network { return []Network{w.network} },
	}
	w.network = Network{Named: network.Named{Name: v1beta1.DefaultNetwork, ID: simtest.NetworkID}, Selector: selector}
	if change != nil {
		change(&w.network)
	}
	for _, b := range seed.Accounts[0].Blocks {
		if b.ID == simtest.NodeBlockID && len(b.Tags) == 0 {
			w.bring(broughtObject, b.ID)
		}
	}
	return w
}

// broughtObject is the IPBlock with which a person brings the block of the account that has no tags.
const broughtObject = "of-the-nodes"

// bring has a person create an IPBlock that brings a block for the nodes.
func (w *world) bring(name, id string) {
	w.t.Helper()
	w.create(name, v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeNodes, BlockID: id})
}

func (w *world) create(name string, spec v1beta1.IPBlockSpec) {
	w.t.Helper()
	object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := w.blocks.Create(w.t.Context(), object, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// start creates a new Manager, as a new process does.
func (w *world) start() {
	w.t.Helper()
	api, err := pnap.New(pnap.Config{
		BaseURL: w.url, TokenURL: w.url + pnap.TokenPath, HTTPTimeout: time.Minute, Now: w.sim.Clock().Now,
		DryRun: w.dryRun, RequestsPerSecond: 100000,
		Credentials: func() (string, string, error) { return simtest.ClientID, simtest.ClientSecret, nil },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	config := w.config
	config.Nodes = informers.NewSharedInformerFactory(w.kube, 0).Core().V1().Nodes()
	config.Servers = instances.NewInventory(instances.InventoryConfig{Source: api, Now: w.sim.Clock().Now})
	config.Account = account.New(account.Config{Cloud: api, Now: w.sim.Clock().Now})
	config.Cloud = api
	config.Ledgers = allocation.NewStore(w.blocks, w.sim.Clock().Now)
	config.Buyer = purchase.New(purchase.Config{Cloud: api, Now: w.sim.Clock().Now})
	if w.manager, err = New(config); err != nil {
		w.t.Fatal(err)
	}
}

// node adds the Node of a server; edge reports whether it is selected.
func (w *world) node(i int, edge bool) {
	w.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), UID: types.UID(nodeName(i)),
			Labels: map[string]string{"edge": strconv.FormatBool(edge)}},
		Spec: corev1.NodeSpec{ProviderID: contract.ProviderID(serverID(i))},
	}
	if _, err := w.kube.CoreV1().Nodes().Create(w.t.Context(), node, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(i int) *corev1.Node {
	w.t.Helper()
	node, err := w.kube.CoreV1().Nodes().Get(w.t.Context(), nodeName(i), metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return node
}

func (w *world) selectNode(i int, edge bool) {
	w.t.Helper()
	node := w.get(i)
	node.Labels["edge"] = strconv.FormatBool(edge)
	if _, err := w.kube.CoreV1().Nodes().Update(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// sync updates the Manager's cache of Nodes and runs one pass.
func (w *world) sync() (time.Duration, error) {
	w.t.Helper()
	list, err := w.kube.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	items := make([]any, len(list.Items))
	for i := range list.Items {
		items[i] = &list.Items[i]
	}
	if err := w.manager.config.Nodes.Informer().GetIndexer().Replace(items, ""); err != nil {
		w.t.Fatal(err)
	}
	return w.manager.Sync(testlog.Context(w.t))
}

// only is the Manager of the network.
func (w *world) only() *Manager { return w.manager.of(w.network) }

// run runs the Manager for a while of simulated time; every error fails the test.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	for until := w.sim.Clock().Now().Add(d); w.sim.Clock().Now().Before(until); {
		again, err := w.sync()
		if err != nil {
			w.t.Fatal(err)
		}
		w.sim.Advance(again)
	}
}

// servers returns the account's servers from the API.
func (w *world) servers() map[string]pnap.Server {
	w.t.Helper()
	api, err := pnap.New(pnap.Config{BaseURL: w.url, TokenURL: w.url + pnap.TokenPath, Now: w.sim.Clock().Now,
		RequestsPerSecond: 100000,
		Credentials:       func() (string, string, error) { return observerID, observerSecret, nil }})
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := api.Servers(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	byID := map[string]pnap.Server{}
	for _, server := range list {
		byID[server.ID] = server
	}
	return byID
}

// member returns the addresses and the status of a server's membership; "none" without a membership.
func (w *world) member(i int) string {
	w.t.Helper()
	entry, member := membershipOf(w.servers()[serverID(i)], simtest.NetworkID)
	if !member {
		return "none"
	}
	return strings.Join(append(texts(entry.IPs), entry.Status), " ")
}

func texts(ips []netip.Addr) []string {
	var all []string
	for _, ip := range ips {
		all = append(all, ip.String())
	}
	return all
}

func (w *world) expectMember(i int, want string) {
	w.t.Helper()
	if got := w.member(i); got != want {
		w.t.Errorf("membership of %s: %s, want %s", nodeName(i), got, want)
	}
}

func (w *world) expectRecord(want ...int) {
	w.t.Helper()
	read, err := newRecordStore(w.kube, v1beta1.DefaultNetwork).load(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var got, ids []string
	for id := range read.members {
		got = append(got, id)
	}
	for _, i := range want {
		ids = append(ids, serverID(i))
	}
	slices.Sort(got)
	if !slices.Equal(got, ids) {
		w.t.Errorf("recorded %v, want %v", got, ids)
	}
}

// takeEvents returns the events so far, and removes them.
func (w *world) takeEvents() []string {
	var all []string
	for len(w.events.Events) > 0 {
		all = append(all, <-w.events.Events)
	}
	return all
}

// expectEvents expects events that begin with the given texts, in any order, and no others.
func (w *world) expectEvents(want ...string) {
	w.t.Helper()
	got := w.takeEvents()
	rest := slices.Clone(got)
	for _, prefix := range want {
		at := slices.IndexFunc(rest, func(text string) bool { return strings.HasPrefix(text, prefix) })
		if at < 0 {
			w.t.Errorf("no event %q among %q", prefix, got)
			continue
		}
		rest = slices.Delete(rest, at, at+1)
	}
	if len(rest) > 0 {
		w.t.Errorf("further events %q", rest)
	}
}

// editLedger changes the status of the IPBlock of a block.
func (w *world) editLedger(id string, change func(*v1beta1.IPBlockStatus)) {
	w.t.Helper()
	if err := kubefake.EditStatus(w.t.Context(), w.blocks, w.objectOf(id), change); err != nil {
		w.t.Fatal(err)
	}
}

// objectOf is the name of the object of a block.
func (w *world) objectOf(id string) string {
	w.t.Helper()
	list, err := w.blocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, object := range list.Items {
		if object.Spec.BlockID == id {
			return object.Name
		}
	}
	return ""
}

func (w *world) ledger() ipblock.Ledger {
	w.t.Helper()
	read, err := allocation.NewStore(w.blocks, nil).Get(w.t.Context(), simtest.NodeBlockID)
	if err != nil {
		w.t.Fatal(err)
	}
	return read
}

func (w *world) edit(e pnapsim.Edit) {
	w.t.Helper()
	if err := w.sim.OutOfBand(e); err != nil {
		w.t.Fatal(err)
	}
}

// changes counts the requests so far that were not reads.
func (w *world) changes() int {
	count := 0
	for _, entry := range w.sim.Log(0) {
		if entry.Method != http.MethodGet && !strings.Contains(entry.Path, "token") {
			count++
		}
	}
	return count
}
