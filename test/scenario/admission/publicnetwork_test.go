package admission

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	api "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	networkID        = "60473c2509268bc77fd06d31"
	networksPolicy   = "phoenixnap-publicnetworks"
	controllersBound = "phoenixnap-controller-publicnetworks"
	anyNetwork       = `{id: ` + networkID + `, announcer: KubeVIP}`
)

// publicNetworks applies the definitions and returns the PublicNetworks of an administrator.
func publicNetworks(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	return defined(t, "publicnetworks")
}

// publicNetwork is a PublicNetwork with a spec in YAML.
func publicNetwork(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	object := ipBlock(t, name, spec)
	object.SetGroupVersionKind(api.GroupVersion.WithKind("PublicNetwork"))
	return object
}

// with is a spec with more fields.
func with(fields string) string { return `{id: ` + networkID + `, announcer: Agent, ` + fields + `}` }

// networksOf returns the PublicNetworks as a ServiceAccount of kube-system sees them.
func networksOf(t *testing.T, name string) dynamic.ResourceInterface {
	t.Helper()
	config, err := cp.ServiceAccount(t.Context(), metav1.NamespaceSystem, name)
	must(t, err)
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	return client.Resource(api.GroupVersion.WithResource("publicnetworks"))
}

// TestPublicNetworksOfPeople: what the next versions serve is accepted, and gets the defaults of the options.
func TestPublicNetworksOfPeople(t *testing.T) {
	networks := publicNetworks(t)
	removed(t, networks, "chicago", "chi-2", "everything")
	for name, spec := range map[string]string{
		"chicago": anyNetwork, "chi-2": `{id: ` + networkID + `, announcer: None}`,
		"everything": with(`ipBlocks: {allocation: Shared, size: /28, maximum: 4, maximumRetained: 0,
			maximumRetainedPerNamespace: 0}, members: {membership: Manage, addresses: None, nodeSelector: [
			{key: public, operator: In, values: ["true"]}, {key: node-role.kubernetes.io/control-plane,
			operator: DoesNotExist}, {key: cores, operator: Gt, values: ["8"]}]}`),
	} {
		created, err := networks.Create(t.Context(), publicNetwork(t, name, spec), strict)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var typed api.PublicNetwork
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, &typed))
		if typed.Spec.IPBlocks.Allocation == "" || typed.Spec.IPBlocks.Size == "" ||
			typed.Spec.IPBlocks.MaximumRetained == nil || typed.Spec.IPBlocks.MaximumRetainedPerNamespace == nil ||
			typed.Spec.Members.Membership == "" || typed.Spec.Members.Addresses == "" {
			t.Errorf("%s: %+v lacks defaults", name, typed.Spec)
		}
	}
}

// TestWrongPublicNetworks: what cannot be meant is refused where it is written, with what to do about it.
func TestWrongPublicNetworks(t *testing.T) {
	networks := publicNetworks(t)
	selector := func(requirement string) string { return with(`members: {nodeSelector: [` + requirement + `]}`) }
	refused := 0
	for spec, remedy := range map[string]string{
		`{}`:                                   `spec.id: Required value`,
		`{id: ` + networkID + `}`:              `spec.announcer: Required value`,
		`{id: "", announcer: KubeVIP}`:         `24 hexadecimal digits`,
		`{id: my-network, announcer: KubeVIP}`: `24 hexadecimal digits`,
		`{id: 60473C2509268BC77FD06D31, announcer: KubeVIP}`:       `in lowercase`,
		`{id: "kube-vip://` + networkID + `", announcer: KubeVIP}`: `as phoenixNAP's portal and API show it`,
		`{id: ` + networkID + `, announcer: kube-vip}`:             `supported values: "KubeVIP", "Agent", "None"`,
		with(`vlan: 20`):                                       `unknown field "spec.vlan"`,
		with(`ipBlocks: {allocation: shared}`):                 `supported values: "Dedicated", "Shared"`,
		with(`ipBlocks: {size: "29"}`):                         `supported values: "/28", "/29", "/30"`,
		with(`ipBlocks: {size: /30, allocation: Shared}`):      `set size to /28 or /29`,
		with(`ipBlocks: {maximum: 0}`):                         `maximum must be at least 1`,
		with(`ipBlocks: {maximumRetained: -1}`):                `greater than or equal to 0`,
		with(`ipBlocks: {maximumRetainedPerNamespace: -1}`):    `greater than or equal to 0`,
		with(`members: {membership: true}`):                    `must be of type string`,
		with(`members: {membership: Managed}`):                 `supported values: "Manage", "Report"`,
		with(`members: {addresses: Link}`):                     `supported values: "Block", "None"`,
		with(`members: {nodeSelector: []}`):                    `should have at least 1 items`,
		with(`members: {nodeSelector: "public=true"}`):         `must be of type array`,
		selector(`{operator: Exists}`):                         `key: Required value`,
		selector(`{key: a, operator: Equals, values: [b]}`):    `supported values: "In", "NotIn"`,
		selector(`{key: a, operator: In}`):                     `In and NotIn need values`,
		selector(`{key: a, operator: Exists, values: [b]}`):    `take no values; remove them`,
		selector(`{key: a, operator: Gt, values: [b]}`):        `a whole number`,
		selector(`{key: a, operator: Lt, values: ["1", "2"]}`): `need one value`,
	} {
		_, err := networks.Create(t.Context(), publicNetwork(t, "wrong", spec), strict)
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%.120s: %v, want a refusal with %q", spec, err, remedy)
			_ = networks.Delete(t.Context(), "wrong", metav1.DeleteOptions{})
			continue
		}
		refused++
	}
	for name, remedy := range map[string]string{
		strings.Repeat("a", 41): "40 characters at most", "chicago.public": "lowercase letters, digits and hyphens",
		"svc": "may not begin with svc", "block-1": "may not begin with svc or block",
		"default-shared": "a part shared or nodes", "chicago-nodes-1": "a part shared or nodes",
	} {
		_, err := networks.Create(t.Context(), publicNetwork(t, name, anyNetwork), strict)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("the name %s: %v, want a refusal with %q", name, err, remedy)
			continue
		}
		refused++
	}
	_, _ = fmt.Fprintf(t.Output(), "figure public_network_objects_refused %d objects\n", refused)
}

