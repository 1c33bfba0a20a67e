package reconcile_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

const broughtID = "60473c2509268bc77fd06d40"

// broughtBlock is a block that the account's owner lets the cluster use.
func broughtBlock(network string, tags map[string]string) option {
	return withBlocks(pnapsim.BlockSeed{
		ID: broughtID, Location: "ASH", CIDR: "203.0.113.64/29", Network: network, Tags: tags, BringYourOwn: true,
		Grants: []string{pnapsim.GrantAssign, pnapsim.GrantUnassign},
	})
}

func ofCluster() map[string]string { return map[string]string{contract.TagCluster: clusterUID} }

func inBlock(id string) func(*corev1.Service) { return annotated(contract.ServiceIPBlockID, id) }

// TestBroughtBlockIsReleasedAsItWas: several Services use it; who assigned it unassigns it.
//
//proves:known-bugs/user-block-deleted
func TestBroughtBlockIsReleasedAsItWas(t *testing.T) {
	for _, test := range []struct{ network, status string }{{"", "unassigned"}, {"public", "assigned"}} {
		t.Run(test.status, func(t *testing.T) {
			w := newWorld(t, broughtBlock(test.network, ofCluster()))
			w.service("one", inBlock(broughtID))
			w.settle("one")
			w.service("two", inBlock(broughtID), annotated(contract.ServiceRequestedIP, "203.0.113.70"))
			w.settle("two")
			w.wantPurchases(0)
			w.wantAddressesOnce("one", "two")
			if w.address("one") != "203.0.113.66" || w.address("two") != "203.0.113.70" {
				t.Errorf("addresses %s and %s", w.address("one"), w.address("two"))
			}
			w.delete("one")
			w.settle("one")
			w.wantBlocks("203.0.113.64/29 assigned")
			w.delete("two")
			w.settle("two")
			w.wantBlocks("203.0.113.64/29 " + test.status)
			w.sweep()
			w.wantBlocks("203.0.113.64/29 " + test.status)
			if left := w.ledgers(); len(left) != 0 {
				t.Errorf("ledgers are left: %v", left)
			}
		})
	}
}

//proves:known-bugs/user-block-deleted
func TestOnlyBroughtBlocksMayBeNamed(t *testing.T) {
	for name, test := range map[string]struct {
		tags    map[string]string
		object  bool
		allowed []string
		network string
		id      string
		want    string
	}{
		"no tag": {id: broughtID, want: "may not be named"},
		"another cluster": {tags: map[string]string{contract.TagCluster: "other"}, object: true, id: broughtID,
			want: "of another cluster"},
		"bought for a Service": {tags: ours("other"), id: broughtID, want: "may not be named"},
		"not there":            {id: "60473c2509268bc77fd06d99", want: "is not in the account"},
		"in another network":   {tags: ofCluster(), network: "other", id: broughtID, want: otherNetwork},
		"by a person":          {object: true, id: broughtID},
		"for the namespace":    {object: true, allowed: []string{"tools", "shop"}, id: broughtID},
		"for another namespace": {object: true, allowed: []string{"tools"}, id: broughtID,
			want: "is not for namespace shop"},
		"by a person, of another cluster": {object: true, tags: ours("other"), id: broughtID,
			want: "was bought for something else"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, broughtBlock(test.network, test.tags))
			if test.object {
				w.bring("mine", test.allowed...)
			}
			w.service("web", inBlock(test.id))
			if test.want == "" {
				w.settle("web")
			} else if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), test.want) {
				t.Errorf("refusal is %q, want %q", err, test.want)
			}
			w.wantPurchases(0)
			w.delete("web")
			w.settle("web")
		})
	}
}

// TestTheObjectOfAPersonStays: who has which address of a brought block is recorded in the IPBlock that a person
// created for it, and only there. It stays when no Service uses the block any more, says nothing then, and makes no
// work.
func TestTheObjectOfAPersonStays(t *testing.T) {
	w := newWorld(t, broughtBlock("", nil))
	w.bring("mine")
	w.passes(time.Hour)
	w.service("one", inBlock(broughtID))
	w.settle("one")
	w.service("two", inBlock(broughtID))
	w.settle("two")
	w.wantAddressesOnce("one", "two")
	w.wantObjects("mine")
	if mine := w.personsObject("mine"); mine.Status.Used != "2/5" || !mine.Status.AssignedHere {
		t.Errorf("the object says %+v", mine.Status)
	}
	for _, name := range []string{"one", "two"} {
		w.delete(name)
		w.settle(name)
	}
	w.passes(time.Hour)
	w.wantBlocks("203.0.113.64/29 unassigned")
	w.wantObjects("mine")
	mine := w.personsObject("mine")
	if mine.Status.Allocations != nil || mine.Status.Used != "" || mine.Status.AssignedHere {
		t.Errorf("the object of an unused block says %+v", mine.Status)
	}
	before := w.sim.Counters()
	w.passes(time.Hour)
	for operation, n := range w.asked(before) {
		if strings.Contains(operation, "/ip-blocks/") {
			t.Errorf("an unused block cost %d times %s in an hour", n, operation)
		}
	}
	if now := w.personsObject("mine"); now.ResourceVersion != mine.ResourceVersion {
		t.Errorf("the object of an unused block was written: %+v", now)
	}
}

func (w *world) personsObject(name string) *v1beta1.IPBlock {
	w.t.Helper()
	object, err := w.objects.IPBlocks.Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return object
}

