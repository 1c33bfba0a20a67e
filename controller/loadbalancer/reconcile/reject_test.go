package reconcile_test

import (
	"maps"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// lose deletes the block of a published Service in the portal and lets the controller find out.
func (w *world) lose(name string) {
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
	w.clock.Advance(5 * time.Minute)
	_ = w.refused(name, 10*time.Minute)
}

// announces returns what an announcer would answer for.
func (w *world) announces(name string) (annotation, spec string, statuses int) {
	service := w.get(name)
	return service.Annotations[contract.KubeVIPAddresses], service.Spec.LoadBalancerIP,
		len(service.Status.LoadBalancer.Ingress)
}

// TestAddressOfALostBlockIsWithdrawn: phoenixNAP may sell the addresses to another customer, so no node may answer for
// them any more.
//
//proves:service-changes/block-deleted
func TestAddressOfALostBlockIsWithdrawn(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	address := w.address("web")
	w.lose("web")
	if annotation, spec, statuses := w.announces("web"); annotation != "" || spec != "" || statuses != 0 {
		t.Errorf("kube-vip is asked for %q and %q, and %d addresses stand in the status", annotation, spec, statuses)
	}
	if reason := w.condition("web").Reason; reason != "BlockLost" {
		t.Errorf("the condition says %s", reason)
	}
	announced := meta.FindStatusCondition(w.get("web").Status.Conditions, contract.ServiceConditionAnnounced)
	if announced != nil {
		t.Errorf("of an address that the Service no longer has a condition says %+v", announced)
	}
	version := w.get("web").ResourceVersion
	_ = w.refused("web", 30*time.Minute)
	if w.get("web").ResourceVersion != version {
		t.Error("a Service whose address was withdrawn is written to again and again")
	}

	w.edit("web", func(s *corev1.Service) { s.Annotations[contract.ServiceIPReplace] = "true" })
	w.settle("web")
	if annotation, spec, statuses := w.announces("web"); annotation != w.address("web") || spec != w.address("web") ||
		statuses != 1 {
		t.Errorf("after %s the address is %s, kube-vip is asked for %q and %q, and %d addresses stand in the status",
			address, w.address("web"), annotation, spec, statuses)
	}
}

// TestAnAddressSoldToAnotherClusterIsWithdrawn: a Service publishes the address of a block that is gone, and another
// cluster in the same network has bought the addresses meanwhile, whatever else the Service is refused for.
func TestAnAddressSoldToAnotherClusterIsWithdrawn(t *testing.T) {
	for reason, annotations := range map[string]map[string]string{
		"BlockLost":          {},
		"AnnotationsRefused": {contract.ServiceIPBlockSize: "/99"},
	} {
		w := newWorld(t, slow(func(l *pnapsim.Latency) { l.Quarantine = 0 }))
		w.service("web")
		w.settle("web")
		w.edit("web", func(s *corev1.Service) { maps.Copy(s.Annotations, annotations) })
		w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
		w.portal(pnapsim.Edit{Kind: pnapsim.EditAddBlock, Network: simtest.NetworkID, Tags: map[string]string{
			contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: "another", contract.TagPool: "default"}})
		w.clock.Advance(5 * time.Minute)
		_ = w.refused("web", 10*time.Minute)
		if got := w.condition("web").Reason; got != reason {
			t.Errorf("the condition says %s, want %s", got, reason)
		}
		if annotation, spec, statuses := w.announces("web"); annotation != "" || spec != "" || statuses != 0 {
			t.Errorf("%s: kube-vip is asked for %q and %q, and %d addresses stand in the status", reason, annotation,
				spec, statuses)
		}
	}
}

// TestAddressIsKeptWhileTheNetworkCannotBeRead: credentials of another account show no block and no network; they prove
// nothing.
//
//proves:service-changes/api-down
func TestAddressIsKeptWhileTheNetworkCannotBeRead(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
	w.arm(pnapsim.Fault{Method: http.MethodGet, Path: "/networks/v1/public-networks/*", Times: -1,
		Action: pnapsim.FaultStatus, Status: http.StatusForbidden})
	w.clock.Advance(5 * time.Minute)
	_ = w.refused("web", 10*time.Minute)
	if annotation, spec, statuses := w.announces("web"); annotation == "" || spec == "" || statuses != 1 {
		t.Errorf("kube-vip is asked for %q and %q, and %d addresses stand in the status", annotation, spec, statuses)
	}
}
