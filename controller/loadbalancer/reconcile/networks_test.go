package reconcile_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// inSecond has the server of a Node be a member of another network, in which its agent reports the interface.
func inSecond(n *corev1.Node) {
	maps.Copy(n.Annotations, nodenet.On(contract.NodeNetwork{Name: "second", ID: otherNetwork, Member: true}))
	n.Annotations[contract.NodeReportedIdentity] = fmt.Sprintf(`{"vlanInterfaces":{%q:{"name":"bond0.%d"}}}`, otherNetwork,
		nodenet.VLAN)
}

// inNetworks has a Balancer for each of two public networks, and a Node in each.
func inNetworks(t *testing.T) (w *world, first, second *reconcile.Balancer) {
	t.Helper()
	w = newWorld(t, configured(func(c *reconcile.Config) { c.MaxBlocks = 2 }))
	w.setNodes(w.node("node-1"), w.node("node-2", inSecond))
	first = w.balancer
	config := w.config
	w.config.Network = network.Named{Name: "second", ID: otherNetwork}
	w.restart()
	second = w.balancer
	w.config = config
	return w, first, second
}

// TestEachNetworkHasItsOwnBlocks: what a Balancer buys, counts, names, sweeps and releases are the blocks of its own
// network. The names of those of the first are what they were with one network.
func TestEachNetworkHasItsOwnBlocks(t *testing.T) {
	w, first, second := inNetworks(t)
	shared := annotated(contract.ServiceIPAllocation, contract.AllocationShared)
	for i, name := range []string{"near", "far"} {
		w.lb = []balancer{first, second}[i]
		w.service(name, shared)
		w.settle(name)
		w.service(name + "-own")
		w.settle(name + "-own") // the limit of two is that of each network
	}
	in := map[string]string{v1beta1.DefaultNetwork: networkID, "second": otherNetwork}
	list, err := w.objects.IPBlocks.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 4 {
		t.Fatal(w.objectNames(), err)
	}
	for _, object := range list.Items {
		name := object.Spec.Attachment.Name
		block, err := w.client.Block(t.Context(), object.Spec.BlockID)
		if err != nil {
			t.Fatal(err)
		}
		if block.ResourceID != in[name] {
			t.Errorf("%s, of %s, is of a block that is assigned to %q", object.Name, name, block.ResourceID)
		}
		if object.Spec.Purpose == v1beta1.PurposeShared &&
			(object.Name != name+"-shared-1" || block.Tags[contract.TagPool] != name) {
			t.Errorf("%s of %s has the tags %v", object.Name, name, block.Tags)
		}
	}
	before := w.objectNames()
	for _, lb := range []*reconcile.Balancer{first, second} {
		w.lb = lb
		w.sweep()
	}
	if after := w.objectNames(); !slices.Equal(before, after) {
		t.Errorf("a sweep left %v of %v", after, before)
	}
	w.lb = second
	for _, name := range []string{"far", "far-own"} {
		w.delete(name)
		w.settle(name)
	}
	w.sweep()
	if left := w.objectNames(); len(left) != 2 || !slices.Contains(left, "default-shared-1") {
		t.Errorf("%v are left", left)
	}
}

// routed has a Router between two networks in the place of a Balancer. Others may be added to what it returns.
func routed(t *testing.T) (*world, *plan.Places) {
	t.Helper()
	w := newWorld(t)
	w.setNodes(w.node("node-1"), w.node("node-2", inSecond))
	places := &plan.Places{LocationAnnotation: contract.ServiceIPLocation}
	config := w.config
	config.Cloud = w.client
	config.Account = account.New(account.Config{Cloud: w.client, Now: config.Now})
	config.Ledgers = allocation.NewStore(w.objects, config.Now)
	config.Buyer = purchase.New(purchase.Config{Cloud: w.client, Interval: interval, Now: config.Now})
	config.Places = func() plan.Places { return *places }
	balancers := map[string]*reconcile.Balancer{}
	for _, named := range []network.Named{{Name: "default", ID: networkID}, {Name: "second", ID: otherNetwork}} {
		public, err := w.client.Network(w.ctx, named.ID)
		if err != nil {
			t.Fatal(err)
		}
		places.Served = append(places.Served, plan.Place{Named: named, Public: public})
		config.Network = named
		balancers[named.Name] = reconcile.New(config)
	}
	w.lb = reconcile.NewRouter(config, func(name string) *reconcile.Balancer { return balancers[name] })
	return w, places
}

