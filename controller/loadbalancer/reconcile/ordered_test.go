package reconcile_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

const orderName = "extra"

// order has a person order a block that Services share.
func (w *world) order(size string) {
	w.t.Helper()
	w.orderIn(v1beta1.DefaultNetwork, size)
}

// orderIn does the same in a public network.
func (w *world) orderIn(network, size string) {
	w.t.Helper()
	object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: orderName}, Spec: v1beta1.IPBlockSpec{
		Source: v1beta1.SourceBought, Purpose: v1beta1.PurposeShared, Size: size,
		Attachment: v1beta1.Attachment{Name: network}}}
	if _, err := w.objects.IPBlocks.Create(w.ctx, object, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ordered() *v1beta1.IPBlock { return w.personsObject(orderName) }

func (w *world) deleteOrder() { w.deletePersonsObject(orderName) }

// TestAnOrderedBlock is bought and assigned without a Service, serves Services, and stays until its object is deleted.
func TestAnOrderedBlock(t *testing.T) {
	w := newWorld(t)
	w.order("/28")
	w.sweep()
	w.wantBlocks("203.0.113.16/28 assigned")
	if object := w.ordered(); object.Spec.BlockID != w.blockID() || object.Status.Purchase == nil {
		t.Errorf("the object is %+v", object)
	}
	w.service("web", inPool())
	w.settle("web")
	if object := w.ordered(); object.Status.Used != "1/13" {
		t.Errorf("the object is %+v", object)
	}
	w.delete("web")
	w.settle("web")
	w.passes(time.Hour)
	w.wantBlocks("203.0.113.16/28 assigned")
	w.wantPurchases(1)

	w.service("web", inPool())
	w.settle("web")
	w.deleteOrder()
	w.passes(10 * time.Minute)
	w.wantBlocks("203.0.113.16/28 assigned")
	w.service("api", inPool()) // gets another one
	w.settle("api")
	w.wantPurchases(2)
	w.delete("web")
	w.settle("web")
	w.passes(time.Hour)
	w.wantBlocks("203.0.113.8/29 assigned")
	if object := w.ordered(); object != nil {
		t.Errorf("the object is %+v", object)
	}
}

// TestAnOrderIsOnePurchase: whatever becomes of the request, and though Services wait meanwhile.
func TestAnOrderIsOnePurchase(t *testing.T) {
	const path = "/ips/v1/ip-blocks"
	for name, prepare := range map[string]func(*world){
		"nothing special": func(*world) {},
		"the answer is lost": func(w *world) {
			w.arm(pnapsim.Fault{Method: http.MethodPost, Path: path, Action: pnapsim.FaultLost, Times: 1})
		},
		"the API fails": func(w *world) {
			w.arm(pnapsim.Fault{Method: http.MethodPost, Path: path, Action: pnapsim.FaultStatus,
				Status: http.StatusInternalServerError, Times: 1})
		},
		"the API refuses": func(w *world) {
			w.arm(pnapsim.Fault{Method: http.MethodPost, Path: path, Action: pnapsim.FaultStatus,
				Status: http.StatusBadRequest, Times: 1})
		},
		"a Service waits": func(w *world) { w.service("web", inPool()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(w)
			w.order("/29")
			for range 8 {
				w.drifted()
				if name == "a Service waits" {
					_, _ = w.sync("web")
				}
			}
			w.passes(2 * time.Hour)
			if name == "a Service waits" {
				w.settle("web")
			}
			w.wantPurchases(1)
			w.wantBlocks("203.0.113.8/29 assigned")
			if object := w.ordered(); object.Spec.BlockID != w.blockID() {
				t.Errorf("the object is %+v", object)
			}
			w.deleteOrder()
			if name == "a Service waits" {
				w.delete("web")
				w.settle("web")
			}
			w.passes(2 * time.Hour)
			w.wantBlocks()
			if w.ordered() != nil {
				t.Errorf("the object is %+v", w.ordered())
			}
		})
	}
}

// TestAnOrderSurvivesCrashes: the process dies at each step of the purchase, or of the release.
func TestAnOrderSurvivesCrashes(t *testing.T) {
	points := 0
	for at := 1; !t.Failed(); at++ {
		w := newWorld(t)
		w.order("/29")
		bought := w.passesUntilItDies(at)
		w.wantPurchases(1)
		w.wantBlocks("203.0.113.8/29 assigned")
		w.deleteOrder()
		released := w.passesUntilItDies(at)
		w.wantBlocks()
		if w.ordered() != nil || t.Failed() {
			t.Errorf("after a crash at step %d the object is %+v", at, w.ordered())
		}
		if !bought && !released {
			break
		}
		points++
	}
	t.Logf("figure order_crash_points %d points", points)
}

// passesUntilItDies lets the drift pass run in a process that dies at a step, and in the next one for some time. It
// reports whether the first one came so far.
func (w *world) passesUntilItDies(at int) (died bool) {
	w.step = 0
	w.crashAt = at
	for range 20 {
		w.refresh()
		w.clock.Advance(time.Minute)
		w.lookForDrift()
	}
	died = w.step >= at
	w.crashAt = 0
	w.passes(2 * time.Hour)
	return died
}

// TestAnOrderThatCannotBeFulfilled says why, and buys nothing; it is fulfilled once it can be.
func TestAnOrderThatCannotBeFulfilled(t *testing.T) {
	w := newWorld(t, configured(func(c *reconcile.Config) { c.MaxBlocks = 1 }))
	w.service("web")
	w.settle("web")
	w.order("/29")
	w.sweep()
	ready := meta.FindStatusCondition(w.ordered().Status.Conditions, v1beta1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != "TooManyBlocks" ||
		!strings.Contains(ready.Message, "--max-ip-blocks") {
		t.Errorf("the condition is %+v", ready)
	}
	w.wantPurchases(1)
	w.delete("web")
	w.settle("web")
	w.sweep()
	w.wantPurchases(2)
}

// TestAnOrderThatIsTakenBack buys nothing, after a purchase that phoenixNAP refused, too.
func TestAnOrderThatIsTakenBack(t *testing.T) {
	w := newWorld(t)
	w.arm(pnapsim.Fault{Method: http.MethodPost, Path: "/ips/v1/ip-blocks", Action: pnapsim.FaultStatus,
		Status: http.StatusBadRequest, Times: 100})
	w.order("/29")
	w.sweep()
	if w.ordered() == nil || len(w.ordered().Finalizers) != 1 {
		t.Fatalf("the object is %+v, want one with a finalizer", w.ordered())
	}
	w.deleteOrder()
	w.sweep()
	if w.ordered() != nil {
		t.Errorf("the object is %+v", w.ordered())
	}
	w.wantPurchases(0)
}

// TestAKeptBlockStays: a person keeps a block that was bought for Services.
func TestAKeptBlockStays(t *testing.T) {
	w := newWorld(t)
	w.service("web", inPool())
	w.settle("web")
	keep := func(policy v1beta1.ReclaimPolicy) {
		object := w.ipBlock(w.blockID())
		object.Spec.ReclaimPolicy = policy
		if _, err := w.objects.IPBlocks.Update(w.ctx, object, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	keep(v1beta1.ReclaimRetain)
	w.delete("web")
	w.settle("web")
	w.passes(2 * time.Hour)
	w.wantBlocks("203.0.113.8/29 assigned")
	keep(v1beta1.ReclaimDelete)
	w.passes(2 * time.Hour)
	w.wantBlocks()
}
