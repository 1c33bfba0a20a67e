package admission

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	api "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// ipBlocks applies the definitions and returns the IPBlocks of an administrator.
func ipBlocks(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	return defined(t, "ipblocks")
}

// defined applies the definitions and returns the objects of one, as an administrator sees them.
func defined(t *testing.T, resource string) dynamic.ResourceInterface {
	t.Helper()
	apply(t, "crds")
	client, err := dynamic.NewForConfig(cp.Config())
	must(t, err)
	objects := client.Resource(api.GroupVersion.WithResource(resource))
	eventually(t, "the definition of "+resource, func() bool {
		_, err := objects.List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	return objects
}

// ipBlock is an IPBlock with a spec in YAML.
func ipBlock(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	var fields map[string]any
	must(t, yaml.Unmarshal([]byte(spec), &fields))
	object.SetGroupVersionKind(api.GroupVersion.WithKind("IPBlock"))
	object.SetName(name)
	object.Object["spec"] = fields
	return object
}

const (
	blockID      = "60473c2509268bc77fd06d29"
	otherBlockID = "60473c2509268bc77fd06d2a"
)

// strict has the API server refuse fields that it does not know, as kubectl does.
var strict = metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}

// TestIPBlocksOfPeople: what people write in the guides is accepted, and what a backup contains, and gets the defaults.
func TestIPBlocksOfPeople(t *testing.T) {
	blocks := ipBlocks(t)
	for name, spec := range map[string]string{
		"bought-before":        `{purpose: Shared}`,
		"brought":              `{purpose: Shared, source: Brought, blockID: ` + blockID + `}`,
		"brought-retained":     `{purpose: Shared, source: Brought, blockID: ` + blockID + `, reclaimPolicy: Retain}`,
		"block-of-one-service": `{purpose: Service, serviceRef: {namespace: shop, name: web}, size: /28}`,
		"block-by-name":        `{purpose: Service, allowedNamespaces: [shop, blog]}`,
		"kept":                 `{purpose: Shared, reclaimPolicy: Retain}`,
		"of-nodes":             `{purpose: Nodes, source: Brought, blockID: ` + blockID + `}`,
		"block-chicago":        `{purpose: Shared, attachment: {name: chicago}}`,
		"block-digit-first":    `{purpose: Service, serviceRef: {namespace: 1st, name: 2nd}}`,
	} {
		created, err := blocks.Create(t.Context(), ipBlock(t, name, spec), strict)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var typed api.IPBlock
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, &typed))
		if typed.Spec.Source == "" || typed.Spec.Attachment.Name == "" || typed.Spec.Attachment.Kind == "" {
			t.Errorf("%s: %+v lacks defaults", name, typed.Spec)
		}
		must(t, blocks.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

// TestWrongIPBlocks: what cannot be meant is refused where it is written, with what to do about it.
func TestWrongIPBlocks(t *testing.T) {
	blocks := ipBlocks(t)
	long := strings.Repeat("a", 64)
	refused := 0
	for spec, remedy := range map[string]string{
		`{}`:                                `spec.purpose: Required value`,
		`{purpose: service}`:                `supported values: "Service", "Shared", "Nodes"`,
		`{purpose: Shared, source: Rented}`: `supported values: "Bought", "Brought"`,
		`{purpose: Shared, size: "29"}`:     `supported values: "/28", "/29", "/30"`,
		`{purpose: Shared, size: /31}`:      `supported values: "/28", "/29", "/30"`,
		`{purpose: Service, serviceRef: {namespace: shop, name: web}, reclaimPolicy: Retain}`: `phoenixnap.com/ip-retain`,
		`{purpose: Nodes, reclaimPolicy: Delete}`:                                             `only a block with purpose Shared`,
		`{purpose: Shared, reclaimPolicy: Recycle}`:                                           `supported values: "Delete", "Retain"`,
		`{purpose: Shared, attachment: {kind: Service}}`:                                      `supported values: "PublicNetwork"`,
		`{purpose: Shared, attachment: {name: Default}}`:                                      `lowercase letters, digits and hyphens, such as default`,
		`{purpose: Shared, attachment: {name: ""}}`:                                           `such as default`,
		`{purpose: Shared, attachment: {name: ` + long + `}}`:                                 `may not be more than 63`,
		`{purpose: Shared, blockid: ` + blockID + `}`:                                         `unknown field "spec.blockid"`,
		`{purpose: Shared, source: Brought}`:                                                  `needs blockID`,
		`{purpose: Shared, source: Brought, blockID: ""}`:                                     `24 hexadecimal digits`,
		`{purpose: Shared, source: Brought, blockID: 203.0.113.0/29}`:                         `24 hexadecimal digits`,
		`{purpose: Shared, source: Brought, blockID: 60473C2509268BC77FD06D29}`:               `in lowercase`,
		`{purpose: Shared, source: Brought, blockID: ` + blockID + `, size: /29}`:             `remove size`,
		`{purpose: Shared, source: Brought, blockID: ` + blockID + `, reclaimPolicy: Delete}`: `remove reclaimPolicy`,
		`{purpose: Service}`: `needs serviceRef, or allowedNamespaces`,
		`{purpose: Shared, serviceRef: {namespace: shop, name: web}}`:           `remove it, or set purpose to Service`,
		`{purpose: Nodes, serviceRef: {namespace: shop, name: web}}`:            `remove it, or set purpose to Service`,
		`{purpose: Nodes, allowedNamespaces: [shop]}`:                           `remove allowedNamespaces`,
		`{purpose: Service, serviceRef: {name: web}}`:                           `spec.serviceRef.namespace: Required value`,
		`{purpose: Service, serviceRef: {namespace: shop}}`:                     `spec.serviceRef.name: Required value`,
		`{purpose: Service, serviceRef: {namespace: Shop, name: web}}`:          `namespace must be the name of a namespace`,
		`{purpose: Service, serviceRef: {namespace: shop, name: shop/web}}`:     `name must be the name of a Service`,
		`{purpose: Service, serviceRef: {namespace: shop, name: ` + long + `}}`: `may not be more than 63`,
		`{purpose: Service, allowedNamespaces: []}`:                             `should have at least 1 items`,
		`{purpose: Service, allowedNamespaces: ["*"]}`:                          `there are no patterns`,
		`{purpose: Service, allowedNamespaces: [shop, shop]}`:                   `Duplicate value: "shop"`,
		`{purpose: Service, allowedNamespaces: "shop"}`:                         `must be of type array`,
		`{purpose: Shared, allowedNamespaces: ` + namespaces(257) + `}`:         `must have at most 256 items`,
	} {
		_, err := blocks.Create(t.Context(), ipBlock(t, "wrong", spec), strict)
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%.120s: %v, want a refusal with %q", spec, err, remedy)
			_ = blocks.Delete(t.Context(), "wrong", metav1.DeleteOptions{})
			continue
		}
		refused++
	}
	_, err := blocks.Create(t.Context(), ipBlock(t, long, `{purpose: Shared}`), strict)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "63 characters at most") {
		t.Errorf("a name of 64 characters: %v", err)
	}
	_, _ = fmt.Fprintf(t.Output(), "figure ip_block_objects_refused %d objects\n", refused+1)
}

