package admission

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestOrders: what no one buys is refused with what to write instead.
func TestOrders(t *testing.T) {
	blocks := ipBlocks(t)
	for spec, says := range map[string]string{
		`{purpose: Nodes, size: /29}`: "--manage-membership",
		`{purpose: Service, size: /29, serviceRef: {namespace: shop, name: web}}`: "a Service orders its own block",
		`{purpose: Shared, size: /29, blockID: ` + blockID + `}`:                  "set source to Brought",
		`{purpose: Shared, allowedNamespaces: [shop]}`:                            "remove spec.allowedNamespaces",
	} {
		_, err := blocks.Create(t.Context(), ipBlock(t, "extra", spec), dryRun)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a refusal with %q", spec, err, says)
		}
	}
	_, err := blocks.Create(t.Context(), ipBlock(t, "chicago-nodes-1", `{purpose: Nodes}`), dryRun)
	if !apierrors.IsForbidden(err) {
		t.Errorf("a name of the controller in another network: %v", err)
	}
	for name, spec := range map[string]string{
		"of-nodes": `{purpose: Nodes, source: Brought, blockID: ` + blockID + `}`,
		"of-shop":  `{purpose: Shared, source: Brought, allowedNamespaces: [shop], blockID: ` + blockID + `}`,
		"extra":    `{purpose: Shared, size: /28}`, "another": `{purpose: Shared}`, "mine": brought(blockID),
		"default-nodes-1": `{purpose: Nodes}`, "block-" + blockID: bought(blockID),
		"of-chicago":      `{purpose: Shared, attachment: {name: chicago}}`,
		"chicago-nodes-1": `{purpose: Nodes, attachment: {name: chicago}}`,
		"chicagos":        `{purpose: Shared, attachment: {name: chicago}, source: Brought, blockID: ` + blockID + `}`,
		"chicagos-nodes":  `{purpose: Nodes, attachment: {name: chicago}, source: Brought, blockID: ` + blockID + `}`,
	} {
		must2(blocks.Create(t.Context(), ipBlock(t, name, spec), dryRun))(t)
	}
}

// TestOrdersAreEdited: after the purchase, too, but not to what is ignored.
func TestOrdersAreEdited(t *testing.T) {
	blocks := ipBlocks(t)
	removed(t, blocks, "extra")
	object, err := blocks.Create(t.Context(), ipBlock(t, "extra", `{purpose: Shared, size: /29}`), strict)
	must(t, err)
	must(t, unstructured.SetNestedField(object.Object, blockID, "spec", "blockID"))
	object, err = blocks.Update(t.Context(), object, metav1.UpdateOptions{})
	must(t, err)
	object.SetLabels(map[string]string{"team": "shop"})
	object, err = blocks.Update(t.Context(), object, metav1.UpdateOptions{})
	must(t, err)
	must(t, unstructured.SetNestedStringSlice(object.Object, []string{"shop"}, "spec", "allowedNamespaces"))
	if _, err := blocks.Update(t.Context(), object, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an order gets namespaces: %v", err)
	}
}
