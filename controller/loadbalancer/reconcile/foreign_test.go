package reconcile_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// copyOf makes a Service of everything that another one has, as a restored backup or a copy does.
func copyOf(other *corev1.Service) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Annotations = maps.Clone(other.Annotations)
		s.Finalizers = other.Finalizers
		s.Spec = *other.Spec.DeepCopy()
		s.Status = *other.Status.DeepCopy()
	}
}

// TestCopiedServiceGetsItsOwnAddress: a copy never changes, and never learns, what the original has.
//
//proves:known-bugs/copied-service
func TestCopiedServiceGetsItsOwnAddress(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){"dedicated": annotated(), "shared": inPool()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.service("web", change)
			w.settle("web")
			original := w.get("web")
			w.service("copy", copyOf(original))
			_, err := w.sync("copy")
			if got := w.get("copy").Annotations[contract.KubeVIPAddresses]; got == w.address("web") {
				t.Errorf("%s is still announced for the copy (sync said %v)", got, err)
			}
			w.settle("copy")
			if got := w.eventReasons(); !slices.Contains(got, "ForeignAddressRemoved") {
				t.Errorf("events %q", got)
			}
			w.wantAddressesOnce("web", "copy")
			if w.address("copy") == "" {
				t.Error("the copy has no address")
			}
			w.delete("copy")
			w.settle("copy")
			if got := w.get("web"); got.ResourceVersion != original.ResourceVersion {
				t.Error("the original was written")
			}
			w.wantDrifted()
		})
	}
}

// TestRestoredServiceKeepsWhatIsStillThere: a Service that was restored under its name has another UID.
//
//proves:known-bugs/copied-service
func TestRestoredServiceKeepsWhatIsStillThere(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){"dedicated": annotated(), "shared": inPool()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.service("web", change)
			w.settle("web")
			backup := w.get("web")
			if err := w.tracker.Delete(servicesResource, "shop", "web"); err != nil {
				t.Fatal(err)
			}
			w.service("web", copyOf(backup))
			w.settle("web")
			w.wantPurchases(1)
			if got := w.address("web"); got != backup.Spec.LoadBalancerIP {
				t.Errorf("address is %s, was %s", got, backup.Spec.LoadBalancerIP)
			}
			w.delete("web")
			w.settle("web")
			w.wantBlocks()
		})
	}
}

// TestRestoredServiceWithoutItsBlockGetsANewOne: nothing of that life is left but its traces.
//
//proves:known-bugs/copied-service
func TestRestoredServiceWithoutItsBlockGetsANewOne(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	backup := w.get("web")
	w.delete("web")
	w.settle("web")
	w.service("web", copyOf(backup))
	w.settle("web")
	w.wantPurchases(2)
	if got := w.address("web"); got == "" || got == backup.Spec.LoadBalancerIP {
		t.Errorf("address is %q, was %s", got, backup.Spec.LoadBalancerIP)
	}
}

//proves:known-bugs/block-deleted-in-portal
//proves:service-changes/block-replaced
func TestVanishedBlockIsReplacedOnlyWhenAsked(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
	w.refresh()
	if found, err := w.lb.Drifted(w.ctx); err != nil {
		t.Errorf("the drift pass found %v, %v", found, err)
	}
	w.clock.Advance(31 * time.Second) // one window; the freed addresses are not sold again within a minute
	_, err := w.sync("web")
	if err == nil || !strings.Contains(err.Error(), contract.ServiceIPReplace) {
		t.Errorf("said %v", err)
	}
	w.eventReasons()
	w.edit("web", annotated(contract.ServiceIPReplace, "true"))
	w.settle("web")
	w.wantPurchases(2)
	if got := w.address("web"); got == "" || got == "203.0.113.10" ||
		w.get("web").Annotations[contract.ServiceIPReplace] != "true" {
		t.Errorf("address is %q", got)
	}
	if got := strings.Join(w.eventReasons(), " "); !strings.Contains(got, "AddressReplaced") {
		t.Errorf("events %s", got)
	}
	w.delete("web")
	w.settle("web")
	w.wantBlocks()
}

// TestAccountOfVersion1IsTakenOver: phoenixnap/k8s-cloud-provider-bmc v1 leaves four tags on a block, the address in
// the spec, no annotation, and a status with the address, with an empty one, or none.
//
//proves:known-bugs/v1-blocks
func TestAccountOfVersion1IsTakenOver(t *testing.T) {
	v1 := func(service string) map[string]string {
		return map[string]string{
			contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID,
			contract.TagServiceNamespace: "shop", contract.TagServiceName: service,
		}
	}
	w := newWorld(t, withBlocks(
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29", Tags: v1("full"), Network: "public"},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.16/29", Tags: v1("empty"), Network: "public"},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.24/29", Tags: v1("none"), Network: "public"},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.32/29", Tags: v1("bare")},
	), configured(func(c *reconcile.Config) { c.Allocation = contract.AllocationShared }))
	old := map[string]string{"full": "203.0.113.10", "empty": "203.0.113.18", "none": "203.0.113.26"}
	for name, address := range old {
		w.service(name, func(s *corev1.Service) {
			s.Spec.LoadBalancerIP = address
			switch name {
			case "full":
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
			case "empty":
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{}}
			}
		})
	}
	w.service("bare")
	w.settleAll("full", "empty", "none", "bare")
	w.wantPurchases(0)
	for name, want := range old {
		if got := w.address(name); got != want {
			t.Errorf("address of %s is %s, was %s", name, got, want)
		}
	}
	w.wantDrifted()
	for _, name := range []string{"full", "empty", "none", "bare"} {
		w.delete(name)
	}
	w.settleAll("full", "empty", "none", "bare")
	w.wantBlocks()
}

// TestDryRunChangesNothing: every change is said and none made; no intent stays behind.
func TestDryRunChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.service("old")
	w.settle("old")
	w.dryRun()
	w.service("new")
	before := w.sim.Counters()
	for range 3 {
		_, err := w.sync("new")
		if !pnap.IsDryRun(err) {
			t.Fatalf("said %v", err)
		}
		w.clock.Advance(time.Minute)
	}
	if got := w.recorded("new"); got != nil {
		t.Errorf("the intent is still recorded: %+v", got)
	}
	w.delete("old")
	_, err := w.sync("old")
	var again *api.RetryError
	for errors.As(err, &again) {
		w.clock.Advance(again.RetryAfter())
		_, err = w.sync("old")
	}
	if !pnap.IsDryRun(err) || !strings.Contains(err.Error(), "unassign") {
		t.Errorf("said %v", err)
	}
	for operation, counts := range w.sim.Counters() {
		if !strings.HasPrefix(operation, "GET") && !strings.Contains(operation, "token") &&
			total(counts) != total(before[operation]) {
			t.Errorf("%s was sent", operation)
		}
	}
	w.wantBlocks("203.0.113.8/29 assigned")
}