// namespaces is a list of n namespaces.
func namespaces(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("ns-%d", i))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// TestIPBlocksKeepWhatTheyAre: an edit cannot make another block of an IPBlock.
func TestIPBlocksKeepWhatTheyAre(t *testing.T) {
	blocks := ipBlocks(t)
	for edit, remedy := range map[[2]string]string{
		{`{purpose: Shared}`, `{purpose: Nodes}`}:                             `purpose cannot be changed`,
		{`{purpose: Shared}`, `{purpose: Shared, size: /29}`}:                 `size cannot be added or removed`,
		{`{purpose: Shared, size: /29}`, `{purpose: Shared, size: /28}`}:      `size cannot be changed`,
		{`{purpose: Shared, size: /29}`, `{purpose: Shared}`}:                 `size cannot be added or removed`,
		{`{purpose: Shared}`, `{purpose: Shared, attachment: {name: other}}`}: `attachment cannot be changed`,
		{brought(blockID), brought(otherBlockID)}:                             `blockID cannot be changed`,
		{bought(blockID), `{purpose: Shared}`}:                                `blockID cannot be removed`,
		{bought(blockID), brought(blockID)}:                                   `source cannot be changed`,
		{`{purpose: Shared}`, bought(blockID)}:                                ``,
		{`{purpose: Shared}`, `{purpose: Shared, reclaimPolicy: Retain}`}:     ``,
		{`{purpose: Shared}`, `{purpose: Shared, allowedNamespaces: [shop]}`}: ``,
		{ofService("web"), ofService("api")}:                                  ``,
	} {
		created, err := blocks.Create(t.Context(), ipBlock(t, "block-edited", edit[0]), strict)
		must(t, err)
		changed := ipBlock(t, "block-edited", edit[1])
		changed.SetResourceVersion(created.GetResourceVersion())
		_, err = blocks.Update(t.Context(), changed, metav1.UpdateOptions{})
		if remedy == "" && err != nil || remedy != "" && (!apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), remedy)) {
			t.Errorf("%s: %v, want %q", edit, err, remedy)
		}
		must(t, blocks.Delete(t.Context(), "block-edited", metav1.DeleteOptions{}))
	}
}

