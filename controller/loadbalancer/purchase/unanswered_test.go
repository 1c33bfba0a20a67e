package purchase_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// The time in which nothing more is bought begins when the request ended without an answer: it may have been on its way
// for long.
func TestTheWaitAfterAPurchaseCountsFromItsEnd(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath,
		Action: pnapsim.FaultLost}); err != nil {
		t.Fatal(err)
	}
	began := w.clock.Now()
	w.restart(meddling{w.client, func() { w.clock.Advance(time.Minute) }})
	_, err := w.buy(order(web))
	if pause := new(purchase.Pause); !errors.As(err, &pause) || pause.Reason != ipblock.PurchaseUnanswered {
		t.Fatalf("got %v", err)
	}
	if recorded := w.object.purchase(); recorded == nil || !recorded.Time.Equal(began.Add(time.Minute)) {
		t.Errorf("recorded is %+v, want the time %v", recorded, began.Add(time.Minute))
	}
}

// A record that a person removed during the purchase does not come back: tags and nonce find the block.
func TestARemovedRecordStaysRemoved(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	w.restart(meddling{w.client, w.object.remove})
	if _, err := w.buy(order(web)); err != nil {
		t.Fatal(err)
	}
	if recorded := w.object.purchase(); recorded != nil {
		t.Errorf("recorded is %+v", recorded)
	}
}

// Once the tags are old, an answer 400 is a refusal, and not repeated every few seconds.
func TestAnInvalidPurchaseIsNotAboutOldTags(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath, Times: -1,
		Action: pnapsim.FaultStatus, Status: http.StatusBadRequest}); err != nil {
		t.Fatal(err)
	}
	_, err := w.buy(order(web))
	if refused := new(purchase.Refused); !errors.As(err, &refused) ||
		!strings.Contains(refused.Detail, "check the size") {
		t.Errorf("%v, want a refusal that names the size", err)
	}
	w.wantPurchases(0)
}

// A refusal for lack of addresses names the size, the location and what to change.
func TestTheRemedyOfASoldOutLocation(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath,
		Action: pnapsim.FaultStatus, Status: http.StatusNotAcceptable}); err != nil {
		t.Fatal(err)
	}
	_, err := w.buy(order(web))
	if refused := new(purchase.Refused); !errors.As(err, &refused) ||
		!strings.Contains(refused.Detail, "no IP block of size /29 left in location ASH") {
		t.Errorf("got %v", err)
	}
}
