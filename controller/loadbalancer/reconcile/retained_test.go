package reconcile_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
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

// TestChurnDoesNotPileUpBlocks: an author who creates and deletes Services under ever other names leaves one block
// behind, and learns why it is not more.
func TestChurnDoesNotPileUpBlocks(t *testing.T) {
	for _, late := range []bool{false, true} { // it is asked for at first, or when the Service is about to go
		t.Run(fmt.Sprintf("late %t", late), func(t *testing.T) {
			w := newWorld(t, configured(func(c *reconcile.Config) {
				c.MaxRetained = 2
				c.MaxRetainedPerNamespace = 1
			}))
			for i := range 14 {
				name := fmt.Sprintf("web-%d", i)
				retain := annotated(contract.ServiceIPRetain, "true")
				switch {
				case late:
					w.service(name)
					w.settle(name)
					w.edit(name, retain)
				case i == 0:
					w.service(name, retain)
					w.settle(name)
				default:
					w.service(name, retain)
					if err := w.refused(name, time.Minute); !strings.Contains(err.Error(), "namespace shop") {
						t.Errorf("refusal is %q", err)
					}
				}
				w.delete(name)
				w.settle(name)
			}
			w.wantBlocks("203.0.113.8/29 unassigned")
			if !slices.Contains(w.eventReasons(), "IPBlockRefused") {
				t.Errorf("events are %v", w.eventReasons())
			}
		})
	}
}

// TestReleaseWaitsForTags: answers without tags are no proof that a block is not the Service's. While the network, its
// description or the index of the tag names it, the Service does not go; and no second one is bought.
func TestReleaseWaitsForTags(t *testing.T) {
	for _, indexed := range []bool{true, false} {
		t.Run(fmt.Sprintf("indexed %t", indexed), func(t *testing.T) {
			w := newWorld(t)
			w.service("web")
			w.settle("web")
			w.clock.Advance(time.Hour)
			hidden := pnapsim.Fault{Method: http.MethodGet, Action: pnapsim.FaultDropField, Field: "tags", Element: -1,
				Times: -1, For: pnapsim.Duration(45 * time.Second)}
			for _, path := range []string{blocksPath, blocksPath + "/*"} {
				hidden.Path = path
				w.arm(hidden)
			}
			if !indexed {
				hidden.Path = "/tag-manager/v1/tags"
				hidden.Field = "resourceAssignments"
				w.arm(hidden)
			}
			w.delete("web")
			for range 8 {
				if err := w.release(w.get("web")); err == nil {
					t.Fatalf("the Service is released while the account holds %s", w.blocks())
				}
				w.clock.Advance(5 * time.Second)
			}
			w.wantBlocks("203.0.113.8/29 assigned")
			w.clock.Advance(time.Minute)
			w.settle("web")
			w.wantBlocks()
			w.wantPurchases(1)
		})
	}
}
