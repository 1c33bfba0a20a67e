package imports

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// heavy are the packages that start control planes and virtual machines, and build or download programs.
var heavy = []string{
	"/test/env/controlplane", "/test/env/kernel", "/test/env/lab", "/test/env/cluster", "/test/env/tools",
	"/test/repo/build", "/test/repo/development", "/test/repo/mutants", "/test/repo/portability",
}

// TestUnitNeedsGoOnly: what `make unit` runs works on a fresh clone, and prepares nothing.
func TestUnitNeedsGoOnly(t *testing.T) {
	script := output(t, "make", "--no-print-directory", "--dry-run", "unit")
	for _, program := range []string{"go run", "prepare"} {
		if strings.Contains(script, program) {
			t.Errorf("make unit runs %q", program)
		}
	}
	isOption := func(word string) bool { return !strings.HasPrefix(word, module+"/") }
	chosen := slices.DeleteFunc(strings.Fields(script), isOption)
	for _, pure := range []string{
		"/agent/verify/check", "/agent/announce/election", "/controller/loadbalancer/plan",
		"/controller/loadbalancer/purchase", "/controller/loadbalancer/allocation", "/pkg/contract",
	} {
		if !slices.Contains(chosen, module+pure) {
			t.Errorf("make unit leaves out %s", pure)
		}
	}
	dependencies := output(t, "go", slices.Concat([]string{"list", "-test", "-deps"}, chosen)...)
	for _, dependency := range strings.Fields(dependencies) {
		if matchesAny(dependency, heavy) {
			t.Errorf("a test of make unit depends on %s", dependency)
		}
	}
}

// TestAPINeedsNoKernel: what `make test-api` runs starts a control plane, and neither a virtual machine nor the lab.
func TestAPINeedsNoKernel(t *testing.T) {
	script := output(t, "make", "--no-print-directory", "--dry-run", "test-api")
	isOption := func(word string) bool { return !strings.HasPrefix(word, module+"/") }
	chosen := slices.DeleteFunc(strings.Fields(script), isOption)
	for _, wanted := range []string{
		"/controller", "/controller/loadbalancer/service", "/test/scenario/admission", "/test/scenario/privilege",
	} {
		if !slices.Contains(chosen, module+wanted) {
			t.Errorf("make test-api leaves out %s", wanted)
		}
	}
	listing := output(t, "go", slices.Concat([]string{"list", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`},
		chosen)...)
	for line := range strings.Lines(listing) {
		dependencies := strings.Fields(line)
		if !strings.HasSuffix(dependencies[0], ".test") {
			continue
		}
		if !slices.Contains(dependencies, module+"/test/env/controlplane") {
			t.Errorf("%s starts no control plane", dependencies[0])
		}
		for _, kernel := range []string{"/test/env/kernel", "/test/env/lab", "/test/env/cluster"} {
			if slices.Contains(dependencies, module+kernel) {
				t.Errorf("%s depends on %s", dependencies[0], kernel)
			}
		}
	}
}

func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = "../../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, stderr.String())
	}
	return string(out)
}
