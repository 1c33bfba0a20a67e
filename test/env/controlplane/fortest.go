package controlplane

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// startLimit bounds the start of a control plane in a test, a first build of the programs included.
const startLimit = 9 * time.Minute

// ForTest starts a control plane for one test and stops it with the test. Its logs go to the test's artifact
// directory (go test -artifacts keeps them). Prefer Main, which needs one for all tests of a package.
func ForTest(t testing.TB) *ControlPlane {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	cp, err := Start(ctx, Options{LogDir: t.ArtifactDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// Main runs the tests of a package around one control plane, which it puts into *cp, and returns the exit code:
//
//	var cp *controlplane.ControlPlane
//
//	func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &cp)) }
func Main(m *testing.M, cp **ControlPlane) int {
	//nolint:forbidigo // this is the main function of a test program
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	started, err := Start(ctx, Options{})
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*cp = started
	code := m.Run()
	if err := started.Stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "stop the control plane:", err)
		return max(code, 1)
	}
	return code
}
