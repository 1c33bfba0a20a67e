package balancer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/cloud-provider/api"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/balancer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim"
)

const (
	clusterUID   = "0d9aa9a1-3b1c-4c7e-9f35-0d6f6f6b3a11"
	networkID    = "60473c2509268bc77fd06d29"
	otherNetwork = "60473c2509268bc77fd06d30"
	serverID     = "60473c2509268bc77fd06d31"
	clientID     = "ccm"
	clientSecret = "a-secret-that-must-not-leak"
	accountID    = "shop-account"
	interval     = 3 * time.Second
	firstBackoff = 5 * time.Second // the framework's pauses after errors
	lastBackoff  = 5 * time.Minute
)

var servicesResource = corev1.SchemeGroupVersion.WithResource("services")

// world is a phoenixNAP account behind HTTP, a Kubernetes API in memory that knows compare-and-swap, and
// the framework's service controller reduced to what it asks of a load balancer.
type world struct {
	t     *testing.T
	clock *pnapsim.ManualClock
	sim   *pnapsim.Sim
	kube  *fake.Clientset
	// tracker keeps the Services. The clientset's own one builds a REST mapper for each write, which took
	// half the time of these tests.
	tracker ktesting.ObjectTracker
	client  *pnap.Client
	events  *record.FakeRecorder
	lb      *balancer.Balancer
	config  balancer.Config

	services, nodes cache.Indexer
	// step counts what may crash; crashAt is the number of the one that does.
	step, crashAt int
	versions      int
	// failures are the errors in a row.
	failures int
	said     []string
}

// option changes a world before it begins.
type option func(*pnapsim.Config, *pnapsim.AccountSeed, *balancer.Config)

// specs are the OpenAPI documents of the API.
var specs = sync.OnceValues(func() (*pnapsim.Specs, error) {
	return pnapsim.LoadSpecs(context.Background(), "")
})

// strict holds each exchange to the OpenAPI documents. That takes most of the time of a test, so the tests
// that say the same things to the API over and over do without.
func strict(t *testing.T) option {
	t.Helper()
	documents, err := specs()
	if err != nil {
		t.Fatal(err)
	}
	return func(config *pnapsim.Config, _ *pnapsim.AccountSeed, _ *balancer.Config) { config.Specs = documents }
}

func newWorld(t *testing.T, options ...option) *world {
	t.Helper()
	w := &world{
		t: t, clock: pnapsim.NewManualClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		events:   record.NewFakeRecorder(1000),
		services: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		nodes:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
	}
	account := pnapsim.AccountSeed{
		ID: accountID,
		Clients: []pnapsim.ClientSeed{{ID: clientID, Secret: clientSecret, Judged: true, OwnershipTags: map[string]string{
			contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID,
		}}},
		Networks: []pnapsim.NetworkSeed{{ID: networkID, Name: "public", Location: "ASH", VLAN: 20}, {ID: otherNetwork, Name: "other", Location: "ASH", VLAN: 21}},
		Blocks:   []pnapsim.BlockSeed{{Name: "nodes", Location: "ASH", CIDR: "203.0.113.0/29", Network: "public"}},
		Servers: []pnapsim.ServerSeed{{ID: serverID, Hostname: "node-1", Location: "ASH", NetworkType: "PRIVATE_ONLY",
			Networks: []pnapsim.MembershipSeed{{Network: "public", IPs: []string{"203.0.113.2"}}}}},
	}
	simulated := pnapsim.Config{Clock: w.clock}
	w.config = balancer.Config{
		NetworkID: networkID, Location: "ASH", Interval: interval, Now: w.clock.Now, Events: w.events,
		Services: corelisters.NewServiceLister(w.services), Nodes: corelisters.NewNodeLister(w.nodes),
	}
	for _, change := range options {
		change(&simulated, &account, &w.config)
	}
	w.sim = pnapsim.New(simulated)
	if err := w.sim.Seed(pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}}); err != nil {
		t.Fatal(err)
	}
	w.startCluster()
	w.startClient()
	w.restart()
	t.Cleanup(w.checkViolations)
	return w
}

func (w *world) startCluster() {
	w.kube = fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: clusterUID}})
	w.tracker = ktesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	w.kube.PrependReactor("patch", "services", w.patchService)
	w.kube.PrependReactor("get", "services", func(action ktesting.Action) (bool, runtime.Object, error) {
		w.mayCrash()
		return ktesting.ObjectReaction(w.tracker)(action)
	})
	w.config.Kube = w.kube
}

func (w *world) startClient() {
	server := httptest.NewServer(w.sim.Handler())
	w.t.Cleanup(server.Close)
	client, err := pnap.New(pnap.Config{
		BaseURL: server.URL, TokenURL: server.URL + pnap.TokenPath, Now: w.clock.Now, HTTPTimeout: 2 * time.Second,
		Credentials: func() (string, string, error) { return clientID, clientSecret, nil },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.client = client
}

// restart replaces the controller by a new one that knows nothing.
func (w *world) restart() {
	w.config.Cloud = crashing{Client: w.client, world: w}
	w.lb = balancer.New(w.config)
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
		return true, nil, apierrors.NewConflict(servicesResource.GroupResource(), have.Name, errors.New("the object has been modified"))
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
			Namespace: "shop", Name: name, UID: types.UID(fmt.Sprint("uid-", name, "-", w.versions)), ResourceVersion: strconv.Itoa(w.versions),
			Finalizers: []string{servicehelper.LoadBalancerCleanupFinalizer},
		},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}},
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

