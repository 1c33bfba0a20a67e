package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	api "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const allowDeletion = `{"metadata":{"annotations":{"` + contract.AllowDeletion + `":"true"}}}`

const allowRelease = `{"metadata":{"annotations":{"` + contract.AllowRelease + `":"true"}}}`

var deletionTried = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}

// allowed deletes an IPBlock as a person does who means it.
func allowed(ctx context.Context, blocks dynamic.ResourceInterface, name string) error {
	_, err := blocks.Patch(ctx, name, types.MergePatchType, []byte(allowDeletion), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return blocks.Delete(ctx, name, metav1.DeleteOptions{})
}

// TestAllocatedBlocksAreNotDeleted: the refusal names who has which address, also where all IPBlocks are deleted at
// once.
func TestAllocatedBlocksAreNotDeleted(t *testing.T) {
	blocks := ipBlocks(t)
	for name, has := range map[string]string{
		"of-services": allocation("203.0.113.2", `services: [{namespace: shop, name: web}, {namespace: shop, name: dns}]`),
		"of-a-server": allocation("203.0.113.2", `server: 60473c2509268bc77fd06d31`),
		"of-no-one":   `{cidr: 203.0.113.0/29, allocations: []}`,
		"unrecorded":  `{cidr: 203.0.113.0/29}`,
	} {
		object, err := blocks.Create(t.Context(), ipBlock(t, name, brought(blockID)), strict)
		must(t, err)
		setStatus(t, blocks, object, has)
		t.Cleanup(func() {
			if err := allowed(cleanup(t), blocks, name); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	for name, has := range map[string]string{
		"of-services": "203.0.113.2 to Service shop/web, shop/dns",
		"of-a-server": "203.0.113.2 to server 60473c2509268bc77fd06d31",
	} {
		err := blocks.Delete(t.Context(), name, metav1.DeleteOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), has) ||
			!strings.Contains(err.Error(), contract.AllowDeletion+"=true") {
			t.Errorf("%s: %v, want a refusal that names %s and the annotation", name, err, has)
		}
	}
	err := blocks.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("all are deleted at once: %v", err)
	}
	for _, name := range []string{"of-services", "of-a-server"} {
		if _, err := blocks.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must(t, allowed(t.Context(), blocks, name))
	}
	for _, name := range []string{"of-no-one", "unrecorded"} { // the collection may have had them already
		if err := blocks.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// ready is the status of a block without addresses.
func ready(status, reason string) string {
	return fmt.Sprintf(`{cidr: 203.0.113.0/29, allocations: [], conditions: [{type: Ready, status: "%s", reason: %s,
		message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, status, reason)
}

// TestBlocksThatSomeoneMayCountOnAreNotReleased: a deletion of all IPBlocks, after a restore of etcd from the wrong
// time, releases nothing.
func TestBlocksThatSomeoneMayCountOnAreNotReleased(t *testing.T) {
	blocks := ipBlocks(t)
	kept := map[string]string{"retained": api.AssignedRetained, "awaiting": api.OrphanedAwaitingConfirmation}
	for name, status := range map[string]string{
		"retained": ready("False", api.AssignedRetained), "awaiting": ready("False", api.OrphanedAwaitingConfirmation),
		"orphan": ready("False", api.OrphanedServiceGone), "in-use": ready("True", api.AssignedRetained),
	} {
		object, err := blocks.Create(t.Context(), ipBlock(t, name, brought(blockID)), strict)
		must(t, err)
		setStatus(t, blocks, object, status)
		t.Cleanup(func() {
			if err := allowed(cleanup(t), blocks, name); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	for _, name := range []string{"orphan", "in-use"} {
		must(t, blocks.Delete(t.Context(), name, deletionTried))
	}
	for name, reason := range kept {
		err := blocks.Delete(t.Context(), name, metav1.DeleteOptions{})
		command := "kubectl annotate ipb " + name + " " + contract.AllowRelease + "=true"
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), reason) ||
			!strings.Contains(err.Error(), command) {
			t.Errorf("%s: %v, want a refusal with %s and %s", name, err, reason, command)
		}
		_, err = blocks.Patch(t.Context(), name, types.MergePatchType, []byte(allowRelease), metav1.PatchOptions{})
		must(t, err)
		must(t, blocks.Delete(t.Context(), name, deletionTried))
	}
}

// TestDefinitionsAreNotDeleted: the API server deletes the objects of a definition past every policy.
func TestDefinitionsAreNotDeleted(t *testing.T) {
	ipBlocks(t)
	client, err := dynamic.NewForConfig(cp.Config())
	must(t, err)
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	for _, name := range []string{"ipblocks.networking.phoenixnap.com", "publicnetworks.networking.phoenixnap.com"} {
		err = definitions.Delete(t.Context(), name, metav1.DeleteOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "kubectl annotate crd "+name) {
			t.Errorf("the definition is deleted: %v, want a refusal that says how to allow it", err)
		}
		must2(definitions.Patch(t.Context(), name, types.MergePatchType, []byte(allowDeletion),
			metav1.PatchOptions{}))(t)
		must(t, definitions.Delete(t.Context(), name, deletionTried))
		must2(definitions.Patch(t.Context(), name, types.MergePatchType,
			[]byte(strings.Replace(allowDeletion, `"true"`, "null", 1)), metav1.PatchOptions{}))(t)
	}
}
