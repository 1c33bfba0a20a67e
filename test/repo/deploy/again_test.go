package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy/reapply"
)

// shipped is everything that users apply, by where it comes from, but for two: what is for the Prometheus operator is
// in test/repo/monitoring, which has its kinds, and of the template of the Secret kubectl says each time that it is
// configured, for the API server keeps stringData as data.
func shipped(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, path := range []string{"crds", "kube-vip", "kubectl-pnap", "examples"} {
		manifests, err := controlplane.Read(t.Context(), filepath.Join(sourceTree(t), "deploy", path))
		must(t, err)
		for _, m := range manifests {
			texts[path] += "\n---\n" + string(m.Data)
		}
	}
	for _, overlay := range overlays(t) {
		text, err := Render(t.Context(), sourceTree(t), overlay)
		must(t, err)
		texts[overlay] = string(text)
	}
	for _, component := range components(t) {
		dir := t.TempDir()
		texts["component "+component] = string(built(t, dir, fmt.Sprintf(
			"resources: [%[1]s/base]\ncomponents: [%[1]s/components/%[2]s]\n", deployFrom(t, dir), component)))
	}
	for path, c := range valueCases(t) {
		text, err := template(t, c.flags(t, path)...)
		must(t, err)
		texts["chart with "+path] = text
	}
	return texts
}

// components are the names of the directories below deploy/components.
func components(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(sourceTree(t), "deploy", "components"))
	must(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// TestAppliedAgainNothingChanges: whoever applies the manifests again, and whatever compares them with the cluster,
// finds nothing to do.
func TestAppliedAgainNothingChanges(t *testing.T) {
	known := map[string]bool{}
	var all strings.Builder
	for source, text := range shipped(t) {
		for _, object := range documents(t, text) {
			if object.GroupVersionKind().Group == "monitoring.coreos.com" {
				continue
			}
			add(t, &all, known, source, object)
		}
	}
	if len(known) < 120 {
		t.Errorf("only %d different objects", len(known))
	}
	cluster := reapply.NewCluster(t, cp.Config())
	undefine(t, cluster)
	cluster.Check(t, []byte(all.String()))
}

// add writes an object unless it is known. Those of one name that differ get different names: so all are applied at
// once, and each name says where the object comes from. The name of a definition follows from its kind, and stays.
func add(t *testing.T, all *strings.Builder, known map[string]bool, source string, object *unstructured.Unstructured) {
	t.Helper()
	text, err := yaml.Marshal(object.Object)
	must(t, err)
	if known[string(text)] {
		return
	}
	known[string(text)] = true
	if object.GetKind() != "CustomResourceDefinition" {
		object.SetName(fmt.Sprintf("%s-%d", object.GetName(), len(known)))
	}
	text, err = yaml.Marshal(object.Object)
	must(t, err)
	fmt.Fprintf(all, "---\n# %s\n%s", source, text)
	t.Logf("%s %s is of %s", object.GetKind(), object.GetName(), source)
}
