package reconcile_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
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
			record := purchase.PoolName(contract.PoolDefault)
			recorded := w.configMap(record).Annotations[contract.ServiceIPPurchase]
			l := plan.NewLedger(w.blockID(), w.ledgers()[0].CIDR).Close()
			w.delete("one")
			w.settle("one")
			w.editConfigMap(record, annotatedMap(contract.ServiceIPPurchase, recorded))
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

func annotatedMap(name, value string) func(*corev1.ConfigMap) {
	return func(c *corev1.ConfigMap) { c.Annotations = map[string]string{name: value} }
}

// TestRecordOfADeletedBlockIsCleared: nothing is left to be mistaken for a purchase.
func TestRecordOfADeletedBlockIsCleared(t *testing.T) {
	w := newWorld(t)
	w.service("one", inPool())
	w.settle("one")
	w.delete("one")
	w.settle("one")
	recorded, err := purchase.NewConfigMap(w.kube, purchase.PoolName(contract.PoolDefault)).Load(w.ctx)
	if err != nil || recorded != nil {
		t.Errorf("recorded is %+v, %v", recorded, err)
	}
}
