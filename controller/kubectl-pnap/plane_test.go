package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/exec"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
)

var (
	plane  *controlplane.ControlPlane
	update = flag.Bool("update", false, "rewrite the golden files")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(controlplane.Main(m, &plane))
}

// now is the time of the tests: three hours after the account was seeded.
func now() time.Time { return time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC) }

func admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// kubeconfig writes the kubeconfig file of a user.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(path, config, ""); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs the command as a user.
func run(t *testing.T, config *rest.Config, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	command := newCommand(func(name string) (string, bool) { return "C.UTF-8", name == "LC_ALL" }, now)
	command.SetOut(&out)
	command.SetErr(&errOut)
	command.SetArgs(append(args, "--kubeconfig="+kubeconfig(t, config)))
	err = command.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

// golden compares a text with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (go test -update rewrites it):\n%s", path, diff)
	}
}

func TestWrongUsage(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"nodes"}, `kubectl pnap: unknown argument "nodes"`},
		{[]string{"status", "x"}, `unknown argument "x"`},
		{[]string{"status", "-o", "xml"}, `--output "xml": must be text, json or yaml`},
		{[]string{"status", "--frobnicate"}, "unknown flag: --frobnicate"},
		{[]string{"diagnose", "srv-a"}, `unknown argument "srv-a": use node <name> or vip <address>`},
		{[]string{"diagnose", "node"}, "expected the name of one Node, got 0 arguments"},
		{[]string{"diagnose", "vip", "a.b"}, `"a.b" is neither an IPv4 address nor <namespace>/<service>`},
		{[]string{"diagnose", "vip", "2001:db8::1"}, `"2001:db8::1" is neither`},
	} {
		_, _, err := run(t, plane.Config(), tc.args...)
		var text strings.Builder
		if code := exitCode(&text, err); code != exitUsage || !strings.Contains(text.String(), tc.want) {
			t.Errorf("%q: code %d, %q; want code %d, %q", tc.args, code, &text, exitUsage, tc.want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for want, err := range map[int]error{
		0: nil, 1: errProblems, 2: usageError{errors.New("wrong")}, 3: errUnreadable,
		4: exec.CodeExitError{Err: errors.New("ended"), Code: 4},
	} {
		if got := exitCode(io.Discard, err); got != want {
			t.Errorf("%v ends with %d, want %d", err, got, want)
		}
	}
	if got := exitCode(io.Discard, errors.New("no such file")); got != exitUndetermined {
		t.Errorf("an error of the system ends with %d, want %d", got, exitUndetermined)
	}
}
