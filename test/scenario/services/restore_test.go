//go:build linux

package services

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
)

// storedServices are served when the snapshot is taken: one with a block of its own, and two that share one.
var storedServices = []string{"stored", "stored-1", "stored-2"}

// The other Services of the restore.
const (
	// revived and replaced are deleted after the snapshot. The first has an address of a block that others use too, the
	// block of the second is released.
	revived, replaced = "revived", "replaced"
	// early exists in the snapshot, and gets its block and its address after it; later is created after it.
	early, later = "early", "later"
)

// What a restore consists of, in figures.
const (
	etcdGone, etcdRestored = "etcd_gone", "etcd_restored"
	programsRestarted      = "programs_restarted"
)

// answersWithoutEtcd is how many requests are answered before etcd is restored: seconds without an API server.
const answersWithoutEtcd = 40

// createStored creates what is served when the snapshot is taken. Not ahead of the kind: another one compares what the
// account holds.
func (h *harness) createStored() {
	h.Helper()
	h.create(loadBalancer("stored"))
	h.create(loadBalancer("stored-1", shared()))
	h.create(loadBalancer("stored-2", shared()))
	h.create(loadBalancer(revived, shared()))
	h.create(loadBalancer(replaced))
}

// checkRestore: etcd is restored from a snapshot while the controller is stopped. What is served is served, nothing is
// bought again or released, and the records are those of the snapshot. What is younger is found by the tags of its
// block, or is an orphan until its Service is created again.
func checkRestore(h *harness) {
	h.createStored()
	t := tcp(h.published("stored"), 80)
	pooled := tcp(h.published("stored-1"), 80)
	for _, name := range []string{"stored-2", revived, replaced} {
		h.published(name)
	}
	stored := append(slices.Clone(storedServices), revived)
	before := h.recorded(stored)
	if len(before) != len(stored) {
		h.Fatalf("recorded is %v, want an address of each of %q", before, stored)
	}
	snapshot := h.snapshotBeforePurchase()
	earlyAt := h.published(early)
	orphan, laterAt := h.changeAfterSnapshot()
	blocks := h.heldBlocks()

	w := h.watching(t)
	v := h.watching(pooled)
	during := func(name string, apply func()) { w.during(name, func() { v.during(name, apply) }) }
	h.must("end the controller", h.StopController())
	during(etcdGone, func() {
		h.must("lose etcd", h.ControlPlane.Kill())
		h.answers(h.control, answersWithoutEtcd)
	})
	during("etcd_starts", func() { h.must("restore etcd", h.ControlPlane.Restore(h.Context(), snapshot)) })
	during(etcdRestored, func() {
		h.must("start the controller", h.StartController(h.Context()))
		h.publishedAs(early, func(a netip.Addr) bool { return a == earlyAt })
		h.lostItsBlock(replaced)
		h.orphaned(orphan)
		h.until(answerLimit, "each address is recorded as before", func() (bool, string) {
			now := h.recorded(stored)
			return maps.Equal(now, before), fmt.Sprintf("%v, want %v", now, before)
		})
		if now := h.heldBlocks(); !slices.Equal(now, blocks) {
			h.Errorf("after the restore the account holds\n%q\nand held before\n%q", now, blocks)
		}
		h.addressesOnce()
	})
	during(programsRestarted, h.restartPrograms)
	h.create(loadBalancer(later))
	h.publishedAs(later, func(a netip.Addr) bool { return a == laterAt })
	for _, name := range []string{early, revived, later} {
		h.answered(tcp(publishedAddress(h.get(name)), 80))
	}
	h.nothingLost(w, v)
	for _, name := range append(stored, replaced, early, later) {
		h.remove(name)
	}
}

// nothingLost counts the requests that got no answer. Those while the API server starts are not among them: it takes
// the processors that emulated servers need for their heartbeats. kube-vip gives addresses up when it cannot renew its
// Lease and when it ends, so of that mode only those count that fail in between.
func (h *harness) nothingLost(all ...*watch) {
	h.Helper()
	counted := []string{etcdRestored}
	if h.mode.names {
		counted = append(counted, etcdGone, programsRestarted)
	}
	lost := 0
	for _, w := range all {
		for i, seen := range w.end() {
			if slices.Contains(counted, w.edits[i].name) {
				lost += seen.failed
			}
		}
	}
	h.figure("etcd_restore_lost_requests", lost, "requests")
	if lost > 0 {
		h.Errorf("%d requests failed while etcd was restored", lost)
	}
}

