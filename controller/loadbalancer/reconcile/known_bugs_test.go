package reconcile_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// The tests of this file catch bugs that other cloud providers had; docs/reference/known-bugs.md names them.

// TestANodeWithoutAServerKeepsNoServiceWaiting: one Node that is not initialised, or whose server is gone,
// must not fail the update of every Service.
//
//proves:known-bugs/one-node-blocks-services
func TestANodeWithoutAServerKeepsNoServiceWaiting(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	nodes := []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "of-another-cloud"}, Spec: corev1.NodeSpec{ProviderID: "aws:///i-1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "server-gone"},
			Spec: corev1.NodeSpec{ProviderID: "phoenixnap://60473c2509268bc77fd06dff"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "good", Annotations: nodenet.Member(networkID)}, Spec: corev1.NodeSpec{ProviderID: "phoenixnap://" +
			serverID}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: contract.ConditionVLANReady, Status: corev1.ConditionTrue},
		}}},
	}
	for i := range 20 { // they are listed in no order
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("not-initialised-", i)}})
	}
	for _, node := range nodes {
		if err := w.nodes.Add(node); err != nil {
			t.Fatal(err)
		}
	}
	w.service("api")
	for _, name := range []string{"web", "api"} {
		if w.settle(name); w.address(name) == "" {
			t.Errorf("Service %s has no address", name)
		}
	}
}

// TestDeletionThatIsRefusedAtFirst: right after a block was unassigned, the API refuses to delete it for a
// while; and it says 403 of what it holds as well as of what is gone.
//
//proves:known-bugs/deletion-refused
func TestDeletionThatIsRefusedAtFirst(t *testing.T) {
	for _, status := range []int{400, 403, 404, 409, 422} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.service("web")
			w.settle("web")
			w.arm(pnapsim.Fault{Method: http.MethodDelete, Path: blockPath, Times: 3, Action: pnapsim.FaultStatus,
				Status: status})
			w.delete("web")
			w.settle("web")
			w.wantBlocks()
			if refused := w.sim.Counters()["DELETE /ips/v1/ip-blocks/{ipBlockId}"][status]; refused != 3 {
				t.Errorf("%d deletions were refused, want 3: the test proves nothing", refused)
			}
		})
	}
}

// TestADeletedServiceLeavesNeitherOfTwoBlocks: a deletion that finds more than it expects releases all of it,
// in whatever states the blocks are.
//
//proves:known-bugs/two-blocks
func TestADeletedServiceLeavesNeitherOfTwoBlocks(t *testing.T) {
	w := newWorld(t, withBlocks(
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29", Tags: ours("web"), Network: "public"},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.16/29", Tags: ours("web"), Network: "other"},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.24/29", Tags: ours("web")},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.32/29", Tags: ours("web-2"), Network: "public"},
	))
	w.service("web")
	w.delete("web")
	w.settle("web")
	w.wantBlocks("203.0.113.32/29 assigned")
}

// TestAnotherClustersPoolIsNotUsed: what other clusters of the account share is not for Services of this one,
// though everything but the cluster is the same.
//
//proves:known-bugs/lookup-by-name
func TestAnotherClustersPoolIsNotUsed(t *testing.T) {
	tags := map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: "another",
		contract.TagPool: v1beta1.DefaultNetwork}
	w := newWorld(t, withBlocks(pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.64/29", Tags: tags,
		Network: "public"}))
	w.service("web", inPool())
	w.settle("web")
	w.wantPurchases(1)
	w.delete("web")
	w.settle("web")
	w.sweep()
	w.wantBlocks("203.0.113.64/29 assigned")
}

// TestAddressOfAServerIsGivenToNoService: in the portal, a server may be given any address of a block, which the
// API believes to be free.
//
//proves:known-bugs/portal-address-reused
func TestAddressOfAServerIsGivenToNoService(t *testing.T) {
	w := newWorld(t)
	w.service("one", inPool())
	w.settle("one")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID, Network: networkID})
	w.clock.Advance(10 * time.Minute)
	w.portal(pnapsim.Edit{Kind: pnapsim.EditAddMember, Server: serverID, Network: networkID,
		IPs: []string{"203.0.113.11"}})
	w.clock.Advance(10 * time.Minute)
	w.service("two", inPool())
	w.settle("two")
	if one, two := w.address("one"), w.address("two"); one != "203.0.113.10" || two != "203.0.113.12" {
		t.Errorf("addresses %s and %s, and 203.0.113.11 is a server's", one, two)
	}
	w.wantPurchases(1)
}