// TestPublicNetworksKeepTheirID: an edit cannot make another network of an object.
func TestPublicNetworksKeepTheirID(t *testing.T) {
	networks := publicNetworks(t)
	removed(t, networks, "edited")
	object, err := networks.Create(t.Context(), publicNetwork(t, "edited", anyNetwork), strict)
	must(t, err)
	must(t, unstructured.SetNestedField(object.Object, blockID, "spec", "id"))
	if _, err := networks.Update(t.Context(), object, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "create another PublicNetwork") {
		t.Errorf("another ID: %v", err)
	}
}

// TestPublicNetworksWithBlocksAreNotDeleted, not even all at once; the refusal says how many blocks there are.
func TestPublicNetworksWithBlocksAreNotDeleted(t *testing.T) {
	networks := publicNetworks(t)
	removed(t, networks, "default", "empty")
	for name, status := range map[string]string{"default": `{ipv4Blocks: 3, blocks: 3/10}`, "empty": `{blocks: 0/10}`} {
		object, err := networks.Create(t.Context(), publicNetwork(t, name, anyNetwork), strict)
		must(t, err)
		setStatus(t, networks, object, status)
	}
	err := networks.Delete(t.Context(), "default", metav1.DeleteOptions{})
	for _, part := range []string{"(3/10)", "kubectl get ipb",
		"kubectl annotate pubnet default " + contract.AllowDeletion + "=true"} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want a refusal with %s", err, part)
		}
	}
	err = networks.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if !refusedBy(err, networksPolicy) {
		t.Errorf("all are deleted at once: %v", err)
	}
	must2(networks.Get(t.Context(), "default", metav1.GetOptions{}))(t)
	if err := networks.Delete(t.Context(), "empty", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		must(t, err) // the collection may have had it already
	}
	must(t, allowed(t.Context(), networks, "default"))
}

// confinedNetworks installs everything and returns the PublicNetworks of an administrator, and those of the controller
// once it is confined.
func confinedNetworks(t *testing.T) (admin, controller dynamic.ResourceInterface) {
	t.Helper()
	admin = publicNetworks(t)
	install(t)
	controller = networksOf(t, controllerAccount)
	return admin, controller
}

// TestControllerKeepsOnePublicNetwork: it creates and changes default, and writes the status of all.
func TestControllerKeepsOnePublicNetwork(t *testing.T) {
	admin, controller := confinedNetworks(t)
	removed(t, admin, "default", "chicago")
	own, err := controller.Create(t.Context(), publicNetwork(t, "default", anyNetwork), strict)
	must(t, err)
	must(t, unstructured.SetNestedField(own.Object, "Agent", "spec", "announcer"))
	own, err = controller.Update(t.Context(), own, metav1.UpdateOptions{})
	must(t, err)
	setStatus(t, controller, own, `{blocks: 1/10}`)
	people, err := admin.Create(t.Context(), publicNetwork(t, "chicago", anyNetwork), strict)
	must(t, err)
	people = setStatus(t, controller, people, `{blocks: 1/10}`)
	must(t, unstructured.SetNestedField(people.Object, "Agent", "spec", "announcer"))
	_, err = controller.Update(t.Context(), people, metav1.UpdateOptions{})
	if !refusedBy(err, controllersBound) {
		t.Errorf("what people wrote is changed: %v", err)
	}
	own, err = admin.Get(t.Context(), "default", metav1.GetOptions{})
	must(t, err)
	own.SetLabels(map[string]string{"a": "b"})
	if _, err := controller.Update(t.Context(), own, metav1.UpdateOptions{}); !refusedBy(err, controllersBound) {
		t.Errorf("a label is written: %v", err)
	}
	if err := controller.Delete(t.Context(), "default", deletionTried); !apierrors.IsForbidden(err) {
		t.Errorf("the controller deletes its object: %v", err)
	}
}

