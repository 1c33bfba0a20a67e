package orphans_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	clusterUID   = "0d9aa9a1-3b1c-4c7e-9f35-0d6f6f6b3a11"
	otherCluster = "0d9aa9a1-3b1c-4c7e-9f35-0d6f6f6b3a12"
	networkID    = "60473c2509268bc77fd06d29"
	otherNetwork = "60473c2509268bc77fd06d30"
	blockID      = "60473c2509268bc77fd06d40"
	accountID    = "shop-account"
	grace        = time.Hour
	clientID     = "ccm"
	strangerID   = "stranger" // the client of an account that has nothing
	clientSecret = "a-secret-that-must-not-leak"
)

// errCrash ends a look as the end of the process would.
var errCrash = errors.New("crash")

// world is a phoenixNAP account behind HTTP, a Kubernetes API in memory and a collector.
type world struct {
	t         *testing.T
	clock     *pnapsim.Clock
	sim       *pnapsim.Sim
	url       string // where the account answers
	kube      *fake.Clientset
	ledgers   *allocation.Store
	objects   *client.IPBlocks
	informers informers.SharedInformerFactory
	events    *record.FakeRecorder
	client    *pnap.Client
	as        string // whose credentials the controller has
	config    orphans.Config
	collector *orphans.Collector
	heard     []string

	// calls counts requests to the API through the collector; the one of number crashAt is its last.
	calls, crashAt int
	// meanwhile, when set, happens whenever a block is about to be read by its ID.
	meanwhile func()
}

// option changes a world before it begins.
type option func(*pnapsim.Config, *pnapsim.AccountSeed, *orphans.Config)

// block seeds a block with the tags, assigned to a network or, with an empty name, to none.
func block(id, cidr, network string, tags map[string]string) option {
	return func(_ *pnapsim.Config, a *pnapsim.AccountSeed, _ *orphans.Config) {
		a.Blocks = append(a.Blocks, pnapsim.BlockSeed{ID: id, Location: "ASH", CIDR: cidr, Network: network,
			Tags: tags})
	}
}

func collecting(_ *pnapsim.Config, _ *pnapsim.AccountSeed, c *orphans.Config) { c.Collect = true }

// ours are the tags of a block of this cluster, with one more.
func ours(name, value string) map[string]string {
	return map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID, name: value}
}

func newWorld(t *testing.T, options ...option) *world {
	t.Helper()
	w := &world{t: t, as: clientID, clock: pnapsim.NewManualClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		events: record.NewFakeRecorder(1000)}
	store := kubefake.NewStore()
	w.kube = store.Client()
	w.objects = store.IPBlocks()
	w.ledgers = allocation.NewStore(w.objects, w.clock.Now)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: clusterUID}}
	if _, err := w.kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.informers = informers.NewSharedInformerFactory(w.kube, 0)
	seed := pnapsim.AccountSeed{
		ID: accountID,
		Clients: []pnapsim.ClientSeed{{ID: clientID, Secret: clientSecret, Judged: true,
			OwnershipTags: map[string]string{
				contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID,
			}}},
		Networks: []pnapsim.NetworkSeed{{ID: networkID, Name: "public", Location: "ASH", VLAN: 20},
			{ID: otherNetwork, Name: "other", Location: "ASH", VLAN: 21}},
	}
	simulated := pnapsim.Config{Clock: w.clock}
	w.config = orphans.Config{
		Ledgers: w.ledgers, Kube: w.kube, Services: w.informers.Core().V1().Services(),
		Events:  w.events,
		Metrics: orphans.NewMetrics(), Grace: grace, Now: w.clock.Now,
		Network: network.Named{Name: v1beta1.DefaultNetwork, ID: networkID},
	}
	for _, change := range options {
		change(&simulated, &seed, &w.config)
	}
	stranger := pnapsim.AccountSeed{ID: "another-account",
		Clients: []pnapsim.ClientSeed{{ID: strangerID, Secret: clientSecret, Judged: true}}}
	w.sim, w.url = simtest.New(t, simulated, pnapsim.Seed{Accounts: []pnapsim.AccountSeed{seed, stranger}})
	w.connect(false)
	return w
}

// bring has a person say that Services may name a block.
func (w *world) bring(id string) { w.bringAs("mine", id, v1beta1.PurposeShared) }

