package purchase_test

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

var _ purchase.Record = (*allocation.Object)(nil)

// TestARecordThatIsNotKept: a webhook may remove the status. Then nothing is bought.
func TestARecordThatIsNotKept(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	w.object.store.Admit = func(changed, _ metav1.Object) {
		if object, isBlock := changed.(*v1beta1.IPBlock); isBlock {
			object.Status.Purchase = nil
		}
	}
	for range 2 { // it is created, and then updated
		_, err := w.buy(order(web))
		if err == nil || !strings.Contains(err.Error(), "did not keep the status of IPBlock svc-uid-1") ||
			!strings.Contains(err.Error(), "webhook") {
			t.Fatalf("said %v", err)
		}
	}
	w.wantPurchases(0)
}

// TestAMissingDefinitionIsNamed: nothing is bought without the kind, and the error says how to install it.
func TestAMissingDefinitionIsNamed(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	if err := w.object.store.Undefine(v1beta1.GroupVersion.WithResource("ipblocks")); err != nil {
		t.Fatal(err)
	}
	record := allocation.ForService(w.object, v1beta1.DefaultNetwork, service, nil)
	_, err := w.buyer.Buy(testlog.Context(t), order(web), record)
	if err == nil || errors.Is(err, allocation.ErrConflict) ||
		!strings.Contains(err.Error(), "kubectl apply -k deploy/crds") {
		t.Errorf("said %v", err)
	}
	w.wantPurchases(0)
}

// TestPurchaseInAnObject is a whole purchase for a pool: the description of the block ends with the nonce.
func TestPurchaseInAnObject(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	block, err := w.buyer.Buy(testlog.Context(t), order(pool),
		allocation.ForShared(w.object, v1beta1.DefaultNetwork, nil))
	if err != nil {
		t.Fatal(err)
	}
	last, found := w.object.records().Last(false)
	if !found || last.BlockID != block.ID || !strings.HasSuffix(block.Description, " "+last.Nonce) {
		t.Errorf("recorded is %+v of %q", last, block.Description)
	}
	unanswered := ipblock.Purchase{Nonce: last.Nonce}
	if !unanswered.Shows(block) || unanswered.Shows(network.Block{Description: "x" + last.Nonce}) {
		t.Error("the nonce does not show the block")
	}
}
