package orphans_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
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

// confirm does what the event asks for.
func (w *world) confirm(ids ...string) {
	w.t.Helper()
	namespace, err := w.kube.CoreV1().Namespaces().Get(w.t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	namespace.Annotations = map[string]string{contract.NamespaceCollectOrphans: strings.Join(ids, ",")}
	if _, err := w.kube.CoreV1().Namespaces().Update(w.t.Context(), namespace, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
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

// held returns the numbers of the blocks that the report shows as held.
func (w *world) held() int {
	n := 0
	for _, b := range w.reported().Blocks {
		if b.Held {
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
	var all []string
	for i := range n {
		all = append(all, blockNumber(i))
	}
	command := "kubectl annotate namespace kube-system --overwrite " + contract.NamespaceCollectOrphans + "=" +
		strings.Join(all, ",")
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
	w.confirm(blockNumber(5), blockNumber(6), blockNumber(0), "", "unknown")
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

// A confirmation does not replace the option, nor the grace, nor what is read before the deletion.
func TestAConfirmationIsNoOrder(t *testing.T) {
	w := newWorld(t, dedicated(3)...)
	w.config.Collect = false
	w.restart()
	w.confirm(blockNumber(0), blockNumber(1), blockNumber(2))
	w.pass(2 * grace)
	w.untouched()
	w.config.Collect = true
	w.restart()
	w.pass(grace - 2*time.Minute)
	w.service(serviceNumber(0), true)
	w.untouched()
	w.pass(grace)
	if got := w.left(3); !slices.Equal(got, []int{0}) {
		t.Errorf("blocks %v are left", got)
	}
}