func (w *world) bringAs(name, id string, purpose v1beta1.Purpose) {
	w.t.Helper()
	object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.IPBlockSpec{
		Source: v1beta1.SourceBrought, Purpose: purpose, BlockID: id}}
	if _, err := w.ledgers.Objects().Create(w.t.Context(), object, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) connect(dryRun bool) {
	client, err := pnap.New(pnap.Config{
		BaseURL: w.url, TokenURL: w.url + pnap.TokenPath, Now: w.clock.Now, HTTPTimeout: time.Minute,
		DryRun:      dryRun,
		Credentials: func() (string, string, error) { return w.as, clientSecret, nil },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.client = client
	w.restart()
}

// restart replaces the controller by one that knows nothing.
func (w *world) restart() {
	w.config.Cloud = crashing{w.client, w}
	w.config.Account = account.New(account.Config{Cloud: crashing{w.client, w}, Now: w.clock.Now})
	w.collector = orphans.New(w.config)
}

// crashing is the API for a process that may end before or after any of its requests.
type crashing struct {
	*pnap.Client
	w *world
}

func (c crashing) may(then func() error) error {
	for _, step := range []func() error{then, func() error { return nil }} {
		c.w.calls++
		if c.w.calls == c.w.crashAt {
			panic(errCrash)
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c crashing) UnassignBlock(ctx context.Context, networkID, blockID string) error {
	return c.may(func() error { return c.Client.UnassignBlock(ctx, networkID, blockID) })
}

func (c crashing) DeleteBlock(ctx context.Context, id string) error {
	return c.may(func() error { return c.Client.DeleteBlock(ctx, id) })
}

func (c crashing) Block(ctx context.Context, id string) (read network.Block, err error) {
	if c.w.meanwhile != nil {
		c.w.meanwhile()
	}
	err = c.may(func() error {
		read, err = c.Client.Block(ctx, id)
		return err
	})
	return read, err
}

// look looks once and lets the time pass that the collector asks for. A crash begins a new process.
func (w *world) look() error {
	defer w.listen()
	again, err := w.lookOnce()
	if errors.Is(err, errCrash) {
		w.restart()
		again = time.Minute
	}
	w.clock.Advance(again)
	return err
}

func (w *world) lookOnce() (again time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			crash, ok := r.(error)
			if !ok || !errors.Is(crash, errCrash) {
				panic(r)
			}
			err = crash
		}
	}()
	return w.collector.Look(testlog.Context(w.t))
}

// pass looks as often as the collector asks for in the given time.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
		if err := w.look(); err != nil && !errors.Is(err, errCrash) {
			w.t.Logf("%s: %v", w.clock.Now().Format(time.TimeOnly), err)
		}
	}
}

func (w *world) listen() {
	for len(w.events.Events) > 0 {
		w.heard = append(w.heard, <-w.events.Events)
	}
}

// count returns how many events hold all the words.
func (w *world) count(words ...string) int {
	n := 0
	for _, event := range w.heard {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(event, word) }) {
			n++
		}
	}
	return n
}

// service makes a Service that both the API and, unless it is stale, the informer have.
func (w *world) service(name string, stale bool, change ...func(*corev1.Service)) *corev1.Service {
	w.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
	for _, c := range change {
		c(service)
	}
	if _, err := w.kube.CoreV1().Services("shop").Create(w.t.Context(), service, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if stale {
		return service
	}
	if err := w.config.Services.Informer().GetIndexer().Add(service); err != nil {
		w.t.Fatal(err)
	}
	return service
}

// forget removes a Service from the informer.
func (w *world) forget(name string) {
	w.t.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	if err := w.config.Services.Informer().GetIndexer().Delete(service); err != nil {
		w.t.Fatal(err)
	}
}

// blocks returns the status of each block of the account by ID.
func (w *world) blocks() map[string]string {
	found := map[string]string{}
	for _, b := range w.sim.State(accountID).Blocks {
		id, _ := b["id"].(string)
		status, _ := b["status"].(string)
		found[id] = status
	}
	return found
}

// writes is how many requests changed, or tried to change, the account.
func (w *world) writes() int {
	n := 0
	for _, entry := range w.sim.Log(0) {
		if entry.Method != http.MethodGet && (strings.HasPrefix(entry.Path, "/ips/") ||
			strings.HasPrefix(entry.Path, "/networks/")) {
			n++
		}
	}
	return n
}

// untouched fails when the account was changed at all.
func (w *world) untouched() {
	w.t.Helper()
	if n := w.writes(); n != 0 {
		w.t.Errorf("%d changes of the account, want none; heard %q", n, w.heard)
	}
}

// gone fails when the block is still there or its deletion was not reported exactly once.
func (w *world) gone(id string) {
	w.t.Helper()
	if status, there := w.blocks()[id]; there {
		w.t.Errorf("block %s is still there, %s; heard %q", id, status, w.heard)
	}
	if n := w.count("OrphanCollected", id); n != 1 {
		w.t.Errorf("%d events about the end of %s, want one; heard %q", n, id, w.heard)
	}
}
