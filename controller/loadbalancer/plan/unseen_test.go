package plan_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// sources say where a block can be found that does not answer by its ID.
type sources struct{ list, hidden, index, network bool }

// publishedIn observes a Service whose address 203.0.113.11 is in block "a", which cannot be read by its ID.
func publishedIn(b network.Block, shown sources, desired plan.Desired, ledgers ...ipblock.Ledger) plan.Observed {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web", Annotations: map[string]string{
			contract.ServiceIPAddress: "203.0.113.11", contract.ServiceIPOwner: "uid-web"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
	desired.Location = "ASH"
	public := network.Network{ID: net1, Location: "ASH", Status: network.StatusReady,
		Blocks: []network.ListedBlock{{ID: "other", CIDR: prefix("198.51.100.0/29")}}}
	o := plan.Observed{
		Service: service, Owner: plan.OwnerOf(service, "c1"), Holder: holder("web"), Desired: desired, Live: true,
		Ledgers: ledgers, Services: []*corev1.Service{service}, Account: ipblock.Account{Now: noon,
			Network: network.Named{ID: net1}}, Nodes: []*corev1.Node{member()},
		BroughtBlocks: ipblock.BroughtBlocks{{Object: "mine", BlockID: "a"}},
	}
	if shown.list {
		o.Blocks = []network.Block{b}
	}
	if shown.hidden {
		o.Sightings = []network.Sighting{{Block: b, Hidden: true}}
	}
	if shown.index {
		o.Unseen = []string{b.ID}
	}
	if shown.network {
		public.Blocks = append(public.Blocks, network.ListedBlock{ID: b.ID, CIDR: b.CIDR})
	}
	o.Networks = map[string]network.Network{net1: public}
	return o
}

// A published address stays, and nothing is bought as long as the network has its block, though the block does not
// answer by its ID. Without the network the block is gone.
func TestABlockOfTheNetworkIsNotGone(t *testing.T) {
	const waits, vanishes = "wait BlockInvisible a", "wait DeletionUnverified a"
	given := []ipblock.Ledger{ledger29(map[string]string{"203.0.113.11": "web"})}
	ofUser := []ipblock.Ledger{given[0]}
	ofUser[0].Brought = true
	brought := map[string]string{contract.TagCluster: "c1"}
	for name, kind := range map[string]struct {
		tags    map[string]string
		desired plan.Desired
		ledgers []ipblock.Ledger
		// gone is what is decided when nothing shows the block, indexed when only the index does, and listed when only
		// the list does.
		gone, indexed, listed string
	}{
		"dedicated": {shop.Tags(), plan.Desired{}, nil, "refuse BlockLost ", "refuse BlockLost ", vanishes},
		"dedicated, to be replaced": {shop.Tags(), plan.Desired{Request: ipblock.Request{Replace: true}}, nil, "buy PurchaseDue ",
			"buy PurchaseDue ", vanishes},
		"dedicated, asks for the address": {shop.Tags(), plan.Desired{Request: ipblock.Request{Requested: addr("203.0.113.11")}}, nil,
			"refuse BlockLost ", "refuse BlockLost ", vanishes},
		"dedicated, the default says shared": {shop.Tags(), plan.Desired{Shared: true}, nil, "refuse BlockLost ",
			"refuse BlockLost ", vanishes},
		"shared": {pool.Tags(), plan.Desired{Shared: true}, given, "refuse BlockLost ", waits, vanishes},
		"shared, to be replaced": {pool.Tags(), plan.Desired{Shared: true, Request: ipblock.Request{Replace: true}}, given, "buy PurchaseDue ",
			waits, vanishes},
		"shared, the default says dedicated": {pool.Tags(), plan.Desired{}, given, "refuse BlockLost ", waits, vanishes},
		"shared, its record is lost": {pool.Tags(), plan.Desired{Shared: true}, nil, "refuse BlockLost ",
			"refuse BlockLost ", vanishes},
		"brought": {brought, plan.Desired{IPBlock: "mine"}, ofUser, "refuse BlockLost ", waits,
			"refuse BlockUnusable "},
	} {
		b := block("a", network.Assigned, func(b *network.Block) { b.Tags = kind.tags })
		for where, test := range map[string]struct {
			shown sources
			want  string
		}{
			"listed and in the network":              {sources{list: true, hidden: true, network: true}, waits},
			"listed, not indexed and in the network": {sources{list: true, network: true}, waits},
			"indexed and in the network":             {sources{index: true, network: true}, waits},
			"in the network":                         {sources{network: true}, waits},
			"listed":                                 {sources{list: true, hidden: true}, kind.listed},
			"indexed":                                {sources{index: true}, kind.indexed},
			"nowhere":                                {sources{}, kind.gone},
		} {
			step := plan.Decide(publishedIn(b, test.shown, kind.desired, kind.ledgers...).Complete()).Step
			step.Address = netip.Addr{}
			if got := describeStep(step); got != test.want {
				t.Errorf("%s, %s: %s, want %s (%s)", name, where, got, test.want, step.Detail)
			}
		}
	}
}

