package admission

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	api "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	serviceUID        = "0f5ab1c2-0000-4000-8000-000000000001"
	controllersPolicy = "phoenixnap-controller-ipblocks"
)

// blocksOf returns the IPBlocks as a ServiceAccount of kube-system sees them.
func blocksOf(t *testing.T, name string) dynamic.ResourceInterface {
	t.Helper()
	config, err := cp.ServiceAccount(t.Context(), metav1.NamespaceSystem, name)
	must(t, err)
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	return client.Resource(api.GroupVersion.WithResource("ipblocks"))
}

// removed removes IPBlocks after the test.
func removed(t *testing.T, blocks dynamic.ResourceInterface, names ...string) {
	t.Helper()
	t.Cleanup(func() {
		for _, name := range names {
			if err := allowed(cleanup(t), blocks, name); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
}

// confinedBlocks installs everything and returns the IPBlocks of an administrator, and those of the controller once it
// is confined.
func confinedBlocks(t *testing.T) (admin, controller dynamic.ResourceInterface) {
	t.Helper()
	admin = ipBlocks(t)
	install(t)
	controller = blocksOf(t, controllerAccount)
	return admin, controller
}

func specOfService(uid string) string {
	return fmt.Sprintf(`{purpose: Service, serviceRef: {namespace: shop, name: web, uid: %q}}`, uid)
}

// TestControllerWritesItsIPBlocks creates each kind as the controller names it, records the purchase, and removes it.
func TestControllerWritesItsIPBlocks(t *testing.T) {
	admin, controller := confinedBlocks(t)
	for name, spec := range map[string]string{
		"svc-" + serviceUID: specOfService(serviceUID), "default-shared-1": `{purpose: Shared}`,
		"default-nodes-2": `{purpose: Nodes}`, "block-" + blockID: brought(blockID),
		"west-shared-1":         `{purpose: Shared, attachment: {name: west}}`,
		"west-nodes-1":          `{purpose: Nodes, attachment: {name: west}}`,
		"block-" + otherBlockID: bought(otherBlockID),
	} {
		removed(t, admin, name)
		fresh := ipBlock(t, name, spec)
		fresh.SetFinalizers([]string{contract.IPBlockFinalizer})
		object, err := controller.Create(t.Context(), fresh, strict)
		must(t, err)
		object = setStatus(t, controller, object, `{purchase: {attempt: 1, time: "2026-11-27T00:00:00.000001Z"}}`)
		if _, has, _ := unstructured.NestedString(object.Object, "spec", "blockID"); !has {
			must(t, unstructured.SetNestedField(object.Object, blockID, "spec", "blockID"))
			object, err = controller.Update(t.Context(), object, metav1.UpdateOptions{})
			must(t, err)
		}
		object = setStatus(t, controller, object, ready("False", api.AssignedRetained))
		object.SetFinalizers(nil)
		must2(controller.Update(t.Context(), object, metav1.UpdateOptions{}))(t)
		must(t, controller.Delete(t.Context(), object.GetName(), metav1.DeleteOptions{}))
	}
}

// TestControllerCreatesNoOtherIPBlocks: what a name says is what the block is for.
func TestControllerCreatesNoOtherIPBlocks(t *testing.T) {
	_, controller := confinedBlocks(t)
	for name, spec := range map[string]string{
		"anything":                bought(blockID),
		"svc-another":             specOfService(serviceUID),
		"svc-" + serviceUID:       `{purpose: Shared}`,
		"svc-without-uid":         ofService("web"),
		"default-shared-1":        specOfService(serviceUID),
		"default-nodes-1":         `{purpose: Shared}`,
		"default-nodes-2":         `{purpose: Nodes, source: Brought, blockID: ` + blockID + `}`,
		"block-" + otherBlockID:   bought(blockID),
		"block-without-id":        `{purpose: Shared}`,
		"default-shared-1-mine-2": brought(blockID),
		"west-shared-1":           `{purpose: Shared}`,
		"default-shared-2":        `{purpose: Shared, attachment: {name: west}}`,
	} {
		_, err := controller.Create(t.Context(), ipBlock(t, name, spec), dryRun)
		if !refusedBy(err, controllersPolicy) {
			t.Errorf("%s with %s: %v", name, spec, err)
		}
	}
}

// TestControllerChangesNothingThatPeopleWrote tries each field of an IPBlock, as RBAC lets it.
func TestControllerChangesNothingThatPeopleWrote(t *testing.T) {
	admin, controller := confinedBlocks(t)
	names := []string{"mine", "svc-" + serviceUID, "block-" + blockID}
	removed(t, admin, names...)
	for name, spec := range map[string]string{
		names[0]: `{purpose: Shared, size: /29}`, names[1]: specOfService(serviceUID), names[2]: bought(blockID),
	} {
		must2(admin.Create(t.Context(), ipBlock(t, name, spec), strict))(t)
	}
	for what, c := range map[string]struct {
		name  string
		path  []string
		value any
	}{
		"the policy of people's object": {names[0], []string{"spec", "reclaimPolicy"}, "Delete"},
		"a finalizer of people's":       {names[0], []string{"metadata", "finalizers"}, []any{"example.com/mine"}},
		"the block of another ID":       {names[2], []string{"spec", "blockID"}, otherBlockID},
		"the reclaim policy":            {names[2], []string{"spec", "reclaimPolicy"}, "Retain"},
		"the namespaces":                {names[2], []string{"spec", "allowedNamespaces"}, []any{"shop"}},
		"the Service":                   {names[1], []string{"spec", "serviceRef", "name"}, "another"},
		"the UID of the Service":        {names[1], []string{"spec", "serviceRef", "uid"}, blockID},
		"a label":                       {names[1], []string{"metadata", "labels", "a"}, "b"},
		"an annotation":                 {names[1], []string{"metadata", "annotations", "a"}, "b"},
		"a finalizer":                   {names[1], []string{"metadata", "finalizers"}, []any{"example.com/mine"}},
	} {
		object, err := admin.Get(t.Context(), c.name, metav1.GetOptions{})
		must(t, err)
		must(t, unstructured.SetNestedField(object.Object, c.value, c.path...))
		_, err = controller.Update(t.Context(), object, metav1.UpdateOptions{DryRun: dryRun.DryRun})
		// The definition refuses another ID in the place of one, before the policy is asked.
		byDefinition := what == "the block of another ID" && apierrors.IsInvalid(err)
		if !refusedBy(err, controllersPolicy) && !byDefinition {
			t.Errorf("%s: %v", what, err)
		}
	}
	people, err := admin.Get(t.Context(), names[0], metav1.GetOptions{})
	must(t, err)
	people = setStatus(t, controller, people, `{cidr: 203.0.113.0/29}`)
	people.SetFinalizers([]string{contract.IPBlockFinalizer})
	must(t, unstructured.SetNestedField(people.Object, blockID, "spec", "blockID")) // after the purchase
	must2(controller.Update(t.Context(), people, metav1.UpdateOptions{DryRun: dryRun.DryRun}))(t)
	if err := controller.Delete(t.Context(), names[0], deletionTried); !refusedBy(err, controllersPolicy) {
		t.Errorf("people's object is deleted: %v", err)
	}
}

// TestOthersDoNotWriteIPBlocks: agents, which read them, and kube-vip, whose tokens are on every node, change no record
// of an address.
func TestOthersDoNotWriteIPBlocks(t *testing.T) {
	admin, _ := confinedBlocks(t)
	apply(t, "kube-vip/kube-vip.yaml")
	removed(t, admin, "block-"+blockID)
	object, err := admin.Create(t.Context(), ipBlock(t, "block-"+blockID, brought(blockID)), strict)
	must(t, err)
	for _, name := range []string{"phoenixnap-agent", "kube-vip"} {
		blocks := blocksOf(t, name)
		_, created := blocks.Create(t.Context(), ipBlock(t, "another", bought(blockID)), dryRun)
		_, updated := blocks.Update(t.Context(), object, metav1.UpdateOptions{DryRun: dryRun.DryRun})
		_, patched := blocks.Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(allowDeletion),
			metav1.PatchOptions{DryRun: dryRun.DryRun})
		_, status := updateStatus(t, blocks, object, `{cidr: 203.0.113.0/29}`)
		deleted := blocks.Delete(t.Context(), object.GetName(), deletionTried)
		all := blocks.DeleteCollection(t.Context(), deletionTried, metav1.ListOptions{})
		_, listed := blocks.List(t.Context(), metav1.ListOptions{})
		if reads := name == "phoenixnap-agent"; (listed == nil) != reads {
			t.Errorf("%s lists IPBlocks: %v, want %t", name, listed, reads)
		}
		for i, err := range []error{created, updated, patched, status, deleted, all} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s, attempt %d: %v", name, i+1, err)
			}
		}
	}
}
