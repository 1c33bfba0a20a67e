package instances

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// world is Instances with the simulated API and a set of Nodes.
type world struct {
	t      *testing.T
	sim    *pnapsim.Sim
	api    *api
	nodes  cache.Indexer
	kube   *fake.Clientset
	events *record.FakeRecorder
	*Instances
}

// api is a client that can be replaced, as by other credentials in the Secret.
type api struct{ *pnap.Client }

func newWorld(t *testing.T, seed pnapsim.Seed, switches ...pnapsim.Switches) *world {
	t.Helper()
	config := pnapsim.Config{}
	for _, each := range switches {
		config.Switches = each
	}
	sim, url := simtest.New(t, config, seed)
	return newWorldAt(t, sim, url, time.Minute)
}

// newWorldAt uses the simulated API at a URL, and waits for answers no longer than patience.
func newWorldAt(t *testing.T, sim *pnapsim.Sim, url string, patience time.Duration) *world {
	t.Helper()
	client := &api{newClient(t, sim, url, patience, simtest.ClientID)}
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	events := record.NewFakeRecorder(1000)
	inventory := NewInventory(InventoryConfig{Source: client, Now: sim.Clock().Now})
	kube := fake.NewClientset()
	return &world{t: t, sim: sim, api: client, nodes: nodes, kube: kube, events: events, Instances: New(Config{
		Inventory: inventory, Nodes: corelisters.NewNodeLister(nodes), Live: kube.CoreV1(), Events: events,
		Now:      sim.Clock().Now,
		Networks: account.New(account.Config{Cloud: client, Now: sim.Clock().Now}),
		Network:  network.Named{ID: simtest.NetworkID},
	})}
}

