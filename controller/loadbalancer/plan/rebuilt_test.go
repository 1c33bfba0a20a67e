package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestALostLedger: no Service gets an address of it at once, but one that has the address published. The quarantine
// ends, because the ledger is stored, and until then the block is not released.
func TestALostLedger(t *testing.T) {
	b := block("a", network.Assigned)
	b.Tags = network.PoolOwner(ours, v1beta1.DefaultNetwork).Tags()
	look := func(published string, change ...func(*plan.Observed)) plan.Observed {
		asking := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
		if published != "" {
			asking.Annotations = map[string]string{contract.ServiceIPAddress: published,
				contract.ServiceIPOwner: string(asking.UID)}
			asking.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: published}}
		}
		obs := plan.Observed{Service: asking, Owner: plan.OwnerOf(asking, ours), Holder: plan.HolderOf(asking),
			Live: true, Desired: plan.Desired{Shared: true}, Blocks: []network.Block{b},
			Services: []*corev1.Service{asking}, QuarantinedSince: noon,
			Account: ipblock.Account{Now: noon, Network: network.Named{ID: net1},
				Sightings: []network.Sighting{{Block: b}},
				Networks:  map[string]network.Network{net1: view(nil).Networks[net1]}}}
		for _, c := range change {
			c(&obs)
		}
		return obs.Complete()
	}
	lost := look("")
	waits := plan.Decide(lost)
	if waits.Step.Reason != ipblock.AddressQuarantined || len(waits.Save) != 1 || len(waits.Save[0].Held) != 0 {
		t.Fatalf("a new Service: %+v", waits)
	}
	if empty := lost.EmptyPool(); len(empty) != 0 {
		t.Errorf("%v are released", empty)
	}
	kept := plan.Decide(look("203.0.113.11"))
	if kept.Step.Address != addr("203.0.113.11") || kept.Reused || len(kept.Save) != 1 ||
		len(kept.Save[0].Quarantined) != len(waits.Save[0].Quarantined)-1 {
		t.Errorf("a Service with an address: %+v", kept)
	}
	later := func(o *plan.Observed) {
		o.Ledgers = waits.Save
		o.Now = noon.Add(ipblock.Quarantine)
	}
	if got := plan.Decide(look("", later)); got.Step.Action != ipblock.Done || got.Reused {
		t.Errorf("when the quarantine has ended: %+v", got)
	}
	if empty := look("", later).EmptyPool(); len(empty) != 1 {
		t.Errorf("%v are released", empty)
	}
	bought := func(o *plan.Observed) {
		o.Records = ipblock.Records{{Purchase: ipblock.Purchase{BlockID: "a", Time: noon.Add(-time.Hour)}}}
	}
	if got := plan.Decide(look("", bought)); got.Step.Action != ipblock.Done {
		t.Errorf("of a block that was bought: %+v", got)
	}
}
