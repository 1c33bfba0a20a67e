package orphans_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// blockNumber is the ID of one of many blocks, and serviceNumber the name of its Service.
func blockNumber(i int) string { return fmt.Sprintf("60473c2509268bc77fd07%03x", i) }

func serviceNumber(i int) string { return fmt.Sprintf("web-%d", i) }

// dedicated seeds n blocks, each of a Service of its own.
func dedicated(n int) []option {
	seeded := []option{collecting}
	for i := range n {
		seeded = append(seeded, block(blockNumber(i), fmt.Sprintf("203.0.113.%d/29", 8*i), "",
			ours(contract.TagService, contract.ServiceTag("shop", serviceNumber(i)))))
	}
	return seeded
}

// confirm does what the event asks for; admission is left out here.
func (w *world) confirm(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		if err := w.objects.Delete(w.t.Context(), v1beta1.NamePrefix+id, metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// reasons are those of the condition Orphaned, by the IDs of the blocks.
func (w *world) reasons() map[string]string {
	w.t.Helper()
	list, err := w.objects.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]string{}
	for _, object := range list.Items {
		for _, kind := range []string{v1beta1.ConditionReady, v1beta1.ConditionOrphaned} {
			if c := meta.FindStatusCondition(object.Status.Conditions, kind); c != nil {
				found[object.Spec.BlockID] += fmt.Sprintf("%s %s %s ", kind, c.Status, c.Reason)
			}
		}
	}
	return found
}

// left returns the numbers of the blocks that are still there.
func (w *world) left(n int) []int {
	var found []int
	blocks := w.blocks()
	for i := range n {
		if blocks[blockNumber(i)] != "" {
			found = append(found, i)
		}
	}
	return found
}

// held returns the number of the blocks whose IPBlocks say that a person has to confirm their deletion.
func (w *world) held() int {
	n := 0
	for _, reasons := range w.reasons() {
		if strings.Contains(reasons, "Orphaned True "+v1beta1.OrphanedAwaitingConfirmation) {
			n++
		}
	}
	return n
}

// short fails when an event is longer than the API server accepts in its newer form.
func (w *world) short() {
	w.t.Helper()
	for _, event := range w.heard {
		if len(event) > 1024 {
			w.t.Errorf("an event has %d characters: %s", len(event), event)
		}
	}
}

// etcd is restored from a time before the Services: all their blocks are orphans at once. Nothing is deleted until a
// person names the blocks, whatever restarts in the meantime and however few of them are left.
func TestServicesThatVanishTogetherKeepTheirBlocks(t *testing.T) {
	const n = 8
	w := newWorld(t, dedicated(n)...)
	for range 2 {
		w.pass(25 * time.Hour)
		w.restart()
	}
	t.Logf("figure orphans_deleted_after_etcd_restore %d blocks", n-len(w.left(n)))
	w.untouched()
	if w.held() != n {
		t.Errorf("%d blocks are reported as held, want %d", w.held(), n)
	}
	want := map[string]string{}
	for i := range n {
		want[blockNumber(i)] = "Ready False AwaitingConfirmation Orphaned True AwaitingConfirmation "
	}
	if diff := cmp.Diff(want, w.reasons()); diff != "" {
		t.Error(diff)
	}
	command := "kubectl annotate ipb <name> phoenixnap.com/allow-release=true && kubectl delete ipb <name>"
	if got := w.count("Warning OrphanNotCollected", "8 of 8 IP blocks", "203.0.113.8/29", command); got < 48 ||
		got > 52 {
		t.Errorf("%d events with the command in 50 hours, want one an hour: %q", got, w.heard[:min(20, len(w.heard))])
	}
	for _, event := range w.heard {
		if strings.Contains(event, "going to be deleted") {
			t.Errorf("event %q", event)
		}
	}
	w.short()

	// Five Services come back; three do not, of which a person gives two up.
	for i := range 5 {
		w.service(serviceNumber(i), false)
	}
	w.pass(2 * grace)
	w.restart()
	w.pass(2 * grace)
	w.untouched()
	w.confirm(blockNumber(5), blockNumber(6), blockNumber(0))
	w.pass(2 * grace)
	w.gone(blockNumber(5))
	w.gone(blockNumber(6))
	w.pass(25 * time.Hour)
	w.restart()
	w.pass(2 * grace)
	if got := w.left(n); !slices.Equal(got, []int{0, 1, 2, 3, 4, 7}) {
		t.Errorf("blocks %v are left", got)
	}
	w.confirm(blockNumber(7))
	w.pass(2 * grace)
	w.gone(blockNumber(7))
}

// Few orphans are collected without a person: two, or a fifth of the blocks of the cluster.
func TestAFewOrphansAreCollected(t *testing.T) {
	for _, test := range []struct{ blocks, orphans, deleted int }{
		{blocks: 1, orphans: 1, deleted: 1}, {blocks: 2, orphans: 2, deleted: 2},
		{blocks: 3, orphans: 3, deleted: 0}, {blocks: 10, orphans: 3, deleted: 0},
		{blocks: 30, orphans: 6, deleted: 6}, {blocks: 30, orphans: 7, deleted: 0},
		{blocks: 20, orphans: 20, deleted: 0},
	} {
		t.Run(fmt.Sprintf("%d of %d", test.orphans, test.blocks), func(t *testing.T) {
			w := newWorld(t, dedicated(test.blocks)...)
			for i := test.orphans; i < test.blocks; i++ {
				w.service(serviceNumber(i), false)
			}
			w.pass(2 * grace)
			deleted := test.blocks - len(w.left(test.blocks))
			t.Logf("figure orphans_collected_%d_of_%d %d blocks", test.orphans, test.blocks, deleted)
			if deleted != test.deleted {
				t.Errorf("%d blocks were deleted, want %d: %q", deleted, test.deleted, w.heard)
			}
			if held := w.count("OrphanNotCollected") > 0; held != (test.deleted == 0) {
				t.Errorf("an event says that a person must act: %t; heard %q", held, w.heard)
			}
			w.short()
		})
	}
}

// Orphans that follow each other count together for a day.
func TestOrphansOfADayCountTogether(t *testing.T) {
	const n = 10
	w := newWorld(t, dedicated(n)...)
	for i := range n {
		w.service(serviceNumber(i), false)
	}
	for i := range 3 {
		w.pass(3 * grace)
		if err := w.kube.CoreV1().Services("shop").Delete(t.Context(), serviceNumber(i),
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.forget(serviceNumber(i))
	}
	w.pass(22 * time.Hour)
	if got := w.left(n); !slices.Equal(got, []int{2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("blocks %v are left", got)
	}
	// A day later another one is collected although the third waits still.
	if err := w.kube.CoreV1().Services("shop").Delete(t.Context(), serviceNumber(3),
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.forget(serviceNumber(3))
	w.pass(3 * grace)
	if got := w.left(n); !slices.Equal(got, []int{2, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("blocks %v are left", got)
	}
}

// TestADeletedIPBlockReleasesItsBlock: without the option and without the grace, but not while a Service needs the
// block.
func TestADeletedIPBlockReleasesItsBlock(t *testing.T) {
	w := newWorld(t, dedicated(3)...)
	w.config.Collect = false
	w.restart()
	w.pass(10 * time.Minute)
	w.untouched()
	w.service(serviceNumber(0), true)
	w.confirm(blockNumber(0), blockNumber(1))
	w.pass(10 * time.Minute)
	if got := w.left(3); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("blocks %v are left", got)
	}
}

// TestARetainedBlockIsShownAndReleased: nothing else says in the cluster that it is paid for.
func TestARetainedBlockIsShownAndReleased(t *testing.T) {
	retained := ours(contract.TagService, "shop_gone")
	retained[contract.TagRetain] = contract.TagTrue
	w := newWorld(t, block(blockID, "203.0.113.8/29", "", retained))
	w.pass(25 * time.Hour)
	w.untouched()
	if diff := cmp.Diff(map[string]string{blockID: "Ready False Retained "}, w.reasons()); diff != "" {
		t.Error(diff)
	}
	object, err := w.objects.Get(t.Context(), v1beta1.NamePrefix+blockID, metav1.GetOptions{})
	if err != nil || object.Spec.ServiceRef.Namespace != "shop" || object.Spec.ServiceRef.Name != "gone" ||
		object.Status.CIDR != "203.0.113.8/29" || object.Status.Location != "ASH" {
		t.Errorf("the object is %+v, %v", object, err)
	}
	w.confirm(blockID)
	w.pass(10 * time.Minute)
	w.gone(blockID)
}

// TestAnObjectOfAServedServiceStays: whatever the tags of its block name.
func TestAnObjectOfAServedServiceStays(t *testing.T) {
	retained := ours(contract.TagService, "shop_gone")
	retained[contract.TagRetain] = contract.TagTrue
	w := newWorld(t, block(blockID, "203.0.113.8/29", "", retained))
	w.must(w.recordOf(w.service("web", false)).Answer(t.Context(), blockID))
	w.pass(3 * grace)
	if diff := cmp.Diff(map[string]string{}, w.reasons()); diff != "" {
		t.Error(diff)
	}
}

// TestALongNameNamesNoService: a tag has no room for it, and the IPBlock of another Service would be wrong.
func TestALongNameNamesNoService(t *testing.T) {
	tag := contract.ServiceTag(strings.Repeat("n", 63), strings.Repeat("s", 63))
	w := newWorld(t, block(blockID, "203.0.113.8/29", "", ours(contract.TagService, tag)))
	w.pass(3 * grace)
	if len(w.reasons()) > 0 || w.count("Warning OrphanedIPBlock", "the block in the phoenixNAP portal") == 0 {
		t.Errorf("objects %v, events %q", w.reasons(), w.heard)
	}
}

// TestSharedBlocksShowWhereTheyAre: within a minute, and written only when it changes.
func TestSharedBlocksShowWhereTheyAre(t *testing.T) {
	const lost, lostOfNodes = "60473c2509268bc77fd06d41", "60473c2509268bc77fd06d42"
	w := newWorld(t, block(blockID, "203.0.113.8/29", "public", nil))
	w.bring(blockID)
	w.bringAs("mistyped", lost, v1beta1.PurposeShared)
	w.bringAs("of-the-nodes", lostOfNodes, v1beta1.PurposeNodes)
	w.pass(time.Minute)
	want := map[string]string{blockID: "Ready True BlockAssigned ", lost: "Ready False BlockNotFound ",
		lostOfNodes: "Ready False BlockNotFound "}
	if diff := cmp.Diff(want, w.reasons()); diff != "" {
		t.Error(diff)
	}
	before, err := w.objects.Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil || before.Status.CIDR != "203.0.113.8/29" || before.Status.Location != "ASH" ||
		before.Status.Gateway != "203.0.113.9" {
		t.Errorf("the object is %+v, %v", before, err)
	}
	w.pass(time.Hour)
	after, err := w.objects.Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("nothing has changed, and the object is written: %+v, %v", after, err)
	}
	if err := w.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: blockID}); err != nil {
		t.Fatal(err)
	}
	w.pass(5 * time.Minute)
	want[blockID] = "Ready False Unassigned "
	if diff := cmp.Diff(want, w.reasons()); diff != "" {
		t.Error(diff)
	}
}

// TestAnOrphanIsShownOnceItIsConfirmed: the first list may be old.
func TestAnOrphanIsShownOnceItIsConfirmed(t *testing.T) {
	w := newWorld(t, dedicated(1)...)
	for range 2 {
		if len(w.reasons()) > 0 {
			t.Errorf("after one list or none: %v", w.reasons())
		}
		if err := w.look(); err != nil {
			t.Fatal(err)
		}
	}
	if want := "Ready False ServiceGone Orphaned True ServiceGone "; w.reasons()[blockNumber(0)] != want {
		t.Errorf("after two lists: %v, want %s", w.reasons(), want)
	}
}

// TestAnUnusableIPBlockIsReplaced follows what the event IPBlockUnusable says about one that is of no block.
func TestAnUnusableIPBlockIsReplaced(t *testing.T) {
	const lost = "60473c2509268bc77fd06d41"
	w := newWorld(t, block(blockID, "203.0.113.8/29", "public", nil))
	w.config.Ledgers = allocation.NewStore(allocation.WithEvents(w.objects, w.events), w.clock.Now)
	w.connect(false)
	create := func(id string) {
		object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1beta1.IPBlockSpec{
			Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeShared, BlockID: id}}
		if _, err := w.objects.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(lost)
	w.pass(10 * time.Minute)
	if n := w.count("Warning IPBlockUnusable", lost, "delete this IPBlock, and create another one"); n != 1 {
		t.Errorf("%d events, want one: %q", n, w.heard)
	}
	if err := w.objects.Delete(t.Context(), "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create(blockID)
	w.pass(10 * time.Minute)
	if n := w.count("Normal IPBlockAssigned"); n != 1 || w.reasons()[blockID] != "Ready True BlockAssigned " {
		t.Errorf("objects %v, events %q", w.reasons(), w.heard)
	}
}
