//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/machine"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// binary is where the test binary stands in the machine.
const binary = "/test/package.test"

// runInMachine runs the tests of the package in the working directory in the virtual machine, in the same directory and
// with the same flags.
func runInMachine(ctx context.Context, o options) (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("find the package to test: %w", err)
	}
	flags, err := translate(os.Args[1:])
	if err != nil {
		return 0, err
	}
	temp, err := os.MkdirTemp("", "pnap-test-")
	if err != nil {
		return 0, fmt.Errorf("compile the tests: %w", err)
	}
	defer os.RemoveAll(temp) //nolint:errcheck // the temporary directory belongs to the system from here on
	compiled, err := staticBinary(ctx, temp)
	if err != nil {
		return 0, err
	}
	o.files[binary] = compiled
	if err := addPackage(o.files, dir); err != nil {
		return 0, err
	}
	result, err := machine.Run(ctx, machine.Config{
		Command: append([]string{binary}, flags.guest...), Dir: dir, Env: passed(os.Environ()),
		Files: o.files, Programs: o.programs, TimeLimit: flags.limit(),
		Fetch: slices.Collect(maps.Keys(flags.outputs)), Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return 0, err
	}
	return result.ExitCode, flags.store(result.Files)
}

// staticBinary is this test binary where it was built without cgo, as make test does; else it is built again in a
// directory, because the machine has no C library.
func staticBinary(ctx context.Context, dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this test binary: %w", err)
	}
	if tools.IsStatic(self) {
		return self, nil
	}
	compiled := filepath.Join(dir, "package.test")
	return compiled, compile(ctx, compiled)
}

// compile builds the tests of the package in the working directory without cgo.
func compile(ctx context.Context, out string) error {
	// Debugging information is a third of the binary, and nothing reads it.
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", out}
	if mode := testing.CoverMode(); mode != "" {
		args = append(args, "-cover", "-covermode="+mode)
	}
	if tags := buildTags(); tags != "" {
		args = append(args, "-tags="+tags)
	}
	var output strings.Builder
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout = &output
	cmd.Stderr = &output
	if err := subprocess.Run(cmd); err != nil {
		return fmt.Errorf("compile the tests with go test -c: %w\n%s", err, output.String())
	}
	return nil
}

// buildTags are those that this binary was built with.
func buildTags() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			return s.Value
		}
	}
	return ""
}

// addPackage adds what tests may read from their own directory: its files and testdata, not the packages below.
func addPackage(files map[string]string, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list the files of the package: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() || e.Name() == "testdata" {
			p := filepath.Join(dir, e.Name())
			files[p] = p
		}
	}
	return nil
}

// passed selects the variables that tests may depend on. Those that name what the machine does not have stay behind.
func passed(environment []string) []string {
	var env []string
	for _, e := range environment {
		name, _, _ := strings.Cut(e, "=")
		if name == Variable || name == tools.RunVariable {
			continue
		}
		if strings.HasPrefix(name, "PNAP_") || name == "TZ" || name == "GODEBUG" || name == "CI" {
			env = append(env, e)
		}
	}
	return env
}

// bootAllowance is what starting and stopping the machine may take beyond the tests' own time limit, on a busy
// computer.
const bootAllowance = 2 * time.Minute

// withoutLimit ends the machine when the tests have no time limit (-timeout=0).
const withoutLimit = 2 * time.Hour

var errFuzz = errors.New("fuzzing does not work in the virtual machine: run go test without -fuzz, or on a kernel " +
	"with 802.1Q")
