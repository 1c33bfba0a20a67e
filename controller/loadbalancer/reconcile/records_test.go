package reconcile_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// objectNames are the names of all IPBlocks.
func (w *world) objectNames() []string {
	w.t.Helper()
	list, err := w.objects.IPBlocks.List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	names := []string{}
	for _, object := range list.Items {
		names = append(names, object.Name)
	}
	slices.Sort(names)
	return names
}

// ownObject is the IPBlock of a Service.
func (w *world) ownObject(name string) *v1beta1.IPBlock {
	w.t.Helper()
	object, err := w.objects.IPBlocks.Get(w.ctx, ownName(w, name), metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return object
}

func ownName(w *world, name string) string { return v1beta1.ServicePrefix + string(w.get(name).UID) }

func (w *world) wantObjects(want ...string) {
	w.t.Helper()
	slices.Sort(want)
	if got := w.objectNames(); !slices.Equal(got, want) {
		w.t.Errorf("the IPBlocks are %q, want %q", got, want)
	}
}

// TestTheObjectOfAService: while its block exists there is an IPBlock that says which block that is, whose it is, and
// how far it is; when the block is released there is none.
func TestTheObjectOfAService(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.Assign = pnapsim.Duration(time.Minute) }))
	w.service("web")
	for w.condition("web").Reason != "BlockAssigning" {
		_, err := w.sync("web")
		w.clock.Advance(w.pauseAfter(err))
	}
	_, _ = w.sync("web")
	assigned := meta.FindStatusCondition(w.ownObject("web").Status.Conditions, v1beta1.ConditionAssigned)
	if assigned == nil || assigned.Status != metav1.ConditionFalse || assigned.Reason != "BlockAssigning" {
		t.Errorf("while it is assigned, the condition is %+v", assigned)
	}
	w.settle("web")
	object := w.ownObject("web")
	spec := object.Spec
	service := w.get("web")
	ref := v1beta1.ServiceReference{Namespace: service.Namespace, Name: "web", UID: service.UID}
	if spec.BlockID != w.blockID() || spec.Size != "/29" || spec.Purpose != v1beta1.PurposeService ||
		spec.ServiceRef == nil || *spec.ServiceRef != ref {
		t.Errorf("the object says %+v", spec)
	}
	status := object.Status
	if status.CIDR != "203.0.113.8/29" || status.Gateway != "203.0.113.9" || status.Location != "ASH" ||
		status.Used != "1/5" || status.Allocations == nil || len(*status.Allocations) != 1 ||
		(*status.Allocations)[0].Address != w.address("web") || (*status.Allocations)[0].Services[0] != ref {
		t.Errorf("the status is %+v", status)
	}
	for _, kind := range []string{v1beta1.ConditionAssigned, v1beta1.ConditionReady} {
		if !meta.IsStatusConditionTrue(status.Conditions, kind) {
			t.Errorf("%s is not true: %+v", kind, status.Conditions)
		}
	}
	w.wantDrifted()
	w.delete("web")
	w.settle("web")
	w.wantObjects()
}

// TestALostBlockIsShown: the object of a block that was deleted in the portal stays, and says what its Service says,
// until there is another block.
func TestALostBlockIsShown(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	first := w.blockID()
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: first})
	w.wantDrifted("web")
	_ = w.refused("web", 10*time.Minute)
	object := w.ownObject("web")
	assigned := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionAssigned)
	if object.Spec.BlockID != first || assigned == nil || assigned.Status == metav1.ConditionTrue ||
		assigned.Reason != string(ipblock.BlockLost) {
		t.Errorf("of the lost block the object says %+v", assigned)
	}
	w.wantPurchases(1)
	w.edit("web", annotated(contract.ServiceIPReplace, "true"))
	w.settle("web")
	if id := w.ownObject("web").Spec.BlockID; id == first || id != w.blockID() {
		t.Errorf("the object names %s, the block is %s and was %s", id, w.blockID(), first)
	}
	w.wantPurchases(2)
}

// TestALostObjectIsMadeAgain: from the tags of the block, with everything that it said.
func TestALostObjectIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	address := w.address("web")
	w.loseIPBlock(ownName(w, "web"))
	w.clock.Advance(time.Minute)
	w.wantDrifted("web")
	w.settle("web")
	object := w.ownObject("web")
	if object.Spec.BlockID != w.blockID() || object.Status.Used != "1/5" || w.address("web") != address {
		t.Errorf("the object is %+v %+v", object.Spec, object.Status)
	}
	w.wantDrifted()
	w.wantPurchases(1)
}

