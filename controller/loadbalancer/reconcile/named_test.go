package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// TestAServiceNamesAnOrderedBlock: it waits for the block that a person orders, gets its address of that one and of no
// other, and nothing is bought for it.
func TestAServiceNamesAnOrderedBlock(t *testing.T) {
	w := newWorld(t)
	w.service("pooled", inPool())
	w.settle("pooled")
	w.order("/30") // of one address
	w.service("web", naming(orderName))
	if done, err := w.sync("web"); done {
		t.Errorf("before the block is bought: %v", err)
	}
	w.sweep()
	w.settle("web")
	w.wantPurchases(2)
	ordered := w.ordered()
	if got := w.address("web"); *ordered.Status.Allocations == nil || (*ordered.Status.Allocations)[0].Address != got {
		t.Errorf("the Service has %s, and the ordered block %+v", got, ordered.Status)
	}
	w.service("late", naming(orderName))
	if err := w.refused("late", time.Minute); !strings.Contains(err.Error(), "are in use; name another one") ||
		!strings.Contains(err.Error(), orderName) {
		t.Errorf("a Service for which no address is left gets %v", err)
	}
	w.edit("web", annotated(contract.ServiceIPBlock, "default-shared-1"))
	if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), "cannot be changed in place") {
		t.Errorf("a Service that names another block gets %v", err)
	}
	w.edit("late", annotated(contract.ServiceIPBlock, "default-shared-1"))
	w.settle("late")
	w.wantAddressesOnce("pooled", "web", "late")
	w.wantPurchases(2)
}

// TestTheNamedBlockGoes: what a Service learns that names a block which is given up, or is gone.
func TestTheNamedBlockGoes(t *testing.T) {
	for name, test := range map[string]struct {
		goes func(*world)
		want string
	}{
		"its IPBlock is deleted": {func(w *world) { w.deleteOrder() }, "its IPBlock is being deleted"},
		"in the portal": {func(w *world) {
			id := w.blockID()
			w.portal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: id})
			w.clock.Advance(time.Minute)
			w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: id})
		}, "is not in the account"},
		"its tags": {func(w *world) {
			w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: w.blockID(), Tags: ours("other")})
		}, "has the tags of something else"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.order("/29")
			w.sweep()
			test.goes(w)
			w.clock.Advance(time.Minute)
			w.service("web", naming(orderName))
			if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), test.want) {
				t.Errorf("the Service gets %v, want %q", err, test.want)
			}
			w.wantPurchases(1)
		})
	}
}

// TestANamedBlockIsNotReleased while a Service that names it waits for a Node.
func TestANamedBlockIsNotReleased(t *testing.T) {
	w := newWorld(t)
	w.service("pooled", inPool())
	w.settle("pooled")
	w.service("web", naming("default-shared-1"), annotated(contract.ServiceRequestedIP, "203.0.113.200"))
	w.delete("pooled")
	w.settle("pooled")
	w.sweep()
	w.wantBlocks("203.0.113.8/29 assigned")
	w.delete("web")
	w.settle("web")
	w.sweep()
	w.wantBlocks()
}
