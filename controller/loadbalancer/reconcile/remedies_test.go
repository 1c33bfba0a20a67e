package reconcile_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// recreated deletes the Service web and creates it again.
func recreated(changes ...func(*corev1.Service)) func(*world) {
	return func(w *world) {
		w.delete("web")
		w.settle("web")
		w.service("web", changes...)
	}
}

// remedies do what the message of a refusal says, in the situation that leads to it.
var remedies = map[string]func(*world){
	"LocationMissing":  edited(annotated(contract.ServiceIPLocation, "ASH")),
	"LocationMismatch": edited(annotated(contract.ServiceIPLocation, "ASH")),
	"NetworkUnusable": byPortal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: networkID,
		Status: "READY"}),
	"TooManyBlocks": func(w *world) {
		w.delete("first")
		w.settle("first")
	},
	"AddressRefused": edited(func(s *corev1.Service) { delete(s.Annotations, contract.ServiceRequestedIP) }),
	"BlockElsewhere": byPortal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock}),
	"BlockLost":      edited(annotated(contract.ServiceIPReplace, "true")),
	"BlockRetagged":  byPortal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Tags: ours("web")}),
	"MemberHoldsAddress": func(w *world) {
		w.portal(pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: serverID, Network: networkID})
	},
	"StatusNotKnown":     byPortal(pnapsim.Edit{Kind: pnapsim.EditBlockStatus, Status: "assigned"}),
	"PurchaseRefused":    func(w *world) { w.sim.Disarm() },
	"SizeMismatch":       recreated(annotated(contract.ServiceIPBlockSize, "/28")),
	"AnnotationsRefused": edited(annotated(contract.ServiceIPRetain, "true")),
	"AllocationMismatch": recreated(inPool()),
	"PurchaseRecordUnreadable": func(w *world) {
		w.editConfigMap(purchase.PoolName(contract.PoolDefault), func(c *corev1.ConfigMap) {
			delete(c.Annotations, contract.ServiceIPPurchase)
		})
	},
}

// TestRefusalsEndByTheirRemedy does what a refusal says: then the Service gets its address, or goes if it was deleted.
func TestRefusalsEndByTheirRemedy(t *testing.T) {
	for reason, remedy := range remedies {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			s := refusals[reason]
			w := newWorld(t, s.options...)
			s.drive(w)
			w.reaches(contract.ServiceConditionBlockAssigned, reason, s.says)
			remedy(w)
			w.clock.Advance(10 * time.Minute)
			w.settle("web")
			if web := w.get("web"); web != nil && len(web.Status.LoadBalancer.Ingress) != 1 {
				t.Errorf("after the remedy the Service has %+v", web.Status)
			}
		})
	}
}
