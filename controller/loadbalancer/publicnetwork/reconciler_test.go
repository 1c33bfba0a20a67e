package publicnetwork_test

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/publicnetwork"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

const (
	networkID = "60473c2509268bc77fd06d29"
	otherID   = "60473c2509268bc77fd06d2a"
)

// world is a cluster with a Reconciler, and what its process has read.
type world struct {
	*testing.T
	store      *kubefake.Store
	objects    *counting
	events     *record.FakeRecorder
	options    *config.Config
	reconciler *publicnetwork.Reconciler

	mu      sync.Mutex // guards what follows, for tests in which Run looks meanwhile
	public  network.Network
	askedAt time.Time
	err     error
	review  account.Review
	further *publicnetwork.Further
}

// counting counts what is written of a status.
type counting struct {
	*client.PublicNetworks
	statuses atomic.Int64
}

// UpdateStatus implements publicnetwork.Objects.
func (c *counting) UpdateStatus(ctx context.Context, object *v1beta1.PublicNetwork, o metav1.UpdateOptions) (
	*v1beta1.PublicNetwork, error) {
	c.statuses.Add(1)
	return c.PublicNetworks.UpdateStatus(ctx, object, o)
}

// LastNetwork implements publicnetwork.Networks.
func (w *world) LastNetwork(id string) (network.Network, time.Time, error) {
	if id == furtherID {
		return network.Network{ID: id, Location: "PHX", VLAN: 21, Status: network.StatusReady}, w.askedAt, nil
	}
	if id != networkID {
		w.Errorf("network %s is asked for", id)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.public, w.askedAt, w.err
}

// Network implements publicnetwork.Networks. Nothing is read in a test but what it says was read, and the network of
// otherID is of another account.
func (w *world) Network(_ context.Context, id string, _ time.Time) (network.Network, error) {
	if id == otherID {
		return network.Network{}, &pnap.Error{StatusCode: http.StatusNotFound}
	}
	public, askedAt, err := w.LastNetwork(id)
	if askedAt.IsZero() && err == nil {
		err = &pnap.Error{StatusCode: http.StatusInternalServerError}
	}
	return public, err
}

// LastReview implements publicnetwork.Networks.
func (w *world) LastReview() account.Review {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.review
}

// change changes what was read while Run looks.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, further: &publicnetwork.Further{}, store: kubefake.NewStore(),
		events: record.NewFakeRecorder(100), askedAt: time.Now(),
		public: network.Network{ID: networkID, Location: "ASH", VLAN: 20, Status: network.StatusReady,
			Members: []network.Member{{ServerID: "5fa54d1e91867c03a0a7b4a1"}}},
		options: &config.Config{
			LoadBalancer: config.LoadBalancer{Announcer: contract.AnnouncerKubeVIP,
				Network: network.Named{Name: v1beta1.DefaultNetwork, ID: networkID}},
			BlockSize: "/29", ServiceNodeSelector: labels.Everything(),
		}}
	w.objects = &counting{PublicNetworks: w.store.PublicNetworks()}
	w.restart()
	return w
}

// restart starts the process again.
func (w *world) restart() {
	shared := informers.NewSharedInformerFactory(w.store.Client(), 0)
	w.reconciler = publicnetwork.New(publicnetwork.Config{Objects: w.objects, Networks: w,
		Nodes: shared.Core().V1().Nodes(), Events: w.events, Options: w.options,
		Further: w.further})
	ctx, cancel := context.WithCancel(w.Context())
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	w.Cleanup(func() {
		cancel()
		shared.Shutdown()
	})
}

