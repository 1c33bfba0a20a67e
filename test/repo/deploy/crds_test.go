package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
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