// sync does for one Service what the framework's service controller does. done tells that nothing is
// left to do.
func (w *world) sync(name string) (done bool, err error) {
	defer w.refresh()
	return w.syncCopy(w.get(name))
}

func (w *world) syncCopy(service *corev1.Service) (done bool, err error) {
	ctx := w.t.Context()
	if service == nil {
		return true, nil
	}
	if service.DeletionTimestamp == nil && service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		status, err := w.lb.EnsureLoadBalancer(ctx, "kubernetes", service, nil)
		if err != nil {
			return false, err
		}
		w.writeStatus(service.Name, *status)
		return true, nil
	}
	_, exists, err := w.lb.GetLoadBalancer(ctx, "kubernetes", service)
	if err != nil {
		return false, err
	}
	if exists {
		if err := w.lb.EnsureLoadBalancerDeleted(ctx, "kubernetes", service); err != nil {
			return false, err
		}
	}
	w.finish(service.Name)
	return true, nil
}

// finish takes the finalizer away, and with it a Service that is going.
func (w *world) finish(name string) {
	service := w.get(name)
	if service == nil {
		return
	}
	service.Finalizers = nil
	service.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	if service.DeletionTimestamp == nil {
		w.store(service)
		return
	}
	if err := w.tracker.Delete(servicesResource, "shop", name); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) writeStatus(name string, status corev1.LoadBalancerStatus) {
	service := w.get(name)
	service.Status.LoadBalancer = status
	w.store(service)
}

// settle syncs until there is nothing left to do and returns how long that took. It gives up after an
// hour of model time.
func (w *world) settle(name string) time.Duration {
	w.t.Helper()
	start := w.clock.Now()
	for w.clock.Now().Sub(start) < time.Hour {
		done, err := w.sync(name)
		if done {
			return w.clock.Now().Sub(start)
		}
		w.said = append(w.said, err.Error())
		w.clock.Advance(w.pauseAfter(err))
	}
	w.t.Fatalf("Service %s is not settled after an hour; it said %q and the account holds %s", name, w.said[max(0, len(w.said)-3):], w.blocks())
	return 0
}

// pauseAfter is how long the framework waits after an error in an ensuring: as long as the error asks
// to, else ever longer.
func (w *world) pauseAfter(err error) time.Duration {
	var again *api.RetryError
	if errors.As(err, &again) {
		w.failures = 0
		return again.RetryAfter()
	}
	w.failures++
	return min(firstBackoff<<min(w.failures-1, 10), lastBackoff)
}

// refused syncs for a while and returns the last error, which must not be a mere request to call again.
func (w *world) refused(name string, during time.Duration) error {
	w.t.Helper()
	end := w.clock.Now().Add(during)
	var last error
	for w.clock.Now().Before(end) {
		done, err := w.sync(name)
		if done {
			w.t.Fatalf("Service %s is settled; it should be refused", name)
		}
		last = err
		w.clock.Advance(w.pauseAfter(err))
	}
	var again *api.RetryError
	if errors.As(last, &again) {
		w.t.Fatalf("Service %s still waits (%v); it should be refused", name, last)
	}
	return last
}

// blocks are the blocks of the account beside the one that it begins with, each in few words.
func (w *world) blocks() []string {
	var blocks []string
	for _, b := range w.sim.State(accountID).Blocks {
		if b["cidr"] != "203.0.113.0/29" {
			blocks = append(blocks, fmt.Sprintf("%v %v", b["cidr"], b["status"]))
		}
	}
	return blocks
}

// blockID returns the ID of the only block that was bought.
func (w *world) blockID() string {
	w.t.Helper()
	var ids []string
	for _, b := range w.sim.State(accountID).Blocks {
		if b["cidr"] != "203.0.113.0/29" {
			ids = append(ids, fmt.Sprint(b["id"]))
		}
	}
	if len(ids) != 1 {
		w.t.Fatalf("the account holds %d blocks, want 1: %s", len(ids), w.blocks())
	}
	return ids[0]
}

func (w *world) wantBlocks(want ...string) {
	w.t.Helper()
	if got := w.blocks(); !slices.Equal(got, want) {
		w.t.Errorf("the account holds %q, want %q", got, want)
	}
}

func (w *world) wantPurchases(want int) {
	w.t.Helper()
	if got := w.sim.Money(accountID).Purchases; got != want {
		w.t.Errorf("%d blocks were bought, want %d", got, want)
	}
}

func (w *world) arm(f pnapsim.Fault) {
	w.t.Helper()
	if err := w.sim.Arm(f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) portal(e pnapsim.Edit) {
	w.t.Helper()
	if err := w.sim.OutOfBand(e); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) condition(name string) metav1.Condition {
	w.t.Helper()
	condition := meta.FindStatusCondition(w.get(name).Status.Conditions, contract.ServiceIPBlockReady)
	if condition == nil {
		return metav1.Condition{}
	}
	return *condition
}

// eventReasons returns the reasons of the events so far.
func (w *world) eventReasons() []string {
	var reasons []string
	for {
		select {
		case event := <-w.events.Events:
			reasons = append(reasons, strings.Fields(event)[1])
		default:
			return reasons
		}
	}
}

func (w *world) checkViolations() {
	for _, v := range w.sim.Violations() {
		w.t.Errorf("the account convicts: %s", v)
	}
	for _, said := range w.said {
		if secrets := w.sim.FindSecrets(said); len(secrets) > 0 {
			w.t.Errorf("error %q tells %s", said, secrets)
		}
	}
}