func brought(id string) string { return `{purpose: Shared, source: Brought, blockID: ` + id + `}` }

func bought(id string) string { return `{purpose: Shared, blockID: ` + id + `}` }

func ofService(name string) string {
	return `{purpose: Service, serviceRef: {namespace: shop, name: ` + name + `}}`
}

// TestAllocationsChangeOnlyToTheirHolder: an address goes to another holder only after it was free, and a block with an
// allocation keeps its Service.
func TestAllocationsChangeOnlyToTheirHolder(t *testing.T) {
	blocks := ipBlocks(t)
	web := `services: [{namespace: shop, name: web}]`
	for change, refusal := range map[[2]string]string{
		{web, web}: ``,
		{web, `services: [{namespace: shop, name: web, uid: u-2}]`}:                     ``,
		{web, `services: [{namespace: shop, name: web}, {namespace: shop, name: dns}]`}: ``,
		{web, `services: [{namespace: shop, name: dns}]`}:                               `only after it was free`,
		{`sharedAs: shop/front, services: [{namespace: shop, name: web}, {namespace: shop, name: dns}]`,
			`sharedAs: shop/front, services: [{namespace: shop, name: dns}]`}: ``,
		{web, `services: [{namespace: blog, name: web}]`}:                        `only after it was free`,
		{web, `server: 60473c2509268bc77fd06d31`}:                                `only after it was free`,
		{`server: 60473c2509268bc77fd06d31`, `server: 60473c2509268bc77fd06d31`}: ``,
		{`server: 60473c2509268bc77fd06d31`, `server: 60473c2509268bc77fd06d32`}: `only after it was free`,
		{web, `services: []`}:                             `should have at least 1 items`,
		{web, web + `, server: 60473c2509268bc77fd06d31`}: `either to Services or to a server`,
	} {
		object, err := blocks.Create(t.Context(), ipBlock(t, "block-allocated", ofService("web")), strict)
		must(t, err)
		object = setStatus(t, blocks, object, allocation("203.0.113.2", change[0]))
		_, err = updateStatus(t, blocks, object, allocation("203.0.113.2", change[1]))
		if refusal == "" && err != nil || refusal != "" && (!apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), refusal)) {
			t.Errorf("%s: %v, want %q", change, err, refusal)
		}
		must(t, allowed(t.Context(), blocks, "block-allocated"))
	}
	object, err := blocks.Create(t.Context(), ipBlock(t, "block-allocated", ofService("web")), strict)
	must(t, err)
	if _, err := updateStatus(t, blocks, object, allocation("198.51.100.2", web)); !apierrors.IsInvalid(err) {
		t.Errorf("an address outside of the block: %v, want a refusal", err)
	}
	object = setStatus(t, blocks, object, allocation("203.0.113.2", web))
	other := ipBlock(t, "block-allocated", ofService("dns"))
	other.SetResourceVersion(object.GetResourceVersion())
	if _, err := blocks.Update(t.Context(), other, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "delete that Service first") {
		t.Errorf("another Service for a block with an allocation: %v", err)
	}
	object = setStatus(t, blocks, object, `{cidr: 203.0.113.0/29, allocations: []}`)
	other.SetResourceVersion(object.GetResourceVersion())
	must2(blocks.Update(t.Context(), other, metav1.UpdateOptions{}))(t)
	must(t, blocks.Delete(t.Context(), "block-allocated", metav1.DeleteOptions{}))
}

