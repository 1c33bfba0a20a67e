package reconcile_test

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
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

// givenAs is the name of the IPBlock of a block that ofCluster marks.
func givenAs(id string) string { return "given-" + id }

// inBlock names the IPBlock of a block that ofCluster marks, and naming any.
func inBlock(id string) func(*corev1.Service) { return naming(givenAs(id)) }

func naming(object string) func(*corev1.Service) { return annotated(contract.ServiceIPBlock, object) }

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

// TestADeletedBroughtBlockIsGivenUp: what the controller knows of a brought block, that it was the one to assign it and
// which addresses someone may still answer for, is not lost with the deletion. So the deletion waits.
func TestADeletedBroughtBlockIsGivenUp(t *testing.T) {
	for _, test := range []struct{ network, status string }{{"", "unassigned"}, {"public", "assigned"}} {
		t.Run(test.status, func(t *testing.T) {
			w := newWorld(t, broughtBlock(test.network, nil))
			w.bring("mine")
			w.service("web", naming("mine"))
			w.settle("web")
			w.vanish("web") // without its finalizer: the sweep frees its address
			w.deletePersonsObject("mine")
			w.service("late", naming("mine"))
			if err := w.refused("late", time.Minute); !strings.Contains(err.Error(), "its IPBlock is being deleted") {
				t.Errorf("a Service that names it gets %v", err)
			}
			w.passes(3 * time.Minute)
			w.wantBlocks("203.0.113.64/29 " + test.status)
			if mine := w.personsObject("mine"); mine == nil || len(mine.Status.Quarantined) != 1 {
				t.Errorf("the object is %+v, want one with an address in quarantine", mine)
			}
			w.passes(ipblock.Quarantine)
			if mine := w.personsObject("mine"); mine != nil {
				t.Errorf("the object is %+v", mine)
			}
			w.wantBlocks("203.0.113.64/29 " + test.status)
		})
	}
}

// TestADeletedBlockOfTheNodesIsGivenUp, when no server had an address of it for a while.
func TestADeletedBlockOfTheNodesIsGivenUp(t *testing.T) {
	w := newWorld(t, broughtBlock("public", nil))
	w.createIPBlock("ours", v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeNodes,
		BlockID: broughtID})
	l := ipblock.NewLedger(broughtID, netip.MustParsePrefix("203.0.113.64/29"))
	l.AssignedHere = true
	l.Quarantined = map[netip.Addr]ipblock.Released{l.CIDR.Addr().Next().Next(): {
		Holder: ipblock.Holder{Name: "5fa54d1e91867c03a0a7b4a4"}, Since: w.clock.Now()}}
	if _, err := w.ledgerStore().Save(w.ctx, l); err != nil {
		t.Fatal(err)
	}
	w.deletePersonsObject("ours")
	w.passes(ipblock.Quarantine / 2)
	if w.personsObject("ours") == nil {
		t.Error("the object is gone before the quarantine ends")
	}
	w.wantBlocks("203.0.113.64/29 assigned")
	w.passes(ipblock.Quarantine)
	if w.personsObject("ours") != nil {
		t.Errorf("the object is %+v", w.personsObject("ours"))
	}
	w.wantBlocks("203.0.113.64/29 unassigned")
}

// specified are the specs of IPBlocks by their names.
type specified map[string]v1beta1.IPBlockSpec

