package build

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// TestBuiltProgramsStart builds each program for this machine as a user does, and starts it. Static means that nothing
// of the machine is needed to run it; a version is stamped that the Kubernetes libraries accept.
func TestBuiltProgramsStart(t *testing.T) {
	dist := t.TempDir()
	for name, args := range map[string][]string{
		"phoenixnap-cloud-controller-manager": {"--version"},
		"phoenixnap-agent":                    {"--version"},
		"kubectl-pnap":                        {"--version"},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(dist, name+"-"+runtime.GOOS+"-"+runtime.GOARCH)
			cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "DIST="+dist, program)
			cmd.Dir = "../../.."
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("make: %v\n%s", err, out)
			}
			out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
			if args[0] == "--version" && !strings.Contains(string(out), " v") {
				t.Errorf("its version is %q, want one that begins with v", out)
			}
			if !tools.IsStatic(program) {
				t.Errorf("%s needs shared libraries", name)
			}
			checkAdvisories(t, program)
		})
	}
}

// TestGoBuildGivesAVersion builds each program without the Makefile: nothing stamps a version, and Go records the
// commit or, outside of a repository, nothing.
func TestGoBuildGivesAVersion(t *testing.T) {
	version := regexp.MustCompile(`v0\.0\.0-(devel|[0-9]{14}-[0-9a-f]{12}|g[0-9a-f]{12}|v[0-9])`)
	for _, folder := range []string{"controller", "agent", "controller/kubectl-pnap"} {
		program := filepath.Join(t.TempDir(), "program")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./"+folder)
		cmd.Dir = "../../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build ./%s: %v\n%s", folder, err, out)
		}
		out, err := exec.CommandContext(t.Context(), program, "--version").CombinedOutput()
		if err != nil || !version.Match(out) {
			t.Errorf("%s: %v, version %q", folder, err, out)
		}
		t.Logf("%s: %s", folder, out)
	}
}
