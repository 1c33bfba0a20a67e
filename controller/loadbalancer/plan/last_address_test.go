package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// leavingService is the observation of a Service that leaves the given block, with the ledger of that block.
func leavingService(b network.Block, l ipblock.Ledger, others ...*corev1.Service) plan.Observed {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"}}
	return plan.Observed{
		Service: service, Owner: plan.OwnerOf(service, "c1"), Holder: holder("web"), Live: true,
		Options: plan.Options{Allocation: contract.AllocationDedicated, BlockSize: "/29", Location: "ASH",
			MaxRetained: 9, MaxRetainedPerNamespace: 9},
		Ledgers: []ipblock.Ledger{l}, Blocks: []network.Block{b}, Services: append(others, service),
		Account: ipblock.Account{
			Now: noon, Network: network.Named{ID: net1}, Sightings: []network.Sighting{{Block: b}},
			Networks: map[string]network.Network{net1: {ID: net1, Location: "ASH", Status: network.StatusReady}},
		},
	}
}

// The block goes with the last of its addresses that is released: a block of the pool when no one waits for
// an address, a brought one only if the controller assigned it.
func TestTheLastOneReleasesTheBlock(t *testing.T) {
	pooled := func(b *network.Block) { b.Tags = pool.Tags() }
	brought := func(b *network.Block) { b.Tags = map[string]string{contract.TagCluster: "c1"} }
	waiting := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "api", UID: "uid-api",
			Annotations: map[string]string{contract.ServiceIPAllocation: contract.AllocationShared}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
	last := map[string]string{"203.0.113.11": "web"}
	oneOfTwo := map[string]string{"203.0.113.11": "web", "203.0.113.12": "db"}
	waits := []*corev1.Service{waiting}
	for name, c := range map[string]struct {
		block  func(*network.Block)
		held   map[string]string
		here   bool
		others []*corev1.Service
		closed bool
	}{
		"pool, the last one":                     {block: pooled, held: last, closed: true},
		"pool, one of two":                       {block: pooled, held: oneOfTwo},
		"pool, another one waits":                {block: pooled, held: last, others: waits},
		"brought, assigned by the user":          {block: brought, held: last},
		"brought, assigned here":                 {block: brought, held: last, here: true, closed: true},
		"brought, assigned here, another waits":  {block: brought, held: last, here: true, others: waits, closed: true},
		"brought, assigned here, another has it": {block: brought, held: oneOfTwo, here: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger29(c.held)
			l.AssignedHere = c.here
			got := plan.PlanRelease(leavingService(block("a", network.Assigned, c.block), l, c.others...).Complete(),
				nil)
			if len(got.Save) != 1 || got.Save[0].Closed != c.closed || len(got.Save[0].Held) != len(c.held)-1 {
				t.Errorf("saves %+v, want a closed ledger: %t", got.Save, c.closed)
			}
		})
	}
}

// What the Service says about the life of its block is written on the block before anything is released.
func TestTheTagOfARetainedBlock(t *testing.T) {
	own := network.Owner{Cluster: "c1", Namespace: "shop", Name: "web"}
	for annotation, want := range map[string]string{
		"true": contract.TagTrue, "false": "unchanged", "maybe": "unchanged",
	} {
		b := block("a", network.Assigned, func(b *network.Block) { b.Tags = own.Tags() })
		o := leavingService(b, ipblock.NewLedger("z", prefix("203.0.113.64/29")))
		live := o.Service.DeepCopy()
		live.Annotations = map[string]string{contract.ServiceIPRetain: annotation}
		got := plan.PlanRelease(o.Complete(), live)
		if want == "unchanged" && got.Tags != nil || want != "unchanged" && got.Tags[contract.TagRetain] != want {
			t.Errorf("%s: tags %v, want %s", annotation, got.Tags, want)
		}
	}
}

// Who has a block of its own waits for no address of the pool, whatever an option that was changed since says; nor does
// who is refused because the block is lost.
func TestWhoWaitsForThePool(t *testing.T) {
	service := func(change ...func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "api", UID: "uid-api",
				Annotations: map[string]string{contract.ServiceIPOwner: "uid-api"}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		}
		for _, c := range change {
			c(s)
		}
		return s
	}
	annotated := func(name, value string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Annotations[name] = value }
	}
	asks := func(ip string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerIP = ip }
	}
	published := annotated(contract.ServiceIPAddress, "203.0.113.26")
	demands := annotated(contract.ServiceIPAllocation, contract.AllocationShared)
	named := annotated(contract.ServiceIPBlock, "mine")
	nodePort := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }
	own := block("own", network.Assigned, cidr("203.0.113.24/29"), func(b *network.Block) {
		b.Tags = network.Owner{Cluster: "c1", Namespace: "shop", Name: "api"}.Tags()
	})
	for name, c := range map[string]struct {
		other  *corev1.Service
		blocks []network.Block
		held   map[string]string
		want   bool
	}{
		"new":                                  {other: service(), want: true},
		"of a block of its own":                {other: service(published), blocks: []network.Block{own}},
		"of a block of its own, asks for pool": {other: service(published, demands), blocks: []network.Block{own}},
		"its own block is on its way":          {other: service(), blocks: []network.Block{own}},
		"its own block is not to be used":      {other: service(demands), blocks: []network.Block{own}, want: true},
		"its own block is gone":                {other: service(published)},
		"its own block is gone, to be replaced": {other: service(published, annotated(contract.ServiceIPReplace, "true")),
			want: true},
		"its address is in a block of the pool": {other: service(annotated(contract.ServiceIPAddress, "203.0.113.13")),
			want: true},
		"has an address of the pool":      {other: service(), held: map[string]string{"203.0.113.12": "api"}},
		"asks for an address of the pool": {other: service(asks("203.0.113.13")), want: true},
		"asks for an address of no block": {other: service(asks("198.51.100.7"))},
		"asks for nonsense":               {other: service(demands, asks("here"))},
		"names a block":                   {other: service(named)},
		"of another type":                 {other: service(nodePort)},
	} {
		b := block("a", network.Assigned, func(b *network.Block) { b.Tags = pool.Tags() })
		o := leavingService(b, ledger29(c.held), c.other)
		o.Options.Allocation = contract.AllocationShared
		o.Blocks = append(o.Blocks, c.blocks...)
		if got := o.Awaited(); got != c.want {
			t.Errorf("%s: waits is %t, want %t", name, got, c.want)
		}
	}
}