// TestOnlyBroughtBlocksMayBeNamed: by the name of an IPBlock with which a person says so, and in the namespaces of it.
// What is refused says nothing of the block.
//
//proves:known-bugs/user-block-deleted
func TestOnlyBroughtBlocksMayBeNamed(t *testing.T) {
	const unknownID = "60473c2509268bc77fd06d99"
	brought := func(id string, namespaces ...string) v1beta1.IPBlockSpec {
		return v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeShared, BlockID: id,
			AllowedNamespaces: namespaces}
	}
	nodes := brought(broughtID)
	nodes.Purpose = v1beta1.PurposeNodes
	dedicated := brought(broughtID, "shop")
	dedicated.Purpose = v1beta1.PurposeService
	bought := brought(broughtID)
	bought.Source = v1beta1.SourceBought
	named := "block-" + broughtID
	for name, test := range map[string]struct {
		tags    map[string]string
		network string
		objects specified
		names   string // the IPBlock that the Service names; mine if empty
		// want is a part of the refusal, which does not have what hides says; empty if the Service is served.
		want, hides string
	}{
		"no IPBlock":      {want: "is not in the cluster: name another one, or have an administrator create it"},
		"another IPBlock": {objects: specified{"yours": brought(broughtID)}, want: "is not in the cluster"},
		"another cluster": {tags: map[string]string{contract.TagCluster: "other"}, want: "of another cluster",
			objects: specified{"mine": brought(broughtID)}},
		"bought for a Service": {tags: ours("other"), objects: specified{"mine": brought(broughtID)},
			want: "was bought for something else"},
		"not there": {objects: specified{"mine": brought(unknownID)}, want: "is not in the account"},
		"in another network": {objects: specified{"mine": brought(broughtID)}, tags: ofCluster(), network: "other",
			want: otherNetwork},
		"for all":           {objects: specified{"mine": brought(broughtID)}},
		"for the namespace": {objects: specified{"mine": brought(broughtID, "tools", "shop")}},
		"for another namespace": {objects: specified{"mine": brought(broughtID, "tools")}, hides: broughtID,
			want: "is not for namespace shop: name another one, or have an administrator add the namespace to " +
				"spec.allowedNamespaces of IPBlock mine"},
		"for another namespace, not there": {objects: specified{"mine": brought(unknownID, "tools")},
			want: "is not for namespace shop", hides: unknownID},
		"for another namespace, though another IPBlock is for all": {want: "is not for namespace shop",
			objects: specified{"mine": brought(broughtID, "tools"), "yours": brought(broughtID)}},
		"for all, though another IPBlock is not": {
			objects: specified{"mine": brought(broughtID), "yours": brought(broughtID, "tools")}},
		"for nodes":       {objects: specified{"mine": nodes}, want: "is not for Services to name"},
		"for one Service": {objects: specified{"mine": dedicated}, want: "is not for Services to name"},
		"bought":          {objects: specified{"mine": bought}, want: "has the tags of something else"},
		"of the controller": {names: named, objects: specified{named: brought(broughtID)},
			want: "is not for Services to name"},
		"by the ID": {names: broughtID, objects: specified{"mine": brought(broughtID)},
			want: "takes the name of an IPBlock and not the ID of a block, such as " + broughtID + "; set it to mine"},
		"by the ID, of no IPBlock": {names: broughtID, want: "create an IPBlock with source Brought for the block"},
		"by the ID, for another namespace": {names: broughtID,
			objects: specified{"secret": brought(broughtID, "tools")},
			want:    "create an IPBlock with source Brought for the block", hides: "secret"},
		"an IPBlock with the name of an ID": {names: unknownID, objects: specified{unknownID: brought(broughtID)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, broughtBlock(test.network, nil))
			w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: broughtID, Tags: test.tags})
			for object, spec := range test.objects {
				w.createIPBlock(object, spec)
			}
			w.service("web", naming(cmp.Or(test.names, "mine")))
			if test.want == "" {
				w.settle("web")
			} else {
				said := w.refused("web", time.Minute).Error()
				if !strings.Contains(said, test.want) || test.hides != "" && strings.Contains(said, test.hides) {
					t.Errorf("refusal is %q, want %q and not %q", said, test.want, test.hides)
				}
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
	w.service("one", naming("mine"))
	w.settle("one")
	w.service("two", naming("mine"))
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

// personsObject is an object that a person created; nil when it is gone.
func (w *world) personsObject(name string) *v1beta1.IPBlock {
	w.t.Helper()
	object, err := w.objects.IPBlocks.Get(w.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return object
}

// deletePersonsObject deletes it as kubectl does.
func (w *world) deletePersonsObject(name string) {
	w.t.Helper()
	if err := w.objects.IPBlocks.Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// TestAPermissionIsForOneBlock: that one block was brought says nothing about another one.
func TestAPermissionIsForOneBlock(t *testing.T) {
	another := secondBrought()
	another.Tags = nil
	w := newWorld(t, broughtBlock("", nil), withBlocks(another))
	w.bring("mine")
	w.service("web", naming(another.ID))
	if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), "create an IPBlock with source Brought") {
		t.Errorf("refusal is %q", err)
	}
}

// TestAnIPBlockThatIsCreatedAgainKeepsAddresses: while it is missing the address stays, nothing is bought or released,
// and the Service says what to do. Under its name it may come back for the same block only.
//
//proves:service-changes/ip-block-deleted
func TestAnIPBlockThatIsCreatedAgainKeepsAddresses(t *testing.T) {
	w := newWorld(t, broughtBlock("", nil), withBlocks(secondBrought()))
	w.bring("mine")
	w.service("one", naming("mine"))
	w.settle("one")
	w.service("two", naming("mine"))
	w.settle("two")
	w.deleteIPBlock("mine")
	w.passes(time.Hour)
	w.stays("one", "203.0.113.66", "IPBlock mine, which annotation", "have an administrator create it again",
		"of address 203.0.113.66")
	w.bringBlock("mine", foreignID)
	w.passes(time.Hour)
	w.stays("one", "203.0.113.66", "which is not of the block of IPBlock mine")
	w.deleteIPBlock("mine")
	w.bring("mine")
	w.clock.Advance(time.Minute)
	w.service("three", naming("mine"))
	for _, name := range []string{"one", "two", "three"} {
		w.settle(name)
	}
	w.wantAddressesOnce("one", "two", "three")
	if w.address("one") != "203.0.113.66" || w.address("two") != "203.0.113.67" {
		t.Errorf("the addresses are %s and %s", w.address("one"), w.address("two"))
	}
}

// stays demands that a Service is refused with all of a text, that it keeps its address, and that nothing was bought or
// released.
func (w *world) stays(name, address string, says ...string) {
	w.t.Helper()
	said := w.refused(name, time.Minute).Error()
	for _, part := range says {
		if !strings.Contains(said, part) || !strings.Contains(w.condition(name).Message, part) {
			w.t.Errorf("refusal is %q, condition %+v, want %q", said, w.condition(name), part)
		}
	}
	if got := w.address(name); got != address || !w.shows(name, address) {
		w.t.Errorf("the address is %q, want %s, in the status %+v", got, address, w.get(name).Status.LoadBalancer)
	}
	w.wantPurchases(0)
	w.wantBlocks("203.0.113.64/29 assigned", "203.0.113.72/29 unassigned")
}

// shows reports whether the status of a Service has the address and no other one.
func (w *world) shows(name, address string) bool {
	ingress := w.get(name).Status.LoadBalancer.Ingress
	return len(ingress) == 1 && ingress[0].IP == address
}

// TestTwoIPBlocksOfOneBlock: Services that name either of them share its addresses, and keep them when one is deleted.
func TestTwoIPBlocksOfOneBlock(t *testing.T) {
	w := newWorld(t, broughtBlock("", nil))
	w.bring("mine", "shop")
	w.bring("yours")
	w.service("one", naming("mine"))
	w.settle("one")
	w.service("two", naming("yours"))
	w.settle("two")
	w.wantAddressesOnce("one", "two")
	w.edit("two", naming("mine"))
	w.settle("two")
	w.deleteIPBlock("yours")
	w.clock.Advance(time.Minute)
	w.passes(time.Hour)
	w.service("three", naming("mine"))
	for _, name := range []string{"one", "two", "three"} {
		w.settle(name)
	}
	w.wantAddressesOnce("one", "two", "three")
	for _, name := range []string{"one", "two", "three"} {
		w.delete(name)
		w.settle(name)
	}
}

// TestANodesBlockIsNotNamed: nodes and Services cannot share a block, even if a person says so.
func TestANodesBlockIsNotNamed(t *testing.T) {
	w := newWorld(t, broughtBlock("public", nil))
	w.bring("mine")
	w.bringForNodes()
	w.service("web", naming("mine"))
	if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), "by another IPBlock, with purpose Nodes") {
		t.Errorf("refusal is %q", err)
	}
	w.service("nodes", naming(ofNodes))
	if err := w.refused("nodes", time.Minute); !strings.Contains(err.Error(), "is not for Services to name") {
		t.Errorf("refusal is %q", err)
	}
}

// TestANodesBlockIsNotSwept: who has which address of it is not for Services to judge, nor whether it is assigned,
// while nodes have none, too. Once a person deletes the object, it goes.
func TestANodesBlockIsNotSwept(t *testing.T) {
	w := newWorld(t, broughtBlock("public", nil))
	w.bringForNodes()
	w.editIPBlock(broughtID, func(s *v1beta1.IPBlockStatus) {
		*s = v1beta1.IPBlockStatus{CIDR: "203.0.113.64/29", AssignedHere: true, Allocations: &[]v1beta1.Allocation{}}
	})
	w.passes(time.Hour)
	w.sweep()
	w.wantBlocks("203.0.113.64/29 assigned")
	object, err := w.objects.IPBlocks.Get(w.ctx, ofNodes, metav1.GetOptions{})
	if err != nil || object.Status.Allocations == nil || !object.Status.AssignedHere {
		t.Fatalf("the object of the nodes is %+v, %v", object, err)
	}
	w.deletePersonsObject(ofNodes)
	w.passes(time.Hour)
	if left := w.personsObject(ofNodes); left != nil {
		t.Errorf("the object that a person has deleted is %+v", left)
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