// TestTheObjectOfARetainedBlock stays when its Service goes, says that it is retained, and makes room for that of the
// next Service of the name.
func TestTheObjectOfARetainedBlock(t *testing.T) {
	w := newWorld(t)
	w.service("web", annotated(contract.ServiceIPRetain, "true"))
	w.settle("web")
	old := ownName(w, "web")
	id := w.blockID()
	w.delete("web")
	w.settle("web")
	w.wantObjects(old)
	shown := w.records()[0].Report
	if shown.Address.IsValid() || shown.Assigned.True || shown.Assigned.Reason != "Retained" ||
		shown.Ready != shown.Assigned {
		t.Errorf("the object of a block without its Service shows %+v", shown)
	}
	w.passes(2 * time.Hour)
	w.wantObjects(old)
	w.service("web")
	w.settle("web")
	w.passes(5 * time.Minute)
	w.wantObjects(ownName(w, "web"))
	if got := w.ownObject("web").Spec.BlockID; got != id || ownName(w, "web") == old {
		t.Errorf("%s names block %s, was %s of %s", ownName(w, "web"), got, id, old)
	}
	w.wantPurchases(1)
}

// TestObjectsOfServicesThatAreGone: a Service may go without a release. Its object stays as long as the block may be
// its own, and goes then; that of a purchase without an answer goes when every block would have been seen.
func TestObjectsOfServicesThatAreGone(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	w.service("never")
	own := ownName(w, "web")
	never := ownName(w, "never")
	w.recordedAt(w.recordOf("never"), w.clock.Now(), "")
	w.vanish("web")
	w.vanish("never")
	w.wantObjects(own, never)
	w.passes(10 * time.Minute)
	w.wantObjects(own)
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
	w.passes(10 * time.Minute)
	w.wantObjects()
}

// TestTheObjectOfABlockOfAnotherCluster: what a restore into another cluster brings is not kept.
func TestTheObjectOfABlockOfAnotherCluster(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	w.vanish("web")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: w.blockID(), Tags: map[string]string{
		contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: "another", contract.TagService: "shop_web"}})
	w.passes(10 * time.Minute)
	w.wantObjects()
	w.wantBlocks("203.0.113.8/29 assigned")
}

// TestABlockBoughtInVainIsForgotten: a Service that got its address elsewhere has no object of a block that is gone.
func TestABlockBoughtInVainIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.service("web", inPool())
	w.settle("web")
	w.recordedAt(w.recordOf("web"), w.clock.Now().Add(-time.Hour), "60473c2509268bc77fd06d99")
	w.passes(10 * time.Minute)
	w.settle("web")
	w.wantObjects(v1beta1.SharedPrefix(v1beta1.DefaultNetwork) + "1")
}

// TestAnUnansweredPurchaseOfThePoolIsAnswered: the block is recorded in the object of the purchase that bought it.
func TestAnUnansweredPurchaseOfThePoolIsAnswered(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.TagPropagation = 0 }))
	w.arm(pnapsim.Fault{Method: "POST", Path: blocksPath, Action: pnapsim.FaultLost, Times: 1})
	w.service("web", inPool())
	w.settle("web")
	w.wantObjects(v1beta1.SharedPrefix(v1beta1.DefaultNetwork) + "1")
	last, _ := w.records().Last(false)
	if last.BlockID != w.blockID() || last.Nonce == "" || !strings.HasSuffix(last.Nonce, "-1") {
		t.Errorf("recorded is %+v of block %s", last, w.blockID())
	}
	w.wantPurchases(1)
}

// TestAnUnansweredPurchaseOfThePoolIsForgotten when it is too old to have bought anything, also without its status.
func TestAnUnansweredPurchaseOfThePoolIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.recordedAt(allocation.ForShared(w.objects.IPBlocks, v1beta1.DefaultNetwork, nil), w.clock.Now(), "")
	w.passes(10 * time.Minute)
	w.wantObjects(v1beta1.SharedPrefix(v1beta1.DefaultNetwork) + "1")
	w.passes(2 * time.Hour)
	w.wantObjects()
}

// TestALedgerWithoutStatusIsFoundByItsObject: a Service finds its address in a block that neither the list nor a
// ledger shows, because its object names the block.
func TestALedgerWithoutStatusIsFoundByItsObject(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.ListLag = pnapsim.Duration(30 * time.Minute) }),
		configured(func(c *reconcile.Config) { c.Allocation = contract.AllocationShared }))
	w.service("web", annotated(contract.ServiceIPReplace, "true"))
	w.settle("web")
	address := w.address("web")
	w.editIPBlock(w.blockID(), func(s *v1beta1.IPBlockStatus) { *s = v1beta1.IPBlockStatus{} })
	w.config.Allocation = contract.AllocationDedicated
	w.restart()
	w.passes(5 * time.Minute)
	w.settle("web")
	if w.address("web") != address {
		t.Errorf("the address is %s, was %s", w.address("web"), address)
	}
	w.wantPurchases(1)
}

// TestAServiceThatIsNewToTheInformerKeepsItsRecord: another process may have bought a block for it.
func TestAServiceThatIsNewToTheInformerKeepsItsRecord(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.recordedAt(w.recordOf("web"), w.clock.Now(), "")
	w.clock.Advance(10 * time.Minute)
	if err := w.services.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.balancer.Sweep(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.wantObjects(ownName(w, "web"))
}
