package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

const (
	clusterUID   = "0d9aa9a1-3b1c-4c7e-9f35-0d6f6f6b3a11"
	neighbourUID = "0d9aa9a1-3b1c-4c7e-9f35-0d6f6f6b3a12"
	networkID    = "60473c2509268bc77fd06d29"
	otherNetwork = "60473c2509268bc77fd06d30"
	networkInPHX = "60473c2509268bc77fd06d32"
	serverID     = "60473c2509268bc77fd06d31"
	clientID     = "ccm"
	neighbourID  = "ccm-neighbour" // the client of another cluster of the same account
	strangerID   = "stranger"      // the client of an account that has nothing
	clientSecret = "a-secret-that-must-not-leak"
	accountID    = "shop-account"
	interval     = 3 * time.Second
	firstBackoff = 5 * time.Second // the framework's pauses after errors
	lastBackoff  = 5 * time.Minute
)

var (
	servicesResource = corev1.SchemeGroupVersion.WithResource("services")
)

// world is a phoenixNAP account behind HTTP, a Kubernetes API in memory that knows compare-and-swap, and
// the service controller reduced to what it asks of a balancer.
type world struct {
	t *testing.T
	// ctx carries the log of the test.
	ctx context.Context
	// cluster is the UID of the namespace kube-system.
	cluster string
	clock   *pnapsim.Clock
	sim     *pnapsim.Sim
	kube    *fake.Clientset
	objects *ipBlocks
	// tracker keeps the Services. The clientset's own one builds a REST mapper for each write, which took
	// half the time of these tests.
	tracker ktesting.ObjectTracker
	client  *pnap.Client
	url     string
	events  *record.FakeRecorder
	// lb chooses between Balancers, of which balancer is the one of the public network.
	lb       balancer
	balancer *reconcile.Balancer
	config   reconcile.Config

	services, nodes cache.Indexer
	// step counts what may crash; crashAt is the number of the one that does.
	step, crashAt int
	versions      int
	// failures are the errors in a row.
	failures int
	said     []string
}

// option changes a world before it begins.
type option func(*pnapsim.Config, *pnapsim.AccountSeed, *reconcile.Config)

// specs are the OpenAPI documents that every exchange with the API is held to.
var specs = sync.OnceValues(func() (*pnapsim.Specs, error) {
	return pnapsim.LoadSpecs("")
})

func newWorld(t *testing.T, options ...option) *world {
	t.Helper()
	clock := pnapsim.NewManualClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	w := newCluster(t, clusterUID, clock)
	account := pnapsim.AccountSeed{
		ID:      accountID,
		Clients: []pnapsim.ClientSeed{clientOf(clientID, clusterUID), clientOf(neighbourID, neighbourUID)},
		Networks: []pnapsim.NetworkSeed{{ID: networkID, Name: "public", Location: "ASH", VLAN: 20},
			{ID: otherNetwork, Name: "other", Location: "ASH", VLAN: 21},
			{ID: networkInPHX, Name: "west", Location: "PHX", VLAN: 22}},
		Blocks: []pnapsim.BlockSeed{{Name: "nodes", Location: "ASH", CIDR: "203.0.113.0/29", Network: "public"}},
		Servers: []pnapsim.ServerSeed{{ID: serverID, Hostname: "node-1", Location: "ASH", NetworkType: "PRIVATE_ONLY",
			Networks: []pnapsim.MembershipSeed{{Network: "public", IPs: []string{"203.0.113.2"}}}}},
	}
	documents, err := specs()
	if err != nil {
		t.Fatal(err)
	}
	simulated := pnapsim.Config{Clock: w.clock, Specs: documents}
	for _, change := range options {
		change(&simulated, &account, &w.config)
	}
	w.sim = pnapsim.New(simulated)
	stranger := pnapsim.AccountSeed{ID: "another-account",
		Clients: []pnapsim.ClientSeed{{ID: strangerID, Secret: clientSecret, Judged: true}}}
	if err := w.sim.Seed(pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account, stranger}}); err != nil {
		t.Fatal(err)
	}
	w.startCluster()
	w.bringTagged(account.Blocks)
	w.startClient()
	w.restart()
	t.Cleanup(w.checkViolations)
	return w
}

