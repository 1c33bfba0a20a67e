package reference

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestConstants(t *testing.T) {
	root := tree(t, map[string]string{
		"agent/a.go": `package agent
import "x/pkg/names"
// Reasons of the events on a Node.
const (
	// Lost: it is
	// gone.
	Lost Reason = "Lost"
	bare = names.Prefix + "bare"
	number = 7
	computed = len("x")
)
// Lone is one.
const Lone = "one"
`,
		"agent/a_test.go":    "package agent\nconst inTest = \"no\"\n",
		"pkg/names/names.go": "package names\nconst Prefix = domain + \"/\"\nconst domain = \"phoenixnap.com\"\n",
	})
	got, err := Constants(root, "agent", "pkg")
	if err != nil {
		t.Fatal(err)
	}
	want := []Constant{
		{Package: "agent", Name: "Lost", Value: "Lost", Type: "Reason", Comment: "it is gone.",
			Block: "Reasons of the events on a Node."},
		{Package: "agent", Name: "bare", Value: "phoenixnap.com/bare", Block: "Reasons of the events on a Node."},
		{Package: "agent", Name: "Lone", Value: "one", Comment: "is one.", Block: "Lone is one.", Single: true},
		{Package: "pkg/names", Name: "Prefix", Value: "phoenixnap.com/", Single: true},
		{Package: "pkg/names", Name: "domain", Value: "phoenixnap.com", Single: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("constants (-want +got):\n%s", diff)
	}
}
