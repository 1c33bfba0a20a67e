package admission

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestOrders: what no one buys is refused with what to write instead.
func TestOrders(t *testing.T) {
	blocks := ipBlocks(t)
	eventually(t, "the policy for orders", func() bool {
		_, err := blocks.Create(t.Context(), ipBlock(t, "extra", `{purpose: Nodes}`), dryRun)
		return refusedBy(err, "phoenixnap-ipblock-orders")
	})
	for spec, says := range map[string]string{
		`{purpose: Nodes, size: /29}`: "--manage-membership",
		`{purpose: Service, size: /29, serviceRef: {namespace: shop, name: web}}`: "a Service orders its own block",
		`{purpose: Shared, size: /29, blockID: ` + blockID + `}`:                  "set source to Brought",
	} {
		_, err := blocks.Create(t.Context(), ipBlock(t, "extra", spec), dryRun)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a refusal with %q", spec, err, says)
		}
	}
	for name, spec := range map[string]string{
		"extra": `{purpose: Shared, size: /28}`, "another": `{purpose: Shared}`, "mine": brought(blockID), "default-nodes-1": `{purpose: Nodes}`,
		"block-" + blockID: bought(blockID),
	} {
		must2(blocks.Create(t.Context(), ipBlock(t, name, spec), dryRun))(t)
	}
}