// homesOf are the networks of the objects of blocks.
func (w *world) homesOf() string {
	w.t.Helper()
	list, err := w.objects.IPBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, object := range list.Items {
		all = append(all, object.Spec.Attachment.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestTheRouterKeepsAServiceInItsNetwork: the annotation chooses, and an edit of it is refused and takes nothing away,
// whichever kind of block it is and whatever process looks.
func TestTheRouterKeepsAServiceInItsNetwork(t *testing.T) {
	for _, kind := range []string{contract.AllocationDedicated, contract.AllocationShared} {
		w, _ := routed(t)
		w.service("web", annotated(contract.ServiceIPAllocation, kind, contract.ServiceNetwork, "second"))
		w.settle("web")
		address := w.address("web")
		if got := w.homesOf(); got != "second" {
			t.Fatalf("%s: blocks in %q", kind, got)
		}
		w.edit("web", annotated(contract.ServiceNetwork, "default"))
		_ = w.refused("web", time.Minute) // the condition says why
		c := meta.FindStatusCondition(w.get("web").Status.Conditions, contract.ServiceConditionBlockAssigned)
		if c == nil || c.Reason != string(ipblock.AllocationMismatch) ||
			!strings.Contains(c.Message, "take the change back") {
			t.Errorf("%s: %+v", kind, c)
		}
		if got := w.address("web"); got != address || w.homesOf() != "second" {
			t.Errorf("%s: address %s, was %s; blocks in %q", kind, got, address, w.homesOf())
		}
		w.sweep()
		w.delete("web")
		w.settle("web")
		w.sweep()
		if got := w.homesOf(); got != "" {
			t.Errorf("%s: blocks are left in %q", kind, got)
		}
	}
}

// TestANetworkThatIsNotServed: a Service with an address keeps it, also when it is deleted, until the network is served
// again.
func TestANetworkThatIsNotServed(t *testing.T) {
	w, places := routed(t)
	w.service("web", annotated(contract.ServiceNetwork, "second"))
	w.settle("web")
	address := w.address("web")
	both := places.Served
	places.Served = both[:1]
	w.clock.Advance(time.Minute)
	refusal := w.refused("web", time.Minute)
	if got := w.address("web"); got != address || !strings.Contains(refusal.Error(), `create PublicNetwork "second"`) {
		t.Errorf("address %q, was %q: %v", got, address, refusal)
	}
	w.delete("web")
	if err := w.refused("web", time.Minute); w.homesOf() != "second" {
		t.Errorf("blocks in %q: %v", w.homesOf(), err)
	}
	places.Served = both
	w.settle("web")
	if got := w.homesOf(); got != "" {
		t.Errorf("blocks are left in %q", got)
	}
}

// TestARefusedServiceIsFoundAgain: a network that appears serves those that were refused for want of it.
func TestARefusedServiceIsFoundAgain(t *testing.T) {
	w, places := routed(t)
	both := places.Served
	places.Served = both[:1]
	w.service("web", annotated(contract.ServiceNetwork, "second"))
	if err := w.refused("web", time.Minute); err == nil {
		t.Error("a network that is not served is not refused")
	}
	if found := w.drifted(); len(found) > 0 {
		t.Errorf("%v drifted, which say that they are refused", found)
	}
	places.Served = both
	if found := w.drifted(); !slices.Equal(found, []string{"web"}) {
		t.Errorf("%v drifted", found)
	}
	w.settle("web")
}

// TestAnOrderForANetwork: it says that its network is not served, and is bought there once it is.
func TestAnOrderForANetwork(t *testing.T) {
	w, places := routed(t)
	both := places.Served
	places.Served = both[:1]
	w.orderIn("second", "/29")
	w.passes(time.Minute)
	c := meta.FindStatusCondition(w.ordered().Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.Reason != string(ipblock.NetworkNotServed) || !strings.Contains(c.Message, "spec.attachment") ||
		!strings.Contains(c.Message, `create PublicNetwork "second"`) {
		t.Errorf("%+v", c)
	}
	w.wantPurchases(0)
	places.Served = both
	w.passes(5 * time.Minute)
	w.wantPurchases(1)
	block, err := w.client.Block(t.Context(), w.ordered().Spec.BlockID)
	if err != nil || block.ResourceID != otherNetwork {
		t.Errorf("%+v: %v", block, err)
	}
}

// TestAnotherNetworksBalancerChangesNothing: a choice by an old copy neither buys, gives, withdraws nor releases.
func TestAnotherNetworksBalancerChangesNothing(t *testing.T) {
	for _, kind := range []string{contract.AllocationDedicated, contract.AllocationShared} {
		w, first, second := inNetworks(t)
		w.lb = second
		w.service("web", annotated(contract.ServiceIPAllocation, kind))
		w.settle("web")
		blocks := w.blocks()
		address := w.address("web")
		w.lb = first
		w.clock.Advance(time.Hour)
		for _, leaving := range []bool{false, true} {
			if leaving {
				w.delete("web")
			}
			done, err := w.sync("web")
			var again *api.RetryError
			if done || !errors.As(err, &again) {
				t.Errorf("%s, leaving %t: done %t, %v", kind, leaving, done, err)
			}
			if got := w.blocks(); !slices.Equal(got, blocks) || w.homesOf() != "second" || w.address("web") != address {
				t.Errorf("%s, leaving %t: %v, had %v", kind, leaving, got, blocks)
			}
		}
		w.lb = second
		w.settle("web")
	}
}

// TestAServiceInTwoNetworksIsReleasedInBoth: whatever led there, its finalizer goes when neither has anything of it.
func TestAServiceInTwoNetworksIsReleasedInBoth(t *testing.T) {
	w, _ := routed(t)
	w.service("web", annotated(contract.ServiceNetwork, "second", contract.ServiceIPAllocation,
		contract.AllocationShared))
	w.settle("web")
	service := w.get("web")
	w.createIPBlock("svc-"+string(service.UID), v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeService,
		Attachment: v1beta1.Attachment{Name: "default"}, Source: v1beta1.SourceBought, BlockID: foreignID,
		ServiceRef: &v1beta1.ServiceReference{Namespace: service.Namespace, Name: service.Name, UID: service.UID}})
	if got := w.homesOf(); got != "default second" {
		t.Fatalf("blocks in %q", got)
	}
	w.delete("web")
	w.settle("web")
	w.sweep()
	if got := w.homesOf(); got != "" {
		t.Errorf("blocks are left in %q", got)
	}
}