// allocation is a status with one address and its holder.
func allocation(address, holder string) string {
	return fmt.Sprintf("{cidr: 203.0.113.0/29, allocations: [{address: %s, since: \"2026-11-27T00:00:00Z\", %s}]}",
		address, holder)
}

func updateStatus(
	t *testing.T, blocks dynamic.ResourceInterface, object *unstructured.Unstructured, status string,
) (*unstructured.Unstructured, error) {
	t.Helper()
	changed := object.DeepCopy()
	var fields map[string]any
	must(t, yaml.Unmarshal([]byte(status), &fields))
	changed.Object["status"] = fields
	return blocks.UpdateStatus(t.Context(), changed,
		metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
}

func setStatus(
	t *testing.T, blocks dynamic.ResourceInterface, object *unstructured.Unstructured, status string,
) *unstructured.Unstructured {
	t.Helper()
	updated, err := updateStatus(t, blocks, object, status)
	must(t, err)
	return updated
}

// kubectl is what kubectl prints for an administrator.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, controlplane.WriteKubeconfig(kubeconfig, cp.Config(), ""))
	program, err := tools.Binary(t.Context(), "kubectl")
	must(t, err)
	cmd := exec.CommandContext(t.Context(), program, append(args, "--kubeconfig", kubeconfig)...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	out, err := cmd.Output()
	must(t, err)
	return string(out)
}

// TestColumnsOfIPBlocks: kubectl get shows what is paid for, for whom, and why it is not ready.
func TestColumnsOfIPBlocks(t *testing.T) {
	blocks := ipBlocks(t)
	object, err := blocks.Create(t.Context(), ipBlock(t, "block-shown", ofService("web")), strict)
	must(t, err)
	setStatus(t, blocks, object, `{cidr: 203.0.113.0/29, used: 1/5, conditions: [{type: Ready, status: "False",
		reason: NetworkChanging, message: waits, lastTransitionTime: "2026-11-27T00:00:00Z"}]}`)
	out := kubectl(t, "get", "ipb", "block-shown", "--output=wide")
	const headings = `NAME +CIDR +NETWORK +PURPOSE +FOR +USED +READY +REASON +AGE +NAMESPACE +BLOCK +RECLAIM POLICY`
	const row = `block-shown +203\.0\.113\.0/29 +default +Service +web +1/5 +False +NetworkChanging +\S+ +shop`
	for _, line := range []string{headings, row} {
		if !regexp.MustCompile(`(?m)^` + line).MatchString(out) {
			t.Errorf("kubectl get ipb shows\n%s\nwant a line %s", out, line)
		}
	}
	must(t, blocks.Delete(t.Context(), "block-shown", metav1.DeleteOptions{}))
}
