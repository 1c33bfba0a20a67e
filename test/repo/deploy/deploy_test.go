package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/image"
)

// cp is the control plane of all tests of this package.
var cp *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &cp)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sourceTree(t *testing.T) string {
	t.Helper()
	root, err := tools.ModuleRoot()
	must(t, err)
	return root
}

func overlays(t *testing.T) []string {
	t.Helper()
	names, err := Overlays(sourceTree(t))
	must(t, err)
	if len(names) < 6 {
		t.Fatalf("overlays %v", names)
	}
	return names
}

// TestRenderedIsCurrent renders every overlay again.
func TestRenderedIsCurrent(t *testing.T) {
	root := sourceTree(t)
	for _, overlay := range overlays(t) {
		want, err := Render(t.Context(), root, overlay)
		must(t, err)
		have, err := os.ReadFile(Rendered(root, overlay))
		must(t, err)
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("%s is not current, run make manifests:\n%s", Rendered(root, overlay), diff)
		}
	}
	kept, err := os.ReadDir(filepath.Join(root, "deploy", "rendered"))
	must(t, err)
	for _, entry := range kept {
		if entry.IsDir() && !slices.Contains(overlays(t), entry.Name()) {
			t.Errorf("deploy/rendered/%s has no overlay", entry.Name())
		}
	}
}

// TestRenderedIsAccepted applies what users apply, one overlay after the other as a user does who changes the setup,
// each twice.
func TestRenderedIsAccepted(t *testing.T) {
	for _, overlay := range overlays(t) {
		for range 2 {
			if err := cp.ApplyFiles(t.Context(), Rendered(sourceTree(t), overlay)); err != nil {
				t.Errorf("%s: %v", overlay, err)
			}
		}
	}
}

// nodesOnly ends the names of the overlays without agents.
const nodesOnly = "-nodes"

// withAgents are the overlays that install agents.
func withAgents(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(overlays(t), func(o string) bool { return strings.HasSuffix(o, nodesOnly) })
}

// objects are the objects of a rendered overlay.
func objects(t *testing.T, overlay string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(Rendered(sourceTree(t), overlay))
	must(t, err)
	var all []runtime.Object
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		must(t, err)
		all = append(all, object)
	}
	return all
}

