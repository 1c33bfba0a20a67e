package plan_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// sharer is a Service of a namespace with a key, the IPBlock that it names, and a port.
func sharer(namespace, name, key, block string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name),
			Annotations: map[string]string{contract.ServiceSharedAddress: key, contract.ServiceIPBlock: block}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: port}}},
	}
}

// TestWhoJoinsWhom: Services share with those of their namespace, and with others only where an administrator lists
// both.
func TestWhoJoinsWhom(t *testing.T) {
	const brought = "60473c2509268bc77fd06d40"
	address := netip.MustParseAddr("203.0.113.66")
	for name, test := range map[string]struct {
		first, second *corev1.Service
		listed        []string
		joins         bool
		says          string
	}{
		"a listed namespace": {sharer("shop", "web", "front", "mine", 443), sharer("blog", "dns", "front", "mine", 53),
			[]string{"shop", "blog"}, true, ""},
		"the same port": {sharer("shop", "web", "front", "mine", 443), sharer("blog", "dns", "front", "mine", 443),
			[]string{"shop", "blog"}, false, "Service shop/web has the address"},
		"another key": {sharer("shop", "web", "front", "mine", 443), sharer("blog", "dns", "back", "mine", 53),
			[]string{"shop", "blog"}, false, ""},
		"all namespaces": {sharer("shop", "web", "front", "mine", 443), sharer("blog", "dns", "front", "mine", 53),
			nil, false, ""},
		"the same namespace": {sharer("shop", "web", "front", "mine", 443), sharer("shop", "dns", "front", "mine", 53),
			nil, true, ""},
		"a namespace that is not listed": {sharer("shop", "web", "front", "mine", 443),
			sharer("blog", "dns", "front", "mine", 53), []string{"shop"}, false, "is not for namespace blog"},
		"the pool": {sharer("shop", "web", "front", "mine", 443), sharer("shop", "dns", "front", "", 53), nil, false,
			"of IPBlock mine; set annotation " + contract.ServiceIPBlock + " to mine"},
	} {
		t.Run(name, func(t *testing.T) {
			obs := withBrought(brought, test.listed, test.first, test.second)
			decide := func(s *corev1.Service) plan.ServicePlan {
				about, _, _ := obs.About(plan.Subject{Service: s})
				return plan.Decide(about.Complete())
			}
			first := decide(test.first)
			if first.Step.Address != address || len(first.Save) != 1 {
				t.Fatalf("the first one gets %+v", first)
			}
			first.Save[0].Object = "mine"
			obs.Ledgers = first.Save
			second := decide(test.second)
			if joins := second.Step.Action == ipblock.Done && second.Step.Address == address; joins != test.joins ||
				!strings.Contains(second.Step.Detail, test.says) {
				t.Errorf("the second one gets %+v, want to join: %t, and %q", second.Step, test.joins, test.says)
			}
			if test.says != "" && (second.Step.Action != ipblock.Refuse || len(second.Save) > 0) {
				t.Errorf("it is not refused before anything is written: %+v", second)
			}
		})
	}
}

// withBrought is what is observed of a brought block for the Services of some namespaces.
func withBrought(id string, listed []string, services ...*corev1.Service) plan.Observed {
	block := network.Block{ID: id, CIDR: netip.MustParsePrefix("203.0.113.64/29"),
		Status: network.Assigned, ResourceID: net1, ResourceType: "public network", Location: "ASH"}
	return plan.Observed{Live: true, Blocks: []network.Block{block},
		Owner: network.Owner{Cluster: "c1"}, Services: services,
		Options: plan.Options{Announcer: contract.AnnouncerAgent, Allocation: contract.AllocationShared,
			BlockSize: "/29", LocationAnnotation: contract.ServiceIPLocation},
		BroughtBlocks: ipblock.BroughtBlocks{{Object: "mine", BlockID: id, Namespaces: listed}},
		IPBlocks:      []string{"mine"},
		Account: ipblock.Account{Network: network.Named{ID: net1}, Now: noon,
			Sightings: []network.Sighting{{Block: block}}, Networks: map[string]network.Network{net1: {ID: net1,
				Status: network.StatusReady, Location: "ASH",
				Blocks: []network.ListedBlock{{ID: id, CIDR: block.CIDR}}}}}}
}

// TestASuccessorInAGroup: a Service that is deleted and created again, without the controller seeing that, has what its
// predecessor had of its own; of a group it has the address only if it asks for that.
func TestASuccessorInAGroup(t *testing.T) {
	const brought = "60473c2509268bc77fd06d40"
	shared := netip.MustParseAddr("203.0.113.66")
	for name, test := range map[string]struct {
		key   string
		only  bool // its predecessor had the address without others
		stays bool
	}{
		"with the key":                       {"front", false, true},
		"without a key":                      {"", false, false},
		"with another key":                   {"back", false, false},
		"without a key, where no other has":  {"", true, true},
		"with another key, and no other has": {"back", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			first := sharer("shop", "web", "front", "mine", 443)
			again := sharer("shop", "dns", test.key, "mine", 443) // clashes where it may not stay
			if test.key == "front" {
				again.Spec.Ports[0].Port = 53
			}
			again.UID = "created-again"
			obs := withBrought(brought, nil, first, again)
			ledger := ipblock.NewLedger(brought, netip.MustParsePrefix("203.0.113.64/29"))
			ledger.Object = "mine"
			ledger.Held = map[netip.Addr]ipblock.Holder{shared: {Namespace: "shop", Name: "dns", UID: "uid-dns"}}
			group := ipblock.Group{Name: "shop/front"}
			if !test.only {
				group.Others = []ipblock.Holder{plan.HolderOf(first)}
			}
			obs.Ledgers = []ipblock.Ledger{ledger.WithGroup(shared, group)}
			about, _, _ := obs.About(plan.Subject{Service: again})
			decided := plan.Decide(about.Complete())
			stays := decided.Step.Address == shared
			if decided.Step.Action != ipblock.Done || stays != test.stays || len(decided.Save) != 1 {
				t.Fatalf("it gets %+v, want %s to stay: %t", decided, shared, test.stays)
			}
			if err := decided.Save[0].Check(); err != nil {
				t.Error(err)
			}
			has := decided.Save[0].Holders(shared)
			if others := []ipblock.Holder{plan.HolderOf(first)}; !test.stays && !slices.Equal(has, others) {
				t.Errorf("%s has %v, want the other one", shared, has)
			}
		})
	}
}