func newClient(t *testing.T, sim *pnapsim.Sim, url string, patience time.Duration, clientID string) *pnap.Client {
	t.Helper()
	client, err := pnap.New(pnap.Config{
		BaseURL: url, TokenURL: url + pnap.TokenPath, HTTPTimeout: patience, Now: sim.Clock().Now,
		Credentials: func() (string, string, error) { return clientID, simtest.ClientSecret, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// node adds a Node; serverID "" leaves it without provider ID.
func (w *world) node(name, serverID string) *corev1.Node {
	w.t.Helper()
	return w.add(newNode(name), serverID)
}

func (w *world) add(node *corev1.Node, serverID string) *corev1.Node {
	w.t.Helper()
	if serverID != "" {
		node.Spec.ProviderID = contract.ProviderID(serverID)
	}
	if err := w.nodes.Add(node); err != nil {
		w.t.Fatal(err)
	}
	if err := w.kube.Tracker().Add(node); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
	return node
}

func (w *world) edit(e pnapsim.Edit) {
	w.t.Helper()
	if err := w.sim.OutOfBand(e); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) arm(f pnapsim.Fault) {
	w.t.Helper()
	if err := w.sim.Arm(f); err != nil {
		w.t.Fatal(err)
	}
}

// exists calls InstanceExists and makes the simulator check the result.
func (w *world) exists(node *corev1.Node, serverID string) (bool, error) {
	w.t.Helper()
	found, err := w.InstanceExists(testlog.Context(w.t), node)
	if err == nil {
		claim := pnapsim.Claim{Client: simtest.ClientID, Kind: pnapsim.ClaimServerAlive, Server: serverID}
		if !found {
			claim.Kind = pnapsim.ClaimServerGone
		}
		if _, err := w.sim.Claim(claim); err != nil {
			w.t.Fatal(err)
		}
	}
	return found, err
}

func (w *world) expectEvent(parts ...string) {
	w.t.Helper()
	select {
	case event := <-w.events.Events:
		for _, part := range parts {
			if !strings.Contains(event, part) {
				w.t.Errorf("event %q does not contain %q", event, part)
			}
		}
	default:
		w.t.Errorf("no event, want one with %q", parts)
	}
}

func (w *world) expectNoEvent() {
	w.t.Helper()
	select {
	case event := <-w.events.Events:
		w.t.Errorf("unexpected event %q", event)
	default:
	}
}

//proves:known-bugs/request-per-node
func TestOneListServesAll(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	var all sync.WaitGroup
	for i := range 50 {
		node := w.node(fmt.Sprintf("n%d", i), simtest.Server1ID)
		all.Go(func() {
			for _, ask := range []func(context.Context, *corev1.Node) (bool, error){w.InstanceExists,
				w.InstanceShutdown} {
				if _, err := ask(testlog.Context(t), node); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if calls := len(w.sim.Log(0)); calls != 2 {
		t.Errorf("%d requests, want 2: a token and a list", calls)
	}
}

// Requests of the framework for initialized Nodes cause no extra list request.
//
//proves:known-bugs/request-per-node
func TestMetadataOfInitialisedNodesIsUnhurried(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	known := w.node("node-1", simtest.Server1ID)
	fresh := w.node("node-2", "")
	for _, each := range []struct {
		node  *corev1.Node
		after time.Duration
		want  int
	}{{fresh, 0, 2}, {known, DefaultWindow, 2}, {known, 20 * time.Second, 2}, {fresh, time.Second, 3}, {known,
		PeriodicMaxAge, 4}} {
		w.sim.Advance(each.after)
		if _, err := w.InstanceMetadata(testlog.Context(t), each.node); err != nil {
			t.Fatal(err)
		}
		if calls := len(w.sim.Log(0)); calls != each.want {
			t.Errorf("%s after %v more: %d requests, want %d", each.node.Name, each.after, calls, each.want)
		}
	}
}

//proves:known-bugs/failing-api-storm
func TestFailedListIsNotAskedForEveryNode(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	w.arm(pnapsim.Fault{Path: "/bmc/v1/servers", Action: pnapsim.FaultStatus, Status: 503, Times: -1})
	for range 50 {
		if _, err := w.InstanceExists(testlog.Context(t), w.node("node-1", simtest.Server1ID)); err == nil {
			t.Fatal("no error")
		}
	}
	if calls := len(w.sim.Log(0)); calls != 2 {
		t.Errorf("%d requests, want 2: a token and a list", calls)
	}
}

// A caller that gives up does not affect the list for the others.
func TestListOutlivesItsFirstCaller(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	ctx, cancel := context.WithCancel(testlog.Context(t))
	cancel()
	if _, err := w.config.Inventory.List(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that gave up: %v", err)
	}
	if _, err := w.config.Inventory.List(testlog.Context(t)); err != nil {
		t.Errorf("the other caller: %v", err)
	}
}

//proves:known-bugs/forbidden-gone
func TestVanishedServer(t *testing.T) {
	for _, missing := range []int{403, 404} {
		t.Run(fmt.Sprint(missing), func(t *testing.T) {
			w := newWorld(t, simtest.Seed(), pnapsim.Switches{Missing: missing})
			node := w.node("node-1", simtest.Server1ID)
			w.node("node-2", simtest.Server2ID)
			if found, err := w.exists(node, simtest.Server1ID); !found || err != nil {
				t.Fatalf("at first: %v, %v", found, err)
			}
			w.edit(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: simtest.Server1ID})
			w.sim.Advance(10 * time.Minute)
			checkGone(t, w, node)
		})
	}
}

// checkGone expects that a server is suspect at first, and gone after half a minute.
func checkGone(t *testing.T, w *world, node *corev1.Node) {
	t.Helper()
	if _, err := w.exists(node, simtest.Server1ID); err == nil {
		t.Fatal("gone at the first check")
	}
	w.expectEvent("Warning PossibleNodeDeletion", "is missing")
	for range 4 { // the lifecycle controller checks every five seconds
		w.sim.Advance(5 * time.Second)
		if _, err := w.exists(node, simtest.Server1ID); err == nil {
			t.Fatal("gone before half a minute")
		}
	}
	w.expectNoEvent()
	w.sim.Advance(25 * time.Second)
	if found, err := w.exists(node, simtest.Server1ID); found || err != nil {
		t.Fatalf("after half a minute: %v, %v", found, err)
	}
	w.expectEvent("Warning PossibleNodeDeletion", "will be deleted")
}

//proves:known-bugs/released-reserved
func TestReservedServerIsGone(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	node := w.node("node-1", simtest.Server1ID)
	w.edit(pnapsim.Edit{Kind: pnapsim.EditServerStatus, Server: simtest.Server1ID, Status: "reserved"})
	checkGone(t, w, node)
}

//proves:known-bugs/unknown-state
//proves:known-bugs/shut-down-nodes
//proves:known-bugs/new-state
func TestStatesThatAreNotGone(t *testing.T) {
	for _, status := range []string{"creating", "powered-on", "powered-off", "rebooting", "resetting", "deleting",
		"error", "reinstating", "quantum"} {
		t.Run(status, func(t *testing.T) {
			w := newWorld(t, simtest.Seed())
			node := w.node("node-1", simtest.Server1ID)
			w.edit(pnapsim.Edit{Kind: pnapsim.EditServerStatus, Server: simtest.Server1ID, Status: status})
			for range 5 {
				if found, err := w.InstanceExists(testlog.Context(t), node); !found || err != nil {
					t.Fatalf("got %v, %v", found, err)
				}
				w.sim.Advance(time.Minute)
			}
			down, err := w.InstanceShutdown(testlog.Context(t), node)
			if err != nil || down != (status == "powered-off") {
				t.Errorf("shutdown: %v, %v", down, err)
			}
		})
	}
}

// With a revoked permission, a failing API or an empty list, no Node may be deleted, however long it lasts.
//
//proves:known-bugs/forbidden-gone
func TestDoubtKeepsNodes(t *testing.T) {
	list := "/bmc/v1/servers"
	one := "/bmc/v1/servers/*"
	for name, faults := range map[string][]pnapsim.Fault{
		"403 on everything": {{Action: pnapsim.FaultStatus, Status: 403, Times: -1}},
		"403 on servers": {{Path: list, Action: pnapsim.FaultStatus, Status: 403, Times: -1},
			{Path: one, Action: pnapsim.FaultStatus, Status: 403, Times: -1}},
		"404 on the list": {{Path: list, Action: pnapsim.FaultStatus, Status: 404, Times: -1}},
		"HTML page":       {{Path: list, Action: pnapsim.FaultHTML, Times: -1}},
		"truncated":       {{Path: list, Action: pnapsim.FaultTruncate, Times: -1}},
		"empty answer":    {{Path: list, Action: pnapsim.FaultEmpty, Times: -1}},
		"reset":           {{Path: list, Action: pnapsim.FaultReset, Times: -1}},
		"401":             {{Path: list, Action: pnapsim.FaultStatus, Status: 401, Times: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, simtest.Seed())
			node := w.node("node-1", simtest.Server1ID)
			w.node("node-2", simtest.Server2ID)
			if _, err := w.InstanceExists(testlog.Context(t), node); err != nil {
				t.Fatal(err)
			}
			for _, fault := range faults {
				w.arm(fault)
			}
			for range 10 {
				w.sim.Advance(time.Minute)
				if found, err := w.exists(node, simtest.Server1ID); err == nil && !found {
					t.Fatal("the Node would be deleted")
				}
			}
		})
	}
}

// A list that omits a server for a while is corrected by a read of the server.
//
//proves:known-bugs/half-list
func TestListThatOmitsAServer(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	node := w.node("node-1", simtest.Server1ID)
	w.arm(pnapsim.Fault{Path: "/bmc/v1/servers", Action: pnapsim.FaultDropField, Field: "id", Element: 0, Times: -1})
	for range 5 {
		if found, err := w.exists(node, simtest.Server1ID); !found || err != nil {
			t.Fatalf("got %v, %v", found, err)
		}
		w.sim.Advance(time.Minute)
	}
}

//proves:known-bugs/lost-permission
func TestEmptyAccountKeepsNodes(t *testing.T) {
	seed := simtest.Seed()
	seed.Accounts[0].Servers = nil
	w := newWorld(t, seed)
	for range 5 {
		if found, err := w.InstanceExists(testlog.Context(t), w.node("node-1", simtest.Server1ID)); err == nil {
			t.Fatalf("got %v and no error", found)
		}
		w.sim.Advance(time.Minute)
	}
}

// With credentials of another account, which has other servers, all servers of the cluster disappear at once.
//
//proves:known-bugs/lost-permission
func TestWrongAccountKeepsNodes(t *testing.T) {
	seed := simtest.Seed()
	for i := range seed.Accounts[0].Servers {
		seed.Accounts[0].Servers[i].ID = fmt.Sprintf("%024x", i+1)
	}
	w := newWorld(t, seed)
	first := w.node("node-1", simtest.Server1ID)
	second := w.node("node-2", simtest.Server2ID)
	for range 30 {
		for _, node := range []*corev1.Node{first, second} {
			if found, err := w.InstanceExists(testlog.Context(t), node); err == nil {
				t.Fatalf("%s: %v and no error", node.Name, found)
			}
		}
		w.sim.Advance(20 * time.Second)
	}
	w.expectEvent("is missing; the Node will be deleted if")
	w.expectEvent("is missing; the Node will be deleted if")
	w.expectEvent("2 of 2 servers")
	w.expectEvent("2 of 2 servers")
	w.expectNoEvent()
}

// One server without a required property must not keep others from being managed.
//
//proves:known-bugs/odd-element
func TestOddServerHidesNoOther(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	w.arm(pnapsim.Fault{Path: "/bmc/v1/servers", Action: pnapsim.FaultDropField, Field: "hostname", Element: 0,
		Times: -1})
	if _, err := w.InstanceMetadata(testlog.Context(t), w.node("node-2", "")); err != nil {
		t.Error(err)
	}
}

// A server is not gone when it is missing in the list and the read by ID fails.
//
//proves:known-bugs/forbidden-gone
func TestFailedLookupIsNoProof(t *testing.T) {
	for name, fault := range map[string]pnapsim.Fault{
		"500":  {Action: pnapsim.FaultStatus, Status: 500},
		"401":  {Action: pnapsim.FaultStatus, Status: 401},
		"400":  {Action: pnapsim.FaultStatus, Status: 400},
		"html": {Action: pnapsim.FaultHTML},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, simtest.Seed())
			node := w.node("node-1", simtest.Server1ID)
			w.edit(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: simtest.Server1ID})
			w.sim.Advance(10 * time.Minute)
			fault.Path = "/bmc/v1/servers/*"
			fault.Times = -1
			w.arm(fault)
			for range 5 {
				if found, err := w.InstanceExists(testlog.Context(t), node); err == nil {
					t.Fatalf("got %v and no error", found)
				}
				w.sim.Advance(time.Minute)
			}
			w.expectEvent("Warning PossibleNodeDeletion", "cannot be read by its ID", "the Node is kept")
			w.expectNoEvent()
		})
	}
}