// TestOthersDoNotWriteForTheController: who has every right to PublicNetworks, but may not impersonate the controller,
// writes no status and not the spec of default; agents and kube-vip, whose tokens are on every node, write nothing.
func TestOthersDoNotWriteForTheController(t *testing.T) {
	admin, _ := confinedNetworks(t)
	removed(t, admin, "default", "chicago")
	object, err := admin.Create(t.Context(), publicNetwork(t, "default", anyNetwork), strict)
	must(t, err)
	editor := networksOfUser(t, "networks-editor")
	if _, err := updateStatus(t, editor, object, `{blocks: 0/10}`); !refusedBy(err, networksPolicy) {
		t.Errorf("the status: %v", err)
	}
	changed := object.DeepCopy()
	must(t, unstructured.SetNestedField(changed.Object, "Agent", "spec", "announcer"))
	if _, err := editor.Update(t.Context(), changed, metav1.UpdateOptions{}); !refusedBy(err, networksPolicy) ||
		!strings.Contains(err.Error(), "change the options") {
		t.Errorf("the spec of default: %v", err)
	}
	labelled := object.DeepCopy()
	labelled.SetLabels(map[string]string{"team": "network"})
	labelled, err = editor.Update(t.Context(), labelled, metav1.UpdateOptions{})
	must(t, err)
	must2(editor.Create(t.Context(), publicNetwork(t, "chicago", anyNetwork), strict))(t)
	setStatus(t, admin, labelled, `{blocks: 0/10}`) // as a controller does that an administrator runs
	apply(t, "kube-vip/kube-vip.yaml")
	for _, name := range []string{"phoenixnap-agent", "kube-vip"} {
		networks := networksOf(t, name)
		_, created := networks.Create(t.Context(), publicNetwork(t, "another", anyNetwork), dryRun)
		_, updated := networks.Update(t.Context(), labelled, metav1.UpdateOptions{DryRun: dryRun.DryRun})
		_, status := updateStatus(t, networks, labelled, `{blocks: 0/10}`)
		deleted := networks.Delete(t.Context(), "default", deletionTried)
		for i, err := range []error{created, updated, status, deleted} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s, attempt %d: %v", name, i+1, err)
			}
		}
	}
}

// networksOfUser returns the PublicNetworks as a user sees them who has every right to them, and no other.
func networksOfUser(t *testing.T, user string) dynamic.ResourceInterface {
	t.Helper()
	client := clientOf(t, cp.Config())
	_, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "test:" + user}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{api.GroupVersion.Group}, Verbs: []string{"update", "create", "get", "list"},
			Resources: []string{"publicnetworks", "publicnetworks/status"}}}}, metav1.CreateOptions{})
	mayExist(t, err)
	bind(t, client, "test:"+user, user)
	config, err := cp.User(user)
	must(t, err)
	dynamicClient, err := dynamic.NewForConfig(config)
	must(t, err)
	return dynamicClient.Resource(api.GroupVersion.WithResource("publicnetworks"))
}

// TestColumnsOfPublicNetworks: kubectl get shows where the network is, what is left of it, and whether it works.
func TestColumnsOfPublicNetworks(t *testing.T) {
	networks := publicNetworks(t)
	removed(t, networks, "shown")
	object, err := networks.Create(t.Context(), publicNetwork(t, "shown", anyNetwork), strict)
	must(t, err)
	setStatus(t, networks, object, `{location: ASH, vlan: 20, ipv4Blocks: 3, blocks: 3/10, members: 3, readyMembers: 2,
		nodes: 2/3, conditions: [{type: Ready, status: "True", reason: NetworkReady, message: m,
		lastTransitionTime: "2026-11-27T00:00:00Z"}]}`)
	out := kubectl(t, "get", "pubnet", "shown", "--output=wide")
	for _, line := range []string{`NAME +LOCATION +VLAN +BLOCKS +NODES +READY +REASON +AGE +NETWORK +ANNOUNCER`,
		`shown +ASH +20 +3/10 +2/3 +True +NetworkReady +\S+ +` + networkID + ` +KubeVIP`} {
		if !regexp.MustCompile(`(?m)^` + line).MatchString(out) {
			t.Errorf("kubectl get pubnet shows\n%s\nwant a line %s", out, line)
		}
	}
	if out := kubectl(t, "wait", "--for=condition=Ready", "pubnet/shown"); !strings.Contains(out, "condition met") {
		t.Error(out)
	}
}
