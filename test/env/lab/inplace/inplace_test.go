//go:build linux

// Package inplace proves that a lab in namespaces of the running kernel does what one in a virtual machine does. Where
// the running kernel has no 802.1Q, that of a virtual machine is the running one.
package inplace

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the daemon first: where the tests run there may be no Go.
func run(m *testing.M) int {
	options := []kernel.Option{kernel.Programs("ip")}
	if os.Getenv(kernel.Variable) != guest.Inside {
		daemon, err := tools.Product(context.Background(), "./test/env/lab/cmd/labd")
		if err != nil {
			fmt.Fprintln(os.Stderr, "FAIL:", err)
			return 1
		}
		if err := os.Setenv(lab.DaemonVariable, daemon); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL:", err)
			return 1
		}
		options = append(options, kernel.File(daemon))
	}
	return kernel.Main(m, options...)
}

func TestLabInPlace(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "the caller's service")
	}))
	defer service.Close()
	address, err := url.Parse(service.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(address.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	handed := filepath.Join(t.TempDir(), "handed")
	if err := os.WriteFile(handed, []byte("handed over"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	l, err := lab.Start(t.Context(), lab.Config{
		Servers: []lab.Server{
			{Name: "srv-a", ID: "a", Private: netip.MustParsePrefix("10.0.0.11/24"),
				Pods: netip.MustParsePrefix("10.244.1.0/24")},
			{Name: "srv-b", ID: "b", Private: netip.MustParsePrefix("10.0.0.12/24"),
				Pods: netip.MustParsePrefix("10.244.2.0/24")},
		},
		HostPorts: []uint16{uint16(port)}, Files: map[string]string{"sub/handed": handed}, Log: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	if l.InMachine {
		t.Error("the lab is in a virtual machine, want it in place")
	}
	for _, tc := range []struct {
		what, host, want string
		args             []string
	}{
		{"the private network", "srv-a", "", []string{"ping", "-q", "-c", "1", "10.0.0.12"}},
		{"the caller's service", "srv-b", "the caller's service",
			[]string{"wget", "-q", "-O", "-", "http://10.0.0.1:" + address.Port()}},
		{"the file that was handed over", lab.PodOf("srv-a"), "handed over", []string{"cat", lab.Path("sub/handed")}},
	} {
		out, err := l.Exec(t.Context(), tc.host, append([]string{"busybox"}, tc.args...)...)
		if err != nil {
			t.Fatal(err)
		}
		if out.Code != 0 || tc.want != "" && string(out.Stdout) != tc.want {
			t.Errorf("%s: exit code %d, %q %q", tc.what, out.Code, out.Stdout, out.Stderr)
		}
	}
	stopAndLookAround(t, l, dir)
}

// stopAndLookAround expects that the daemon takes a program with it that does not want to end.
func stopAndLookAround(t *testing.T, l *lab.Lab, dir string) {
	t.Helper()
	const mark = "4711.25" // seconds; recognisable in a list of processes
	if _, err := l.StartProcess(t.Context(), lab.Program{Host: "srv-a", Name: "stubborn",
		Args: []string{"sh", "-c", "trap '' TERM; sleep " + mark}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if data, err := os.ReadFile(line); err == nil &&
			filepath.Base(filepath.Dir(line)) != strconv.Itoa(os.Getpid()) &&
			string(data) == "sleep\x00"+mark+"\x00" {
			t.Errorf("%s is left", line)
		}
	}
}
