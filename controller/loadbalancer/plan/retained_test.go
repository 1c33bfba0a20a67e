package plan_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// retaining is a Service that asks for a block that outlives it, the age of which is in seconds.
func retaining(namespace, name string, age int) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name),
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Duration(age) * time.Second)),
			Annotations:       map[string]string{contract.ServiceIPRetain: contract.TagTrue}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
}

// retainedFor is a block that outlives, or is to outlive, a Service.
func retainedFor(namespace, name string) network.Block {
	return block(name, network.Unassigned, func(b *network.Block) {
		b.Tags = with((network.Owner{Cluster: "c1", Namespace: namespace, Name: name}).Tags(), contract.TagRetain,
			contract.TagTrue)
	})
}

// TestWhatOutlivesServicesIsBounded: one block of each namespace, and two in all, whoever asks and in whatever order.
func TestWhatOutlivesServicesIsBounded(t *testing.T) {
	contradicting := retaining("shop", "odd", 90)
	contradicting.Annotations[contract.ServiceIPAllocation] = contract.AllocationShared
	const full, buys = "refuse TooManyRetainedBlocks ", "buy PurchaseDue "
	for name, test := range map[string]struct {
		blocks   []network.Block
		services []*corev1.Service
		want     string
	}{
		"nothing is retained":      {want: buys},
		"one of the namespace":     {blocks: []network.Block{retainedFor("shop", "gone")}, want: full},
		"one of another namespace": {blocks: []network.Block{retainedFor("bank", "gone")}, want: buys},
		"two of other namespaces":  {blocks: []network.Block{retainedFor("bank", "a"), retainedFor("news", "b")}, want: full},
		"an older Service asks":    {services: []*corev1.Service{retaining("shop", "old", 99)}, want: full},
		"a newer Service asks":     {services: []*corev1.Service{retaining("shop", "new", 1)}, want: buys},
		"older ones that are refused do not count": {services: []*corev1.Service{
			retaining("bank", "a", 99), retaining("bank", "b", 98), retaining("bank", "c", 97)}, want: buys},
		"an older Service whose wishes exclude each other": {services: []*corev1.Service{contradicting}, want: buys},
		"an older Service counts once": {blocks: []network.Block{retainedFor("bank", "a")},
			services: []*corev1.Service{retaining("bank", "a", 99)}, want: buys},
	} {
		t.Run(name, func(t *testing.T) {
			if got := describeStep(plan.Decide(asking(test.services,
				test.blocks...).Complete()).Step); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// asking is the observation of Service shop/web, which asks for a block that outlives it.
func asking(others []*corev1.Service, blocks ...network.Block) plan.Observed {
	service := retaining("shop", "web", 50)
	options := plan.Options{Allocation: contract.AllocationDedicated, BlockSize: "/29", Location: "ASH", MaxRetained: 2,
		MaxRetainedPerNamespace: 1}
	o := plan.Observed{
		Service: service, Owner: plan.OwnerOf(service, "c1"), Holder: plan.HolderOf(service), Live: true,
		Options: options, Nodes: []*corev1.Node{member()}, Blocks: blocks, Services: append(others, service),
		Account: ipblock.Account{Now: noon, Network: network.Named{ID: net1},
			Networks: map[string]network.Network{net1: {ID: net1, Location: "ASH", Status: network.StatusReady}}},
	}
	o.Desired, o.Problem = plan.ReadDesired(service, options)
	return o
}

// TestARetainedBlockStaysRetained: whatever the bounds are by now, a Service keeps what it has, and one that may not
// retain its block is served and releases it.
func TestARetainedBlockStaysRetained(t *testing.T) {
	for _, has := range []bool{true, false} {
		t.Run(fmt.Sprint(has), func(t *testing.T) {
			own := retainedFor("shop", "web")
			own.Status = network.Assigned
			own.ResourceID = net1
			own.ResourceType = "public network"
			if !has {
				delete(own.Tags, contract.TagRetain)
			}
			o := asking(nil, own, retainedFor("shop", "gone"))
			o.Sightings = []network.Sighting{{Block: own}}
			p := plan.Decide(o.Complete())
			if p.Step.Action != ipblock.Done || p.Tags != nil || p.Rejects() == has {
				t.Errorf("%s %s, tags %v, rejected %v", p.Step.Action, p.Step.Reason, p.Tags, p.Rejected)
			}
			o.Service.DeletionTimestamp = &metav1.Time{Time: noon}
			release := plan.PlanRelease(o.Complete(), o.Service)
			if release.Tags != nil || network.Retained(own) != has ||
				(release.Forgone.Action == ipblock.Refuse) == has {
				t.Errorf("released with tags %v, forgone %v", release.Tags, release.Forgone)
			}
		})
	}
}
