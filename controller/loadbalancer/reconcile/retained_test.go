package reconcile_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// twoBlocks is an account with two blocks of the Service web: the one of its address, and one too many that
// is tagged as to be retained.
func twoBlocks() option {
	retained := ours("web")
	retained[contract.TagRetain] = contract.TagTrue
	return withBlocks(
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29", Network: "public", Tags: ours("web")},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.16/29", Tags: retained},
	)
}

// TestRetainedDuplicateGoes: what is too many does not stay in the account because an earlier life of the
// Service wanted it retained.
func TestRetainedDuplicateGoes(t *testing.T) {
	w := newWorld(t, twoBlocks())
	w.service("web", annotated(contract.ServiceIPAddress, "203.0.113.10"))
	w.settle("web")
	if got := w.address("web"); got != "203.0.113.10" {
		t.Errorf("address is %s", got)
	}
	w.wantBlocks("203.0.113.8/29 assigned")
	w.wantPurchases(0)
}

// TestReleaseRetainsTheBlockOfTheAddress: of several blocks the one that a Service was published with is the
// one to find again; without the wish to retain none stays.
func TestReleaseRetainsTheBlockOfTheAddress(t *testing.T) {
	for retain, want := range map[string][]string{
		"true": {"203.0.113.8/29 unassigned", "203.0.113.16/29 unassigned"}, "": nil,
	} {
		t.Run("retain "+retain, func(t *testing.T) {
			w := newWorld(t, twoBlocks())
			w.service("web", annotated(contract.ServiceIPAddress, "203.0.113.10", contract.ServiceIPRetain, retain),
				func(s *corev1.Service) {
					s.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
				})
			w.clock.Advance(time.Second)
			w.settle("web")
			w.wantBlocks(want...)
		})
	}
}
