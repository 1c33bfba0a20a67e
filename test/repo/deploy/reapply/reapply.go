// Package reapply applies a manifest again, in every way that clients have, and expects that nothing changes.
//
// The API server fills in the fields that an object leaves out. Where a list is replaced as a whole, a client that
// finds them missing in the manifest takes that for a difference, each time it looks.
package reapply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// Cluster is an API server with kubectl.
type Cluster struct {
	kubectl, home string
	env           []string
}

// NewCluster returns the API server of config.
func NewCluster(t *testing.T, config *rest.Config) *Cluster {
	t.Helper()
	kubectl, err := tools.Binary(t.Context(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{kubectl: kubectl, home: t.TempDir()}
	kubeconfig := filepath.Join(c.home, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config, ""); err != nil {
		t.Fatal(err)
	}
	c.env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+c.home)
	return c
}

// Run runs kubectl and returns its output, warnings included.
func (c *Cluster) Run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.kubectl, args...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Must runs kubectl, which has to succeed.
func (c *Cluster) Must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.Run(t, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Check applies the objects of a manifest, which the cluster does not have yet, as users and GitOps tools do, and
// deletes them.
func (c *Cluster) Check(t *testing.T, manifest []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	c.client(t, file)
	c.fromClientToServer(t, file)
	c.Must(t, "delete", "-f", file)
	c.server(t, file)
	c.Must(t, "delete", "-f", file)
}

// client applies on the client's side, as users do without a flag, and Argo CD.
func (c *Cluster) client(t *testing.T, file string) {
	t.Helper()
	c.Must(t, "apply", "-f", file)
	applied := c.live(t, file)
	Unchanged(t, c.Must(t, "apply", "-f", file))
	c.noDifference(t, file)
	sameVersions(t, "applied again", applied, c.live(t, file))
	for name, live := range applied {
		if diff := cmp.Diff(live.Object, predicted(t, live).Object); diff != "" {
			t.Errorf("Argo CD would show %s as out of sync (-live +expected):\n%s", name, diff)
		}
	}
}

// Unchanged expects that kubectl apply prints of every object that it is unchanged. Of a PodDisruptionBudget kubectl
// always says that it is configured: the selector of its type is replaced as a whole, and so is part of every patch.
func Unchanged(t *testing.T, printed string) {
	t.Helper()
	for line := range strings.Lines(printed) {
		if !strings.HasSuffix(line, " unchanged\n") && !strings.HasPrefix(line, "poddisruptionbudget.policy/") {
			t.Errorf("applied again: %s", line)
		}
	}
}

// fromClientToServer changes to server-side apply, of kubectl and of Flux.
func (c *Cluster) fromClientToServer(t *testing.T, file string) {
	t.Helper()
	before := c.live(t, file)
	c.Must(t, "apply", "--server-side", "-f", file)
	after := c.live(t, file)
	SameContents(t, "after the change to server-side apply", before, after)
	c.Must(t, "apply", "--server-side", "-f", file)
	sameVersions(t, "applied again on the server's side", after, c.live(t, file))
	c.noDrift(t, file)
}

// SameContents expects that no object was replaced, and that none has other contents. Metadata may differ: a change
// of an annotation gives a Deployment another generation, and replaces no pod.
func SameContents(t *testing.T, when string, before, after map[string]*unstructured.Unstructured) {
	t.Helper()
	contents := func(objects map[string]*unstructured.Unstructured) map[string]map[string]any {
		all := map[string]map[string]any{}
		for name, object := range objects {
			copied := object.DeepCopy().Object
			copied["metadata"] = object.GetUID()
			delete(copied, "status")
			all[name] = copied
		}
		return all
	}
	if diff := cmp.Diff(contents(before), contents(after)); diff != "" {
		t.Errorf("%s (-before +after):\n%s", when, diff)
	}
}

// server applies on the server's side only.
func (c *Cluster) server(t *testing.T, file string) {
	t.Helper()
	apply := []string{"apply", "--server-side", "--field-manager=gitops", "-f", file}
	c.Must(t, apply...)
	applied := c.live(t, file)
	c.Must(t, apply...)
	sameVersions(t, "applied again by another manager", applied, c.live(t, file))
	c.noDifference(t, file, "--server-side", "--field-manager=gitops")
	c.noDrift(t, file)
}

// noDifference expects that kubectl diff shows nothing.
func (c *Cluster) noDifference(t *testing.T, file string, flags ...string) {
	t.Helper()
	if out, err := c.Run(t, slices.Concat([]string{"diff", "-f", file}, flags)...); err != nil || out != "" {
		t.Errorf("kubectl diff %s: %v\n%s", strings.Join(flags, " "), err, out)
	}
}

// noDrift compares as Flux does: what a dry run on the server would make with what is there.
func (c *Cluster) noDrift(t *testing.T, file string) {
	t.Helper()
	dry := parse(t, c.Must(t, "apply", "--server-side", "--field-manager=kustomize-controller", "--dry-run=server",
		"-o", "json", "-f", file))
	for name, live := range c.live(t, file) {
		if diff := cmp.Diff(withoutBookkeeping(live), withoutBookkeeping(dry[name])); diff != "" {
			t.Errorf("Flux would apply %s again (-live +dry run):\n%s", name, diff)
		}
	}
}

// withoutBookkeeping removes what says who wrote an object, and when.
func withoutBookkeeping(object *unstructured.Unstructured) map[string]any {
	if object == nil {
		return nil
	}
	object = object.DeepCopy()
	object.SetManagedFields(nil)
	object.SetResourceVersion("")
	return object.Object
}

// live returns the objects of a file.
func (c *Cluster) live(t *testing.T, file string) map[string]*unstructured.Unstructured {
	t.Helper()
	return c.Live(t, "-f", file)
}

// Live returns objects by kind, namespace and name. The flags say which, as kubectl get has them.
func (c *Cluster) Live(t *testing.T, flags ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	return parse(t, c.Must(t, slices.Concat([]string{"get", "--show-managed-fields", "-o", "json"}, flags)...))
}

// parse reads what kubectl prints with -o json.
func parse(t *testing.T, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	objects := map[string]*unstructured.Unstructured{}
	for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			t.Fatalf("kubectl prints no JSON: %v\n%s", err, text)
		}
		for _, object := range unpacked(t, raw) {
			objects[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object
		}
	}
	if len(objects) == 0 {
		t.Fatalf("no object in\n%s", text)
	}
	return objects
}

// unpacked are the objects of a list, or the one object.
func unpacked(t *testing.T, raw []byte) []*unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(bytes.TrimSpace(raw)); err != nil {
		t.Fatal(err)
	}
	if !object.IsList() {
		return []*unstructured.Unstructured{object}
	}
	list, err := object.ToList()
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

// sameVersions expects that no object was written.
func sameVersions(t *testing.T, when string, before, after map[string]*unstructured.Unstructured) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		version := func(o *unstructured.Unstructured) string {
			return fmt.Sprintf("resourceVersion %s, generation %d", o.GetResourceVersion(), o.GetGeneration())
		}
		if was, is := version(before[name]), version(after[name]); was != is {
			t.Errorf("%s, %s has %s, before %s:\n%s", when, name, is, was,
				cmp.Diff(before[name].Object, after[name].Object))
		}
	}
}
