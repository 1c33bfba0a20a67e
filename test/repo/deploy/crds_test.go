package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
)

// TestDefinitionsAreThoseOfTheTypes: make crds would change nothing.
func TestDefinitionsAreThoseOfTheTypes(t *testing.T) {
	root := sourceTree(t)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", root, "crds", "CRDS="+filepath.Join(dir, "crds"),
		"COPIES="+filepath.Join(dir, "api"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for generated, committed := range map[string]string{"crds": "deploy/crds", "api": "pkg/api/v1beta1"} {
		entries, err := os.ReadDir(filepath.Join(dir, generated))
		must(t, err)
		if len(entries) == 0 {
			t.Errorf("nothing was generated for %s", committed)
		}
		for _, entry := range entries {
			want, err := os.ReadFile(filepath.Join(dir, generated, entry.Name()))
			must(t, err)
			have, err := os.ReadFile(filepath.Join(root, committed, entry.Name()))
			must(t, err)
			if diff := cmp.Diff(string(want), string(have)); diff != "" {
				t.Errorf("%s/%s is not what make crds generates (-generated +committed):\n%s", committed, entry.Name(),
					diff)
			}
		}
	}
}

// TestDefinitionsAreAppliedByKustomize: kubectl apply -k deploy/crds applies what the chart has.
func TestDefinitionsAreAppliedByKustomize(t *testing.T) {
	manifests, err := controlplane.Read(t.Context(), filepath.Join(sourceTree(t), "deploy", "crds"))
	must(t, err)
	if diff := cmp.Diff(documents(t, withDefinitions(t, nil)), documents(t, string(manifests[0].Data))); diff != "" {
		t.Errorf("deploy/crds differs from %s (-file +kustomize):\n%s", Definitions, diff)
	}
	must(t, cp.Apply(t.Context(), manifests...))
}

// TestDefinitionsAreKept: an object goes with its definition, and a block that is paid for would not be known any more.
// So the definition is in no overlay, Helm leaves it when the chart goes, and no GitOps tool prunes it.
func TestDefinitionsAreKept(t *testing.T) {
	text, err := template(t)
	must(t, err)
	found := 0
	for _, o := range documents(t, text) {
		guards := strings.HasPrefix(o.GetName(), "phoenixnap-definitions") ||
			strings.HasPrefix(o.GetName(), "phoenixnap-ipblocks") ||
			strings.HasPrefix(o.GetName(), "phoenixnap-publicnetworks")
		if o.GetKind() != "CustomResourceDefinition" && !guards {
			continue
		}
		found++
		for name, want := range map[string]string{"helm.sh/resource-policy": "keep",
			"argocd.argoproj.io/sync-options": "Prune=false", "kustomize.toolkit.fluxcd.io/prune": "disabled"} {
			if got := o.GetAnnotations()[name]; got != want {
				t.Errorf("%s has the annotation %s: %q, want %q", o.GetName(), name, got, want)
			}
		}
	}
	if found != 8 {
		t.Errorf("the chart has %d definitions and parts of policies for them, want 8", found)
	}
	for _, overlay := range overlays(t) {
		rendered, err := os.ReadFile(Rendered(sourceTree(t), overlay))
		must(t, err)
		if slices.Contains(strings.Split(string(rendered), "\n"), "kind: CustomResourceDefinition") {
			t.Errorf("%s has a definition", overlay)
		}
	}
}