// newCluster is a cluster without anything in it, and without an account.
func newCluster(t *testing.T, uid string, clock *pnapsim.Clock) *world {
	t.Helper()
	w := &world{
		t: t, ctx: testlog.Context(t), cluster: uid, clock: clock, events: record.NewFakeRecorder(1000),
		services: cache.NewIndexer(cache.MetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		nodes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
	}
	if err := w.nodes.Add(w.node("node-1")); err != nil {
		t.Fatal(err)
	}
	w.config = reconcile.Config{
		Network: network.Named{Name: v1beta1.DefaultNetwork, ID: networkID}, Now: w.clock.Now, Events: w.events,
		Options: plan.Options{Announcer: contract.AnnouncerKubeVIP, Location: "ASH", MaxRetained: 9,
			MaxRetainedPerNamespace: 9},
		Services: corelisters.NewServiceLister(w.services), Nodes: corelisters.NewNodeLister(w.nodes),
	}
	return w
}

// node is a Node without an agent whose server is a member of the public network.
func (w *world) node(name string, change ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: nodenet.Member(networkID)},
		Spec:       corev1.NodeSpec{ProviderID: contract.ProviderID(serverID)},
	}
	for _, c := range change {
		c(node)
	}
	return node
}

// vlanIs has the agent of a Node report the condition VLANReady.
func vlanIs(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: contract.ConditionVLANReady, Status: status}}
	}
}

// clientOf is the client of a cluster, which must touch no block of another.
func clientOf(id, cluster string) pnapsim.ClientSeed {
	return pnapsim.ClientSeed{ID: id, Secret: clientSecret, Judged: true, OwnershipTags: map[string]string{
		contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: cluster,
	}}
}

// neighbour is another cluster with the same account and public network.
func (w *world) neighbour() *world {
	n := newCluster(w.t, neighbourUID, w.clock)
	n.sim = w.sim
	n.url = w.url
	n.startCluster()
	n.connect(neighbourID, false)
	n.restart()
	return n
}

func (w *world) startCluster() {
	w.kube = fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem,
		UID: types.UID(w.cluster)}})
	w.objects = &ipBlocks{IPBlocks: kubefake.NewStore().IPBlocks(), world: w}
	w.tracker = ktesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	w.kube.PrependReactor("patch", "services", w.patchService)
	read := func(action ktesting.Action) (bool, runtime.Object, error) {
		w.mayCrash()
		return ktesting.ObjectReaction(w.tracker)(action)
	}
	w.kube.PrependReactor("get", "services", read)
	w.kube.PrependReactor("list", "services", read)
	w.config.Kube = w.kube
}

func (w *world) startClient() {
	server := httptest.NewServer(w.sim.Handler())
	w.t.Cleanup(server.Close)
	w.url = server.URL
	w.connect(clientID, false)
}

