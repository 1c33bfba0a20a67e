package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// TestBlocksThatNeedASlot: a block that is not in the network yet has a slot reserved while it serves someone. One that
// is only kept, as that of a Service which is gone, needs none, and stops no purchase.
func TestBlocksThatNeedASlot(t *testing.T) {
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "api", UID: "uid-api"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	changed := other.DeepCopy()
	changed.Spec.Type = corev1.ServiceTypeClusterIP
	ofOther := plan.OwnerOf(other, "c1")
	for name, c := range map[string]struct {
		owner    network.Owner
		status   network.BlockStatus
		services []*corev1.Service
		want     int
	}{
		"the pool's":               {pool, network.Unassigned, nil, 1},
		"the nodes'":               {network.Owner{Cluster: "c1", Nodes: "default"}, network.Unassigned, nil, 1},
		"another Service's":        {ofOther, network.Unassigned, []*corev1.Service{other}, 1},
		"in the network already":   {ofOther, network.Assigned, []*corev1.Service{other}, 0},
		"of a Service changed":     {ofOther, network.Unassigned, []*corev1.Service{changed}, 0},
		"of a Service that's gone": {ofOther, network.Unassigned, nil, 0},
		"of another cluster":       {network.PoolOwner("c2", v1beta1.DefaultNetwork), network.Unassigned, nil, 0},
	} {
		b := block("a", c.status, func(b *network.Block) { b.Tags = c.owner.Tags() })
		if c.status == network.Unassigned {
			b.ResourceID = ""
		}
		o := leavingService(b, ipblock.Ledger{}, c.services...)
		if got := o.Complete().Reserved; got != c.want {
			t.Errorf("%s: %d slots are reserved, want %d", name, got, c.want)
		}
	}
}
