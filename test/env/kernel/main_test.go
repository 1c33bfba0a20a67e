//go:build linux

package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
)

// goTest runs go test on the package vlan as a user would.
func goTest(t *testing.T, env []string, args ...string) (output string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-count=1", "./vlan"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	code, failed := exitCode(err)
	if failed != nil {
		t.Fatalf("go test: %v\n%s", failed, out)
	}
	return string(out), code
}

func TestMainRunsTheTestsThatWereAskedFor(t *testing.T) {
	t.Parallel()
	profile := filepath.Join(t.TempDir(), "profile")
	out, code := goTest(t, nil, "-v", "-run=Frames|Files", "-coverprofile="+profile)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	for _, want := range []string{"--- PASS: TestFramesCross", "--- PASS: TestFilesOf"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "TestOnDemand") {
		t.Errorf("a test ran that was not asked for:\n%s", out)
	}
	if data, err := os.ReadFile(profile); err != nil || !strings.HasPrefix(string(data), "mode: ") {
		t.Errorf("coverage profile: %q, %v", data, err)
	}
}

func TestMainHandsFailuresBack(t *testing.T) {
	t.Parallel()
	const reason = "this failure was asked for"
	out, code := goTest(t, []string{"PNAP_TEST_FAILURE=" + reason}, "-run=OnDemand")
	if code != 1 || !strings.Contains(out, "--- FAIL: TestOnDemand") || !strings.Contains(out, reason) {
		t.Errorf("exit code %d, want 1 and the failure:\n%s", code, out)
	}
}

func TestMainRefusesAnUnknownChoice(t *testing.T) {
	t.Parallel()
	out, code := goTest(t, []string{guest.Variable + "=container"}, "-run=OnDemand")
	if code != 1 || !strings.Contains(out, `PNAP_KERNEL="container"`) {
		t.Errorf("exit code %d, want 1 and a sentence that names the variable:\n%s", code, out)
	}
}