func (w *world) connect(as string, dryRun bool) {
	client, err := pnap.New(pnap.Config{
		BaseURL: w.url, TokenURL: w.url + pnap.TokenPath, Now: w.clock.Now, HTTPTimeout: time.Minute,
		DryRun:      dryRun,
		Credentials: func() (string, string, error) { return as, clientSecret, nil },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.client = client
}

// dryRun replaces the controller by one that changes nothing.
func (w *world) dryRun() {
	w.connect(clientID, true)
	w.restart()
}

// restart replaces the controller by a new one that knows nothing.
func (w *world) restart() {
	w.restartWith(crashing{Client: w.client, world: w})
}

// cloud is everything that the balancer and what it works with ask of the API.
type cloud interface {
	reconcile.Cloud
	purchase.Cloud
	account.Cloud
}

// restartWith is restart with another way to the API.
func (w *world) restartWith(api cloud) {
	config := w.config
	config.Cloud = api
	config.Account = account.New(account.Config{Cloud: api, Now: config.Now})
	config.Ledgers = allocation.NewStore(w.objects, w.clock.Now)
	config.Buyer = purchase.New(purchase.Config{Cloud: api, Interval: interval, Now: config.Now})
	config.Places = func() plan.Places {
		public, _, _ := config.Account.LastNetwork(config.Network.ID)
		return plan.Places{Served: []plan.Place{{Named: config.Network, Public: public}},
			LocationAnnotation: config.LocationAnnotation}
	}
	w.balancer = reconcile.New(config)
	w.lb = reconcile.NewRouter(config, func(string) *reconcile.Balancer { return w.balancer })
}

// balancer is what the service controller knows of what is tested.
type balancer interface {
	Ensure(ctx context.Context, d *reconcile.Draft) (*corev1.LoadBalancerStatus, error)
	Release(ctx context.Context, d *reconcile.Draft) error
	Drifted(ctx context.Context) ([]types.NamespacedName, error)
}

// ledgers are the ledgers as they are stored.
func (w *world) ledgers() []ipblock.Ledger {
	w.t.Helper()
	all, err := w.ledgerStore().List(w.t.Context())
	if err != nil || len(all.Unreadable) > 0 {
		w.t.Fatal(err, all.Unreadable)
	}
	return all.Ledgers
}

// patchService does what the API server does and the tracker does not: it compares UID and resource
// version, and gives every version a number of its own.
func (w *world) patchService(action ktesting.Action) (bool, runtime.Object, error) {
	w.mayCrash()
	patch, ok := action.(ktesting.PatchAction)
	if !ok {
		return false, nil, nil
	}
	var body struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(patch.GetPatch(), &body); err != nil {
		return true, nil, err
	}
	have := w.stored(patch.GetNamespace(), patch.GetName())
	if have == nil {
		return true, nil, apierrors.NewNotFound(servicesResource.GroupResource(), patch.GetName())
	}
	conflict := (body.Metadata.UID != "" && body.Metadata.UID != have.UID) ||
		(body.Metadata.ResourceVersion != "" && body.Metadata.ResourceVersion != have.ResourceVersion)
	if conflict {
		return true, nil, apierrors.NewConflict(servicesResource.GroupResource(), have.Name,
			errors.New("the object has been modified"))
	}
	if _, _, err := ktesting.ObjectReaction(w.tracker)(action); err != nil {
		return true, nil, err
	}
	patched := w.stored(patch.GetNamespace(), patch.GetName())
	w.store(patched)
	w.mayCrash()
	return true, patched.DeepCopy(), nil
}

func (w *world) stored(namespace, name string) *corev1.Service {
	object, err := w.tracker.Get(servicesResource, namespace, name)
	if err != nil {
		return nil
	}
	service, ok := object.(*corev1.Service)
	if !ok {
		w.t.Fatalf("the API holds %T in the place of a Service", object)
	}
	return service.DeepCopy()
}

func (w *world) store(service *corev1.Service) {
	w.versions++
	service.ResourceVersion = strconv.Itoa(w.versions)
	if err := w.tracker.Update(servicesResource, service, service.Namespace); err != nil {
		w.t.Fatal(err)
	}
}

// service creates a Service of type LoadBalancer in the namespace shop.
func (w *world) service(name string, change ...func(*corev1.Service)) *corev1.Service {
	w.t.Helper()
	w.versions++
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(fmt.Sprint("uid-", name, "-", w.versions)),
			ResourceVersion: strconv.Itoa(w.versions),
			Finalizers:      []string{servicehelper.LoadBalancerCleanupFinalizer},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP},
				{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}},
		},
	}
	for _, c := range change {
		c(service)
	}
	if err := w.tracker.Create(servicesResource, service, "shop"); err != nil {
		w.t.Fatal(err)
	}
	w.refresh()
	return service
}

// edit changes a Service as a user does.
func (w *world) edit(name string, change func(*corev1.Service)) {
	service := w.get(name)
	change(service)
	w.store(service)
	w.refresh()
}

// delete marks a Service as going, as the API server does while finalizers hold it.
func (w *world) delete(name string) {
	w.edit(name, func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
}

func (w *world) get(name string) *corev1.Service { return w.stored("shop", name) }

// refresh brings the informers' copies up to date.
func (w *world) refresh() {
	object, err := w.tracker.List(servicesResource, corev1.SchemeGroupVersion.WithKind("Service"), "shop")
	list, ok := object.(*corev1.ServiceList)
	if err != nil || !ok {
		w.t.Fatalf("list Services: %T, %v", object, err)
	}
	var copies []any
	for i := range list.Items {
		copies = append(copies, list.Items[i].DeepCopy())
	}
	if err := w.services.Replace(copies, ""); err != nil {
		w.t.Fatal(err)
	}
}
