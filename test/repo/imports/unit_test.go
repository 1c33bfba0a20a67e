package imports

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// heavy are the packages that start control planes and virtual machines, and build or download programs.
var heavy = []string{
	"/test/env/controlplane", "/test/env/kernel", "/test/env/lab", "/test/env/cluster", "/test/env/tools",
	"/test/repo/build", "/test/repo/development", "/test/repo/mutants", "/test/repo/portability",
}

// TestUnitNeedsGoOnly: what `make unit` runs works on a fresh clone, and prepares nothing.
func TestUnitNeedsGoOnly(t *testing.T) {
	script := dryRun(t, "unit")
	for _, program := range []string{"go run", "prepare"} {
		if strings.Contains(script, program) {
			t.Errorf("make unit runs %q", program)
		}
	}
	chosen := packagesIn(script)
	for _, pure := range []string{
		"/agent/verify/check", "/agent/announce/election", "/controller/loadbalancer/ipblock",
		"/controller/loadbalancer/plan",
		"/controller/loadbalancer/purchase", "/controller/loadbalancer/allocation", "/controller/cloud/network",
		"/pkg/contract",
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
	chosen := packagesIn(dryRun(t, "test-api"))
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

// TestAllTestsRunOnce: the parts of `make test` have every package, and none of them twice.
func TestAllTestsRunOnce(t *testing.T) {
	var got []string
	for line := range strings.Lines(dryRun(t, "test-parts")) {
		if strings.Contains(line, "run-tests") {
			got = append(got, packagesIn(line)...)
		}
	}
	slices.Sort(got)
	want := packagesIn(output(t, "go", "list", "./..."))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("make test runs (-want +got):\n%s", diff)
	}
}

// TestRaceLeavesNoGoroutineOut: `make race` has every package of the product whose code or tests start goroutines, and
// whose code shares memory between them.
func TestRaceLeavesNoGoroutineOut(t *testing.T) {
	raced := packagesIn(dryRun(t, "race"))
	left := 0
	for _, p := range packagesIn(output(t, "go", "list", "./agent/...", "./controller/...", "./pkg/...")) {
		if slices.Contains(raced, p) {
			continue
		}
		left++
		if found := concurrency(t, "../../.."+strings.TrimPrefix(p, module)); found != "" {
			t.Errorf("make race leaves out %s, which has %s", p, found)
		}
	}
	if left == 0 {
		t.Error("make race leaves nothing out; the pattern is out of date")
	}
	if found := concurrency(t, "../../../agent/announce/speaker"); found == "" {
		t.Error("no goroutine was found in agent/announce/speaker; the search is out of date")
	}
}

// concurrency describes the first statement of a package, or import of its code without the tests, that needs the race
// detector.
func concurrency(t *testing.T, dir string) (found string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no code: %v", dir, err)
	}
	positions := token.NewFileSet()
	for _, name := range files {
		file, err := parser.ParseFile(positions, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found = "a goroutine at " + positions.Position(n.Pos()).String()
			case *ast.ImportSpec:
				isTest := strings.HasSuffix(name, "_test.go")
				if !isTest && (n.Path.Value == `"sync"` || n.Path.Value == `"sync/atomic"`) {
					found = "the import " + n.Path.Value
				}
			}
			return found == ""
		})
		if found != "" {
			break
		}
	}
	return found
}

// dryRun is what make would run.
func dryRun(t *testing.T, target string) string {
	t.Helper()
	return output(t, "make", "--no-print-directory", "--dry-run", target)
}

// packagesIn are the packages of this project among the words of a text.
func packagesIn(text string) []string {
	return slices.DeleteFunc(strings.Fields(text), func(word string) bool { return !strings.HasPrefix(word, module) })
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