// TestAPermissionIsForOneBlock: that one block was brought says nothing about another one.
func TestAPermissionIsForOneBlock(t *testing.T) {
	another := secondBrought()
	another.Tags = nil
	w := newWorld(t, broughtBlock("", nil), withBlocks(another))
	w.bring("mine")
	w.service("web", inBlock(another.ID))
	if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), "create an IPBlock with source Brought") {
		t.Errorf("refusal is %q", err)
	}
}

// TestANodesBlockIsNotNamed: nodes and Services cannot share a block, even if a person says so.
func TestANodesBlockIsNotNamed(t *testing.T) {
	w := newWorld(t, broughtBlock("public", nil), configured(func(c *reconcile.Config) { c.NodeBlock = broughtID }))
	w.bring("mine")
	w.service("web", inBlock(broughtID))
	if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), "nodeIPBlock") {
		t.Errorf("refusal is %q", err)
	}
}

func TestFullBroughtBlockIsRefused(t *testing.T) {
	w := newWorld(t, broughtBlock("public", ofCluster()))
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		w.service(name, inBlock(broughtID))
		w.settle(name)
	}
	w.wantAddressesOnce(names...)
	w.service("f", inBlock(broughtID))
	if err := w.refused("f", time.Minute); !strings.Contains(err.Error(), "are in use") {
		t.Errorf("refusal is %q", err)
	}
}

// TestRetainedBlockComesBack: it outlives the Service and serves the next one of its name, and only that.
//
//proves:known-bugs/address-lost-on-recreate
//proves:service-changes/recreate-retained
func TestRetainedBlockComesBack(t *testing.T) {
	w := newWorld(t)
	retained := annotated(contract.ServiceIPRetain, "true")
	w.service("web", retained)
	w.settle("web")
	if got := w.eventReasons(); !slices.Contains(got, "IPBlockRetained") {
		t.Errorf("events %q", got)
	}
	address, id := w.address("web"), w.blockID()
	w.delete("web")
	w.settle("web")
	w.wantBlocks("203.0.113.8/29 unassigned")
	w.sweep()
	w.service("api")
	w.settle("api")
	w.wantPurchases(2)
	w.delete("api")
	w.settle("api")
	if w.blockID() != id {
		t.Error("the retained block is not the one that is left")
	}
	w.service("web", retained)
	w.settle("web")
	w.wantPurchases(2)
	if got := w.address("web"); got != address {
		t.Errorf("address is %s, was %s", got, address)
	}
	w.edit("web", func(s *corev1.Service) { delete(s.Annotations, contract.ServiceIPRetain) })
	w.settle("web")
	w.delete("web")
	w.settle("web")
	w.wantBlocks()
}

// TestRetainingIsDecidedByTheLastWord: what the Service says when it goes counts, and the tag where it
// says nothing that can be understood.
//
//proves:service-changes/ip-retain
func TestRetainingIsDecidedByTheLastWord(t *testing.T) {
	for _, test := range []struct {
		before, after string
		kept          bool
	}{{"", "true", true}, {"true", "", false}, {"true", "perhaps", true}, {"", "perhaps", false}, {"true", "false",
		false}} {
		t.Run(test.before+" then "+test.after, func(t *testing.T) {
			w := newWorld(t)
			w.service("web", annotated(contract.ServiceIPRetain, test.before))
			w.settle("web")
			w.edit("web", func(s *corev1.Service) {
				annotated(contract.ServiceIPRetain, test.after)(s)
				now := s.DeepCopy().CreationTimestamp
				now.Time = w.clock.Now()
				s.DeletionTimestamp = &now
			})
			w.settle("web")
			want := []string{"203.0.113.8/29 unassigned"}
			if !test.kept {
				want = nil
			}
			w.wantBlocks(want...)
		})
	}
}

// TestWhatCannotChangeInPlaceIsRefusedAndTheAddressStays: whatever is asked for, a published address goes on
// working, and is repaired.
//
//proves:known-bugs/silent-changes
//proves:service-changes/other-address
//proves:service-changes/allocation
//proves:service-changes/misread
func TestWhatCannotChangeInPlaceIsRefusedAndTheAddressStays(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"size":            annotated(contract.ServiceIPBlockSize, "/28"),
		"allocation":      annotated(contract.ServiceIPAllocation, "shared"),
		"brought block":   inBlock(broughtID),
		"unknown":         annotated("phoenixnap.com/ip-sice", "/28"),
		"requested":       annotated(contract.ServiceRequestedIP, "203.0.113.99"),
		"nonsense":        annotated(contract.ServiceIPRetain, "perhaps"),
		"address in spec": func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.1" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, broughtBlock("public", ofCluster()))
			w.service("web")
			w.settle("web")
			w.eventReasons()
			w.edit("web", change)
			err := w.refused("web", time.Minute)
			if got := w.address("web"); got != "203.0.113.10" {
				t.Errorf("address is %q, and the Service says %v", got, err)
			}
			c := w.condition("web")
			if c.Message != err.Error() || c.Reason == "BlockAssigned" {
				t.Errorf("condition %s: %q, error %q", c.Reason, c.Message, err)
			}
			if got := w.eventReasons(); !slices.Equal(got, []string{"IPBlockRefused"}) {
				t.Errorf("events %v, want one refusal", got)
			}
			id := ""
			for _, b := range w.sim.State(accountID).Blocks {
				if b["cidr"] == "203.0.113.8/29" {
					id, _ = b["id"].(string)
				}
			}
			w.portal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: id})
			w.wantDrifted("web")
			if again := w.refused("web", 2*time.Minute); again.Error() != err.Error() {
				t.Errorf("after the repair the refusal is %q", again)
			}
			w.wantBlocks("203.0.113.64/29 assigned", "203.0.113.8/29 assigned")
			w.wantPurchases(1)
			w.delete("web")
			w.settle("web")
		})
	}
}
