package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// promtool runs the program of that name; it ends the test when promtool finds a fault.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := tools.Binary(t.Context(), "promtool")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("promtool %q: %v\n%s", args, err, out)
	}
}

// write writes an object as YAML into a file of the test.
func write(t *testing.T, name string, object any) string {
	t.Helper()
	raw, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