// find is the only object of a type.
func find[T runtime.Object](t *testing.T, overlay string) T {
	t.Helper()
	var found []T
	for _, o := range objects(t, overlay) {
		if typed, is := o.(T); is {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d objects %T", overlay, len(found), *new(T))
	}
	return found[0]
}

func controller(t *testing.T, overlay string) *appsv1.Deployment {
	return find[*appsv1.Deployment](t, overlay)
}

func agent(t *testing.T, overlay string) *appsv1.DaemonSet {
	return find[*appsv1.DaemonSet](t, overlay)
}

// TestOneVersion: the images are those that make images makes, at one and the same version.
func TestOneVersion(t *testing.T) {
	for _, overlay := range overlays(t) {
		name, version, _ := strings.Cut(controller(t, overlay).Spec.Template.Spec.Containers[0].Image, ":")
		if name != "phoenixnap/"+image.Controller || !tagPattern.MatchString(version) {
			t.Errorf("%s: controller %s:%s", overlay, name, version)
		}
		if strings.HasSuffix(overlay, nodesOnly) {
			continue
		}
		if got := agent(t, overlay).Spec.Template.Spec.Containers[0].Image; got != "phoenixnap/"+image.Agent+":"+
			version {
			t.Errorf("%s: agent %s beside controller %s", overlay, got, version)
		}
	}
}

// TestEverythingIsInKubeSystem: what has a namespace is in kube-system, but for the right to read the API servers'
// addresses.
func TestEverythingIsInKubeSystem(t *testing.T) {
	for _, o := range objects(t, "kubeadm") {
		object, err := meta.Accessor(o)
		must(t, err)
		if namespace := object.GetNamespace(); namespace != "" && namespace != metav1.NamespaceSystem &&
			!strings.HasSuffix(object.GetName(), ":api-servers") {
			t.Errorf("%T %s/%s", o, namespace, object.GetName())
		}
		if !strings.Contains(object.GetName(), "phoenixnap") {
			t.Errorf("%T %s does not name its owner", o, object.GetName())
		}
	}
}

// TestReplicas: the second replica is for clusters with a second control-plane node.
func TestReplicas(t *testing.T) {
	for _, overlay := range overlays(t) {
		want := int32(2)
		if strings.HasSuffix(overlay, "-single") {
			want = 1
		}
		d := controller(t, overlay)
		if *d.Spec.Replicas != want || d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue() != 0 ||
			d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 1 {
			t.Errorf("%s: %d replicas, %v", overlay, *d.Spec.Replicas, d.Spec.Strategy)
		}
	}
}

// TestManagedOverlays: only the overlays that manage VLANs grant the right to do so.
func TestManagedOverlays(t *testing.T) {
	for _, overlay := range withAgents(t) {
		managed := strings.HasSuffix(overlay, "-manage-vlan")
		container := agent(t, overlay).Spec.Template.Spec.Containers[0]
		want := []corev1.Capability{"NET_RAW"}
		if managed {
			want = append(want, "NET_ADMIN")
		}
		if !slices.Equal(container.SecurityContext.Capabilities.Add, want) ||
			slices.Contains(container.Args, "--manage=vlan,return-path") != managed {
			t.Errorf("%s: capabilities %v, arguments %v", overlay, container.SecurityContext.Capabilities.Add,
				container.Args)
		}
		if slices.Contains(controller(t, overlay).Spec.Template.Spec.Containers[0].Args,
			"--manage-membership") != managed {
			t.Errorf("%s: the controller's arguments are %v", overlay,
				controller(t, overlay).Spec.Template.Spec.Containers[0].Args)
		}
	}
}

// TestStamp writes a version into a copy of base and chart.
func TestStamp(t *testing.T) {
	root := t.TempDir()
	base := "deploy/base/kustomization.yaml"
	chart := Chart + "/Chart.yaml"
	for _, file := range []string{base, chart} {
		text, err := os.ReadFile(filepath.Join(sourceTree(t), file))
		must(t, err)
		must(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, file), text, 0o600))
	}
	for _, wrong := range []string{"", "latest", "2.0.0", "v2", "v2.0.0 # x"} {
		if err := Stamp(root, wrong); err == nil {
			t.Errorf("version %q is taken", wrong)
		}
	}
	must(t, Stamp(root, "v3.1.4-rc.1"))
	stamped, err := os.ReadFile(filepath.Join(root, base))
	must(t, err)
	if got := regexp.MustCompile(`newTag: v3\.1\.4-rc\.1\n`).FindAll(stamped, -1); len(got) != 2 {
		t.Errorf("%d images were stamped:\n%s", len(got), stamped)
	}
	stamped, err = os.ReadFile(filepath.Join(root, chart))
	must(t, err)
	if !strings.Contains(string(stamped), "\nversion: 3.1.4-rc.1\nappVersion: v3.1.4-rc.1\n") {
		t.Errorf("the chart is stamped:\n%s", stamped)
	}
}

// TestNodesOnly: an overlay for the Nodes installs nothing that runs on each node, and no policy asks about what anyone
// but the controller writes. What is left of Services is what the controller would need to serve them.
func TestNodesOnly(t *testing.T) {
	for _, overlay := range []string{"kubeadm-nodes", "k3s-nodes"} {
		policies := 0
		for _, o := range objects(t, overlay) {
			object, err := meta.Accessor(o)
			must(t, err)
			if !strings.HasPrefix(object.GetName(), "phoenixnap-c") {
				t.Errorf("%s: %T %s is for more than the Nodes", overlay, o, object.GetName())
			}
			policy, ok := o.(*admissionregistrationv1.ValidatingAdmissionPolicy)
			if ok {
				policies++
			}
			if ok && !strings.HasSuffix(policy.Spec.MatchConditions[0].Expression,
				`.username == "system:serviceaccount:kube-system:phoenixnap-cloud-controller-manager"`) {
				t.Errorf("%s: the policy %s is about what others write", overlay, policy.Name)
			}
		}
		if policies != 4 { // of its ConfigMaps, its fields of Services, its IPBlocks, and its PublicNetwork
			t.Errorf("%s: %d policies confine the controller, want four", overlay, policies)
		}
	}
}