func (w *world) look() {
	w.Helper()
	if err := w.reconciler.Look(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) get(name string) *v1beta1.PublicNetwork {
	w.Helper()
	object, err := w.objects.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return object
}

func (w *world) create(name, id string) {
	w.Helper()
	w.createWith(name, id, v1beta1.AnnouncerKubeVIP)
}

func (w *world) createWith(name, id string, announcer v1beta1.AnnouncerKind) {
	w.Helper()
	object := &v1beta1.PublicNetwork{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.PublicNetworkSpec{ID: id, Announcer: announcer}}
	if _, err := w.objects.Create(w.Context(), object, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// reported returns the events since the last call.
func (w *world) reported() []string {
	var all []string
	for len(w.events.Events) > 0 {
		all = append(all, <-w.events.Events)
	}
	return all
}

// wantEvent requires one event since the last call, with a type, a reason, and parts of its message.
func (w *world) wantEvent(begins string, parts ...string) {
	w.Helper()
	all := w.reported()
	if len(all) != 1 || !strings.HasPrefix(all[0], begins) {
		w.Errorf("events %q, want one that begins with %q", all, begins)
		return
	}
	for _, part := range parts {
		if !strings.Contains(all[0], part) {
			w.Errorf("%q does not say %q", all[0], part)
		}
	}
}

func reason(object *v1beta1.PublicNetwork) string {
	if c := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

// TestTheObjectOfTheOption: it is created with its status, written only when something changes, and created again when
// it was deleted.
func TestTheObjectOfTheOption(t *testing.T) {
	w := newWorld(t)
	w.look()
	object := w.get("default")
	if object.Spec.ID != networkID || object.Spec.Announcer != v1beta1.AnnouncerKubeVIP {
		t.Errorf("%+v", object.Spec)
	}
	if reason(object) != publicnetwork.ReasonNetworkReady || object.Status.Blocks != "0/10" {
		t.Errorf("%+v", object.Status)
	}
	w.look()
	if w.get("default").ResourceVersion != object.ResourceVersion {
		t.Error("nothing has changed, and the object was written")
	}
	w.public.Blocks = []network.ListedBlock{{ID: "b", CIDR: netip.MustParsePrefix("203.0.113.8/29")}}
	w.look()
	if got := w.get("default").Status.Blocks; got != "1/10" {
		t.Errorf("%s blocks, want 1/10", got)
	}
	if err := w.objects.Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.look()
	if again := w.get("default"); again.UID == object.UID || again.Status.Blocks != "1/10" {
		t.Errorf("%+v", again)
	}
	if all := w.reported(); len(all) > 0 {
		t.Errorf("events %q of a life without trouble", all)
	}
}

// TestEditsAreReverted: the options count, and the user learns it. What else is written on the object stays.
func TestEditsAreReverted(t *testing.T) {
	w := newWorld(t)
	w.look()
	object := w.get("default")
	object.Spec.IPBlocks.Maximum = new(int32(3))
	object.Labels = map[string]string{"team": "network"}
	if _, err := w.objects.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.look()
	if got := w.get("default"); got.Spec.IPBlocks.Maximum != nil || got.Labels["team"] != "network" {
		t.Errorf("%+v", got)
	}
	w.wantEvent("Warning PublicNetworkReverted", "change the options")
	w.options.MaxIPBlocks = 3
	w.restart()
	w.look()
	if got := w.get("default").Spec.IPBlocks.Maximum; got == nil || *got != 3 {
		t.Errorf("maximum %v, want that of the new options", got)
	}
}

// TestAnotherNetworkIsRefused: an object of another network than the option's is not changed, but for the condition
// that says so; its remedy works.
func TestAnotherNetworkIsRefused(t *testing.T) {
	w := newWorld(t)
	w.create("default", otherID)
	w.look()
	object := w.get("default")
	if reason(object) != publicnetwork.ReasonOtherNetwork || object.Spec.ID != otherID || object.Status.Blocks != "" {
		t.Errorf("%+v", object)
	}
	w.wantEvent("Warning PublicNetworkNotReady", networkID, otherID, "kubectl delete pubnet default")
	w.look()
	w.restart()
	w.look()
	if all := w.reported(); len(all) > 0 {
		t.Errorf("%q is reported again", all)
	}
	if err := w.objects.Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.look()
	if got := w.get("default"); got.Spec.ID != networkID || reason(got) != publicnetwork.ReasonNetworkReady {
		t.Errorf("%+v", got)
	}
}

// TestObjectsThatAreNotServed: only their condition is written, and the object of the option does not suffer.
func TestObjectsThatAreNotServed(t *testing.T) {
	w := newWorld(t)
	w.createWith("chicago", otherID, v1beta1.AnnouncerAgent)
	w.look()
	w.wantEvent("Warning PublicNetworkNotReady", "set spec.announcer to KubeVIP")
	w.create("twin", networkID)
	w.look()
	w.wantEvent("Warning PublicNetworkNotReady", "kubectl delete pubnet twin")
	for name, want := range map[string]string{"chicago": publicnetwork.ReasonNotSupported,
		"twin": publicnetwork.ReasonDuplicateID, "default": publicnetwork.ReasonNetworkReady} {
		if got := reason(w.get(name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := w.get("chicago"); got.Status.Blocks != "" || got.Spec.Announcer != v1beta1.AnnouncerAgent {
		t.Errorf("%+v", got)
	}
}

// TestWithoutTheOption: what an earlier configuration made says that it is not served any more.
func TestWithoutTheOption(t *testing.T) {
	w := newWorld(t)
	w.look()
	w.options.LoadBalancer = config.LoadBalancer{}
	w.restart()
	w.look()
	if got := reason(w.get("default")); got != publicnetwork.ReasonNotSupported {
		t.Error(got)
	}
	if err := w.objects.Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.look()
	if _, err := w.objects.Get(t.Context(), "default", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is created again: %v", err)
	}
}

// TestWarningsEndByTheirRemedy: a network that cannot be read, or is in error, is reported once, with the network and
// what to do, and the condition follows what was done.
func TestWarningsEndByTheirRemedy(t *testing.T) {
	w := newWorld(t)
	w.err = &pnap.Error{Op: "get public network", StatusCode: 404}
	w.look()
	w.look()
	w.wantEvent("Warning PublicNetworkNotReady", networkID, "check its ID", "credentials")
	w.err = nil
	w.public.Status = network.StatusError
	w.look()
	w.wantEvent("Warning PublicNetworkNotReady", networkID, "support")
	w.public.Status = network.StatusReady
	w.look()
	if got := reason(w.get("default")); got != publicnetwork.ReasonNetworkReady || len(w.reported()) > 0 {
		t.Error(got)
	}
}

// TestANumberIsNoEvent: what changes while a network is not ready is in the status, and the event is not repeated.
func TestANumberIsNoEvent(t *testing.T) {
	w := newWorld(t)
	w.public.Status = network.StatusError
	w.look()
	w.public.Location = "PHX"
	w.look()
	if got := w.get("default").Status.Location; got != "PHX" {
		t.Error(got)
	}
	w.wantEvent("Warning PublicNetworkNotReady", networkID)
}

// TestTheDefinitionComesLate: it is no error that it is missing, and the object is there soon after it is applied.
func TestTheDefinitionComesLate(t *testing.T) {
	w := newWorld(t)
	gvr := v1beta1.GroupVersion.WithResource("publicnetworks")
	if err := w.store.Undefine(gvr); err != nil {
		t.Fatal(err)
	}
	w.look()
	w.look()
	w.store.Define(gvr)
	w.look()
	if got := reason(w.get("default")); got != publicnetwork.ReasonNetworkReady {
		t.Error(got)
	}
}

// TestADefinitionThatIsOnItsWayOut: the object goes with it and is not created again until it is applied again.
func TestADefinitionThatIsOnItsWayOut(t *testing.T) {
	w := newWorld(t)
	w.look()
	gvr := v1beta1.GroupVersion.WithResource("publicnetworks")
	held := w.get("default")
	held.Finalizers = []string{"example.com/of-another"}
	if _, err := w.objects.Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Undefine(gvr); err != nil {
		t.Fatal(err)
	}
	w.public.Location = "PHX"
	w.look()
	if got := w.get("default"); got.DeletionTimestamp == nil || got.Status.Location != "PHX" {
		t.Errorf("%+v", got)
	}
}

// TestStatusIsWrittenAtMostEveryHalfMinute, however often the network changes; at the start the first reading is soon
// awaited.
func TestStatusIsWrittenAtMostEveryHalfMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		asked := w.askedAt
		w.askedAt = time.Time{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.reconciler.Run(ctx) }()
		time.Sleep(time.Second)
		if got := reason(w.get("default")); got != "" {
			t.Errorf("%s before the network was read", got)
		}
		w.change(func() { w.askedAt = asked })
		time.Sleep(5 * time.Second)
		if got := reason(w.get("default")); got != publicnetwork.ReasonNetworkReady || w.objects.statuses.Load() != 1 {
			t.Errorf("%q after %d writes, want one", got, w.objects.statuses.Load())
		}
		for i := range 600 {
			w.change(func() { w.public.VLAN = 2 + i })
			time.Sleep(time.Second)
		}
		if n := w.objects.statuses.Load(); n != 21 {
			t.Errorf("%d writes in ten minutes, want one in each half minute", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestWhatWasNotKeptIsAnError: a definition of another version drops fields, and each look would write them again.
func TestWhatWasNotKeptIsAnError(t *testing.T) {
	w := newWorld(t)
	w.store.Admit = func(changed, _ metav1.Object) {
		if object, ok := changed.(*v1beta1.PublicNetwork); ok {
			object.Spec.IPBlocks.Size = ""
		}
	}
	err := w.reconciler.Look(t.Context())
	if err == nil || !strings.Contains(err.Error(), "kubectl apply -k deploy/crds") {
		t.Error(err)
	}
	if err := w.reconciler.Look(t.Context()); err == nil || len(w.reported()) > 0 {
		t.Errorf("%v; no event says that an edit was reverted", err)
	}
}

// TestNodesAreCounted, from the informer.
func TestNodesAreCounted(t *testing.T) {
	w := newWorld(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1",
		Labels: map[string]string{contract.NodeVLANReady: contract.TagTrue}},
		Spec: corev1.NodeSpec{ProviderID: "phoenixnap://5fa54d1e91867c03a0a7b4a1"}}
	if _, err := w.store.Client().CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.look()
	if got := w.get("default").Status.Nodes; got != "1/1" {
		t.Errorf("%s, want 1/1", got)
	}
}

const furtherID = "60473c2509268bc77fd06d2b"

// TestFurtherNetworks: each network has its own status, and those that are served are known once the objects were read.
func TestFurtherNetworks(t *testing.T) {
	w := newWorld(t)
	w.options.LoadBalancer.Announcer = contract.AnnouncerAgent
	if served, read := w.further.Served(); read || len(served) > 0 {
		t.Errorf("%v, read %t", served, read)
	}
	w.createWith("west", furtherID, v1beta1.AnnouncerAgent)
	w.create("twin", networkID)
	w.look()
	served, read := w.further.Served()
	if !read || len(served) != 1 || served[0].Name != "west" {
		t.Errorf("%v, read %t", served, read)
	}
	west := w.get("west")
	if reason(west) != publicnetwork.ReasonNetworkReady || west.Status.Location != "PHX" || west.Status.VLAN != 21 {
		t.Errorf("%+v", west.Status)
	}
	if got := reason(w.get("twin")); got != publicnetwork.ReasonDuplicateID {
		t.Error(got)
	}
}

// TestFurtherNetworkWithKubeVIP: it is served once its VLAN ID is known, and another one than that of the option.
func TestFurtherNetworkWithKubeVIP(t *testing.T) {
	w := newWorld(t)
	w.options.LoadBalancer.Announcer = contract.AnnouncerKubeVIP
	w.createWith("west", furtherID, v1beta1.AnnouncerKubeVIP)
	askedAt := w.askedAt
	w.askedAt = time.Time{}
	w.look()
	if served, read := w.further.Served(); read || len(served) > 0 {
		t.Errorf("before the VLAN is known, %v are served, read %t", served, read)
	}
	if got := reason(w.get("west")); got != publicnetwork.ReasonNetworkUnreadable {
		t.Error(got)
	}
	w.askedAt = askedAt
	w.look()
	if served, read := w.further.Served(); !read || len(served) != 1 || reason(w.get("west")) !=
		publicnetwork.ReasonNetworkReady {
		t.Errorf("%v are served, read %t: %+v", served, read, w.get("west").Status)
	}
	w.public.VLAN = 21
	w.look()
	w.wantEvent("Warning PublicNetworkNotReady", "set the option loadbalancer to agent://"+networkID)
	if served, _ := w.further.Served(); len(served) > 0 || reason(w.get("west")) != publicnetwork.ReasonNotSupported {
		t.Errorf("%v are served: %+v", served, w.get("west").Status)
	}
	w.options.LoadBalancer.Announcer = contract.AnnouncerAgent // what the event says
	west := w.get("west")
	west.Spec.Announcer = v1beta1.AnnouncerAgent
	if _, err := w.objects.Update(t.Context(), west, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.look()
	if served, _ := w.further.Served(); len(served) != 1 || reason(w.get("west")) != publicnetwork.ReasonNetworkReady {
		t.Errorf("with the agents %v are served: %+v", served, w.get("west").Status)
	}
}