// A block of which another owner is known is not the lost one, though it has the published address.
func TestABlockOfAnotherOwnerIsNotTheLostOne(t *testing.T) {
	for name, c := range map[string]struct {
		tags map[string]string
		want string
	}{
		"of another Service": {network.Owner{Cluster: "c1", Namespace: "shop", Name: "api"}.Tags(), "refuse BlockLost "},
		"of another cluster": {network.Owner{Cluster: "c2", Namespace: "shop", Name: "web"}.Tags(), "refuse BlockLost "},
		"of no one":          {nil, "refuse BlockRetagged "},
	} {
		b := block("a", network.Assigned, func(b *network.Block) { b.Tags = c.tags })
		got := describeStep(plan.Decide(publishedIn(b, sources{list: true, network: true},
			plan.Desired{}).Complete()).Step)
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A release ends, and a ledger is dropped, only when nothing shows the block any more.
func TestNothingIsForgottenThatTheNetworkHas(t *testing.T) {
	closed := ledger29(nil).Close()
	closed.Quarantined = map[netip.Addr]ipblock.Released{addr("203.0.113.11"): {Holder: holder("web"), Since: noon}}
	for name, kind := range map[string]struct {
		tags    map[string]string
		ledgers []ipblock.Ledger
		indexed ipblock.Action
	}{
		"dedicated": {shop.Tags(), nil, ipblock.Done},
		"retained":  {with(shop.Tags(), contract.TagRetain, contract.TagTrue), nil, ipblock.Done},
		"shared":    {pool.Tags(), []ipblock.Ledger{closed}, ipblock.Wait},
	} {
		b := block("a", network.Assigned, func(b *network.Block) { b.Tags = kind.tags })
		for where, test := range map[string]struct {
			shown sources
			want  ipblock.Action
		}{
			"listed and in the network":              {sources{list: true, hidden: true, network: true}, ipblock.Wait},
			"listed, not indexed and in the network": {sources{list: true, network: true}, ipblock.Wait},
			"in the network":                         {sources{network: true}, ipblock.Wait},
			"indexed":                                {sources{index: true}, kind.indexed},
			"nowhere":                                {sources{}, ipblock.Done},
		} {
			got := plan.PlanRelease(publishedIn(b, test.shown, plan.Desired{}, kind.ledgers...).Complete(), nil)
			dropped := len(got.Drop) > 0
			if got.Next().Action != test.want || dropped != (len(kind.ledgers) > 0 && test.want == ipblock.Done) {
				t.Errorf("%s, %s: %+v, want %s", name, where, got, test.want)
			}
		}
	}
}

// member is a Node whose server is a member of the network.
func member() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: nodenet.Member(net1)},
		Spec:       corev1.NodeSpec{ProviderID: contract.ProviderID("60473c2509268bc77fd06d31")},
	}
}
