//go:build linux

package services

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
)

const (
	crds       = "../../../deploy/crds"
	definition = "ipblocks.networking.phoenixnap.com"
	// withoutDefinition is how long the definition is missing: enough for the controller to look at everything several
	// times.
	withoutDefinition = 20 * time.Second
)

// recordedServices stay while the definition goes: one with a block of its own, and two that share one.
var recordedServices = []string{"recorded", "recorded-1", "recorded-2"}

// prepareDefinition creates a Service with a block of its own, two that share one, and one that will leave.
func prepareDefinition(h *harness) {
	h.create(loadBalancer("recorded"))
	h.create(loadBalancer("recorded-1", shared()))
	h.create(loadBalancer("recorded-2", shared()))
	h.create(loadBalancer("leaving", shared()))
}

// checkDefinition: IPBlocks are deleted without their finalizers, and made again. Then their definition is deleted, and
// with it what records which address is whose. Until it is applied again, what is served is served, nothing is bought
// or released, and Nodes are initialised. Then all is as before.
func checkDefinition(h *harness) {
	prepareDefinition(h)
	h.must("apply the definitions", h.ControlPlane.ApplyFiles(h.Context(), crds))
	t := tcp(h.published("recorded"), 80)
	pooled := tcp(h.published("recorded-1"), 80)
	h.published("recorded-2")
	h.published("leaving")
	before := h.recorded(recordedServices)
	if len(before) != len(recordedServices) {
		h.Fatalf("recorded is %v, want an address of each of %q", before, recordedServices)
	}
	blocks := h.heldBlocks()
	definitions := h.definitions()
	h.definitionGuarded(definitions)

	w := h.watching(t)
	v := h.watching(pooled)
	during := func(name string, apply func()) { w.during(name, func() { v.during(name, apply) }) }
	during("ipblocks_deletion", func() { h.recordedAgain(before, h.forgetRecords()...) })
	during("crd_deletion", func() {
		h.allowDeletion(definitions)
		h.must("delete the definition", definitions.Delete(h.Context(), definition, metav1.DeleteOptions{}))
		h.must("start the controller again", h.RestartController(h.Context()))
		h.until(answerLimit, "no IPBlock is left", func() (bool, string) {
			_, err := h.ControlPlane.IPBlocks().List(h.Context(), metav1.ListOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
		h.create(loadBalancer("arriving", shared()))
		h.remove("leaving")
		h.initialised(h.members()[1].Name)
		h.saysWhatIsMissing("arriving")
		time.Sleep(withoutDefinition)
		if now := h.heldBlocks(); !slices.Equal(now, blocks) {
			h.Errorf("without the definition the account holds\n%q\nand held before\n%q", now, blocks)
		}
		if s := h.get("leaving"); s.DeletionTimestamp == nil {
			h.Error("Service leaving does not wait")
		}
	})
	during("crd_applied", func() {
		h.must("apply the definitions", h.ControlPlane.ApplyFiles(h.Context(), crds))
		h.removed("leaving")
		h.published("arriving")
		h.recordedAgain(before)
	})
	lost := 0
	for _, impact := range slices.Concat(w.end(), v.end()) {
		lost += impact.failed
	}
	h.figure("crd_deletion_lost_requests", lost, "requests")
	if lost > 0 {
		h.Errorf("%d requests failed while the definition was deleted and applied again", lost)
	}
	for _, name := range slices.Concat(recordedServices, []string{"arriving"}) {
		h.remove(name)
	}
}

// recorded is which address of which block each of some Services has, as the IPBlocks say it. The objects of blocks
// that Services share may have other names after they were made again.
func (h *harness) recorded(services []string) map[string]string {
	h.Helper()
	of := map[string]string{}
	objects, err := h.records(services, func(b v1beta1.IPBlock, a v1beta1.Allocation, service string) {
		of[service] = b.Spec.BlockID + " " + a.Address
	})
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	for _, b := range objects {
		if !slices.Contains(b.Finalizers, contract.IPBlockFinalizer) {
			of[b.Name] = "has no finalizer"
		}
	}
	return of
}

// records are the IPBlocks of which some Services have addresses. Each address is visited with its Service.
func (h *harness) records(
	services []string, visit func(b v1beta1.IPBlock, a v1beta1.Allocation, service string),
) ([]v1beta1.IPBlock, error) {
	h.Helper()
	list, err := h.ControlPlane.IPBlocks().List(h.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var objects []v1beta1.IPBlock
	for _, b := range list.Items {
		found := false
		for _, a := range ptr.Deref(b.Status.Allocations, nil) {
			for _, s := range a.Services {
				if slices.Contains(services, s.Name) {
					found = true
					visit(b, a, s.Name)
				}
			}
		}
		if found {
			objects = append(objects, b)
		}
	}
	return objects, nil
}

// forgetRecords removes the finalizers of the IPBlocks of recordedServices and deletes them, as a person with all
// rights can. It returns the UIDs of the objects.
func (h *harness) forgetRecords() (gone []types.UID) {
	h.Helper()
	objects, err := h.records(recordedServices, func(v1beta1.IPBlock, v1beta1.Allocation, string) {})
	h.must("list IPBlocks", err)
	for _, b := range objects {
		h.must("delete IPBlock "+b.Name, controlplane.ForgetIPBlock(h.Context(), h.ControlPlane.IPBlocks(), b.Name))
		gone = append(gone, b.UID)
	}
	return gone
}

// recordedAgain waits until each address is recorded as before, by other objects than those that are gone.
func (h *harness) recordedAgain(before map[string]string, gone ...types.UID) {
	h.Helper()
	h.until(answerLimit, "each address is recorded as before", func() (bool, string) {
		objects, err := h.records(recordedServices, func(v1beta1.IPBlock, v1beta1.Allocation, string) {})
		old := slices.ContainsFunc(objects, func(b v1beta1.IPBlock) bool { return slices.Contains(gone, b.UID) })
		now := h.recorded(recordedServices)
		return err == nil && !old && maps.Equal(now, before), fmt.Sprintf("%v, want %v", now, before)
	})
}

// heldBlocks are the blocks of the account as they are bought, tagged and assigned.
func (h *harness) heldBlocks() (all []string) {
	h.Helper()
	for _, b := range h.blocks() {
		all = append(all, fmt.Sprint(b.ID, b.Status, b.Tags))
	}
	slices.Sort(all)
	return all
}

func (h *harness) definitions() dynamic.ResourceInterface {
	h.Helper()
	client, err := dynamic.NewForConfig(h.ControlPlane.Config())
	h.must("client for definitions", err)
	return client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
}

// definitionGuarded tries what deletes a definition, or all that is recorded, without meaning it.
func (h *harness) definitionGuarded(definitions dynamic.ResourceInterface) {
	h.Helper()
	var now int64
	background := metav1.DeletePropagationBackground
	h.until(answerLimit, "the policy for definitions applies", func() (bool, string) {
		err := definitions.Delete(h.Context(), definition, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err), fmt.Sprint(err)
	})
	_, finalizers := definitions.Patch(h.Context(), definition, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	h.must("remove the finalizers of the definition", finalizers)
	for what, err := range map[string]error{
		"deleted": definitions.Delete(h.Context(), definition, metav1.DeleteOptions{PropagationPolicy: &background}),
		"deleted with --force": definitions.Delete(h.Context(), definition,
			metav1.DeleteOptions{GracePeriodSeconds: &now}),
		"deleted with others": definitions.DeleteCollection(h.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{FieldSelector: "metadata.name=" + definition}),
		"emptied": h.ControlPlane.IPBlocks().Delete(h.Context(), "svc-"+string(h.get("recorded").UID),
			metav1.DeleteOptions{GracePeriodSeconds: &now}),
	} {
		if !apierrors.IsForbidden(err) {
			h.Fatalf("the definition is %s: %v", what, err)
		}
	}
}

func (h *harness) allowDeletion(definitions dynamic.ResourceInterface) {
	h.Helper()
	_, err := definitions.Patch(h.Context(), definition, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+contract.AllowDeletion+`":"true"}}}`), metav1.PatchOptions{})
	h.must("allow the deletion", err)
}

// initialised gives a Node the taint of a new one, and waits until the controller has initialised it.
func (h *harness) initialised(node string) {
	h.Helper()
	h.patchNode(node, `{"spec":{"taints":[{"key":"`+cloudproviderapi.TaintExternalCloudProvider+
		`","value":"true","effect":"NoSchedule"}]}}`)
	h.until(answerLimit, "Node "+node+" is initialised", func() (bool, string) {
		taints := h.node(node).Spec.Taints
		return !slices.ContainsFunc(taints, func(t corev1.Taint) bool {
			return t.Key == cloudproviderapi.TaintExternalCloudProvider
		}), fmt.Sprint(taints)
	})
}

// saysWhatIsMissing waits until a condition of a Service that waits says what to do.
func (h *harness) saysWhatIsMissing(name string) {
	h.Helper()
	h.until(answerLimit, "Service "+name+" says what is missing", func() (bool, string) {
		s := h.get(name)
		if publishedAddress(s).IsValid() {
			h.Fatalf("Service %s has address %s, which is recorded nowhere", name, publishedAddress(s))
		}
		return slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == contract.ServiceConditionBlockAssigned && strings.Contains(c.Message,
				"kubectl apply -k deploy/crds")
		}), s.Status.String()
	})
}
