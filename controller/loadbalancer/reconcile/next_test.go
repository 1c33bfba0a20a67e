package reconcile_test

import (
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// TestNextSharedServiceDoesNotWait: the record of a purchase whose block was released delays no Service that comes
// next, whatever ended in between.
func TestNextSharedServiceDoesNotWait(t *testing.T) {
	const slack = 5 * time.Second
	for name, between := range map[string]func(*world){
		"deleted": func(w *world) {
			w.delete("one")
			w.settle("one")
		},
		"created while it is deleted": func(w *world) {
			w.delete("one")
			w.service("two", inPool())
			w.settle("one")
		},
		"vanished": func(w *world) {
			w.vanish("one")
			w.released()
		},
		"a crash after the deletion": func(w *world) {
			last, _ := w.records().Last(false)
			l := ipblock.NewLedger(w.blockID(), w.ledgers()[0].CIDR).Close()
			w.delete("one")
			w.settle("one")
			w.recordedAt(allocation.ForShared(w.objects.IPBlocks, v1beta1.DefaultNetwork, w.records()),
				last.Time, last.BlockID)
			if _, err := w.ledgerStore().Save(w.ctx, l); err != nil {
				w.t.Fatal(err)
			}
			w.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow(func(l *pnapsim.Latency) {
				l.Assign = pnapsim.Duration(time.Second)
				l.Unassign = pnapsim.Duration(time.Second)
			}))
			w.service("tags", inPool()) // are usable from now on
			w.settle("tags")
			w.clock.Advance(2 * time.Minute)
			w.delete("tags")
			w.settle("tags")
			w.service("one", inPool())
			usual := w.settle("one")
			between(w)
			if w.get("two") == nil {
				w.service("two", inPool())
			}
			took := w.settle("two")
			t.Logf("figure next_shared_service_wait %.1f s, usual is %.1f s", took.Seconds(), usual.Seconds())
			if took > usual+slack {
				t.Errorf("the next Service took %s, the first %s", took, usual)
			}
		})
	}
}

// TestRecordOfADeletedBlockIsCleared: nothing is left to be mistaken for a purchase.
func TestRecordOfADeletedBlockIsCleared(t *testing.T) {
	w := newWorld(t)
	w.service("one", inPool())
	w.settle("one")
	w.delete("one")
	w.settle("one")
	w.service("two")
	w.settle("two")
	w.delete("two")
	w.settle("two")
	if recorded := w.records(); len(recorded) > 0 {
		t.Errorf("recorded is %+v", recorded)
	}
}