// changeAfterSnapshot creates a Service and deletes two, and returns the block and the address of the first.
func (h *harness) changeAfterSnapshot() (cluster.AccountBlock, netip.Addr) {
	h.Helper()
	h.create(loadBalancer(later))
	address := h.published(later)
	h.answered(tcp(address, 80))
	gone := []string{revived, replaced}
	for _, name := range gone {
		h.remove(name)
	}
	for _, name := range gone {
		h.removed(name)
	}
	return h.blockOf(h.get(later)), address
}

// restartPrograms starts what watches the API server again, as Kubernetes asks for: an older state has lower versions,
// and who has seen a higher one gets no changes up to that.
func (h *harness) restartPrograms() {
	h.Helper()
	for _, s := range h.members() {
		h.must("start kube-proxy again", h.RestartProxy(h.Context(), s))
		h.must("start the agent again", h.RestartAgent(h.Context(), s))
	}
	if h.mode.remedy != nil {
		h.must("start kube-vip again", h.mode.remedy(h.Context(), h.Cluster))
	}
}

// snapshotBeforePurchase takes a snapshot in which early exists and is not served yet.
func (h *harness) snapshotBeforePurchase() controlplane.Snapshot {
	h.Helper()
	h.must("end the controller", h.StopController())
	h.create(loadBalancer(early))
	snapshot, err := h.ControlPlane.Snapshot()
	h.must("save etcd", err)
	h.must("start the controller", h.StartController(h.Context()))
	return snapshot
}

// orphaned waits until the IPBlock of a block says that its Service does not exist.
func (h *harness) orphaned(block cluster.AccountBlock) {
	h.Helper()
	h.until(answerLimit, "block "+block.CIDR+" is an orphan", func() (bool, string) {
		object := h.objectOf(block)
		return meta.IsStatusConditionTrue(object.Status.Conditions, v1beta1.ConditionOrphaned),
			fmt.Sprintf("%+v", object)
	})
}

// objectOf is the IPBlock of a block; empty while there is none.
func (h *harness) objectOf(block cluster.AccountBlock) v1beta1.IPBlock {
	h.Helper()
	list, err := h.ControlPlane.IPBlocks().List(h.Context(), metav1.ListOptions{})
	h.must("list IPBlocks", err)
	for _, b := range list.Items {
		if b.Spec.BlockID == block.ID {
			return b
		}
	}
	return v1beta1.IPBlock{}
}

// lostItsBlock waits until a Service whose block was released after the snapshot says so, and has no address.
func (h *harness) lostItsBlock(name string) {
	h.Helper()
	h.until(answerLimit, "Service "+name+" says that its block is gone", func() (bool, string) {
		s := h.get(name)
		c := meta.FindStatusCondition(s.Status.Conditions, contract.ServiceConditionBlockAssigned)
		return !publishedAddress(s).IsValid() && c != nil && c.Reason == string(ipblock.BlockLost), s.Status.String()
	})
}

// addressesOnce fails when two Services have one address, in what is published or in what is recorded.
func (h *harness) addressesOnce() {
	h.Helper()
	services, err := h.Kube.CoreV1().Services(cluster.Namespace).List(h.Context(), metav1.ListOptions{})
	h.must("list Services", err)
	owners := map[netip.Addr]string{}
	for _, s := range services.Items {
		address := publishedAddress(&s)
		if other := owners[address]; address.IsValid() && other != "" {
			h.Errorf("%s and %s have the address %s", other, s.Name, address)
		}
		owners[address] = s.Name
	}
	blocks, err := h.ControlPlane.IPBlocks().List(h.Context(), metav1.ListOptions{})
	h.must("list IPBlocks", err)
	recorded := map[string]string{}
	for _, b := range blocks.Items {
		for _, a := range ptr.Deref(b.Status.Allocations, nil) {
			if other := recorded[a.Address]; other != "" || len(a.Services) > 1 {
				h.Errorf("%s of IPBlock %s has %+v, and %s has it too", a.Address, b.Name, a.Services, other)
			}
			recorded[a.Address] = b.Name
		}
	}
}