// TestNothingWrittenOnAServiceKeepsItFromGoing: a deletion reads IDs and tags, never what a user can break.
//
//proves:known-bugs/blocked-deletion
func TestNothingWrittenOnAServiceKeepsItFromGoing(t *testing.T) {
	for _, value := range []string{"nonsense", "", "{", broughtID, "mine", "-1", "\x00"} {
		t.Run(fmt.Sprintf("%q", value), func(t *testing.T) {
			w := newWorld(t, broughtBlock("public", ofCluster()))
			w.bring("mine")
			w.service("web")
			w.settle("web")
			w.edit("web", func(s *corev1.Service) {
				for _, name := range []string{
					contract.ServiceIPLocation, contract.ServiceIPAllocation, contract.ServiceIPBlockSize,
					contract.ServiceIPBlock, contract.ServiceIPRetain,
					contract.ServiceRequestedIP, contract.ServiceIPReplace, contract.ServiceIPAddress,
					contract.ServiceIPBlockCIDR, contract.ServiceIPGateway,
					contract.ServiceIPBlockAssigned, contract.ServiceIPOwner,
					contract.KubeVIPAddresses, contract.KubeVIPInterface,
					"phoenixnap.com/ip-unheard-of",
				} {
					annotated(name, value)(s)
				}
				s.Spec.LoadBalancerIP = value
				s.Status = corev1.ServiceStatus{}
			})
			w.delete("web")
			w.settle("web")
			w.wantBlocks("203.0.113.64/29 assigned")
		})
	}
}

// TestWhatIsWrongIsReportedBeforeThePurchase: everything that can be known beforehand costs nothing.
//
//proves:known-bugs/late-validation
func TestWhatIsWrongIsReportedBeforeThePurchase(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Service)
		want   string
	}{
		"an annotation that is not known": {annotated("phoenixnap.com/ip-sice", "/28"),
			"phoenixnap.com/ip-sice is not known"},
		"no size":            {annotated(contract.ServiceIPBlockSize, "29"), `"29"`},
		"neither yes nor no": {annotated(contract.ServiceIPRetain, "perhaps"), `"perhaps"`},
		"shared and retained": {annotated(contract.ServiceIPAllocation, "shared", contract.ServiceIPRetain,
			"true"), "a block of the Service's own"},
		"an address of no block": {annotated(contract.ServiceRequestedIP, "192.0.2.7"), "192.0.2.7"},
		"the gateway of a brought block": {annotated(contract.ServiceIPBlock, givenAs(broughtID),
			contract.ServiceRequestedIP, "203.0.113.65"), "203.0.113.65"},
		"the broadcast of a brought block": {annotated(contract.ServiceIPBlock, givenAs(broughtID),
			contract.ServiceRequestedIP, "203.0.113.71"), "203.0.113.71"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, broughtBlock("public", ofCluster()))
			w.service("web", test.change)
			if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), test.want) {
				t.Errorf("refusal is %q, want %q in it", err, test.want)
			}
			w.wantPurchases(0)
			if c := w.condition("web"); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, test.want) {
				t.Errorf("condition %+v", c)
			}
			if published := w.get("web").Annotations[contract.KubeVIPAddresses]; published != "" {
				t.Errorf("%s is announced", published)
			}
			w.delete("web")
			w.settle("web")
			w.wantBlocks("203.0.113.64/29 assigned")
		})
	}
}

// TestDeletionAndCollapseAreQuick: beyond what the API takes, a deletion is complete within half a minute, and
// a block too many is gone within five.
//
//proves:known-bugs/slow-deletion
func TestDeletionAndCollapseAreQuick(t *testing.T) {
	quick := func(config *pnapsim.Config, _ *pnapsim.AccountSeed, _ *reconcile.Config) {
		config.Latency = &pnapsim.Latency{}
	}
	const unassigning = time.Minute
	for api, option := range map[time.Duration]option{
		0: quick, unassigning: slow(func(l *pnapsim.Latency) { l.Unassign = pnapsim.Duration(unassigning) }),
	} {
		w := newWorld(t, option)
		w.service("web")
		w.settle("web")
		w.delete("web")
		if took := w.settle("web"); took > api+30*time.Second {
			t.Errorf("the deletion took %s, of which the API took %s", took, api)
		}
	}
	for _, resource := range []string{"", "public", "other"} {
		w := newWorld(t, quick, withBlocks(
			pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29", Tags: ours("web"), Network: "public"},
			pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.16/29", Tags: ours("web"), Network: resource},
		))
		w.service("web", func(s *corev1.Service) {
			s.Spec.LoadBalancerIP = "203.0.113.10"
			s.Annotations = map[string]string{contract.ServiceIPAddress: "203.0.113.10"}
		})
		start := w.clock.Now()
		for len(w.blocks()) > 1 && w.clock.Now().Sub(start) < time.Hour {
			_, err := w.sync("web")
			w.clock.Advance(max(w.pauseAfter(err), interval))
		}
		if took := w.clock.Now().Sub(start); took > 5*time.Minute {
			t.Errorf("block on network %q: gone after %s", resource, took)
		}
		w.wantBlocks("203.0.113.8/29 assigned")
	}
}
