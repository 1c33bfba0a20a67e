//go:build linux

package space

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
)

func TestMain(m *testing.M) { os.Exit(kernel.Main(m)) }

func open(t *testing.T, name string) *Space {
	t.Helper()
	s, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestHostsAreSeparate(t *testing.T) {
	a := open(t, "host-a")
	b := open(t, "host-b")
	if err := a.Sysctl("ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	for s, want := range map[*Space]string{a: "1", b: "0"} {
		err := s.Do(func() error {
			value, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
			if got := strings.TrimSpace(string(value)); got != want {
				t.Errorf("%s: ip_forward is %s, want %s", s.Name, got, want)
			}
			if name, err := os.Hostname(); err != nil || name != s.Name {
				t.Errorf("host name %q, %v, want %q", name, err, s.Name)
			}
			return errors.Join(err, os.WriteFile("/run/mark", nil, 0o600))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat("/run/mark"); err == nil {
		t.Error("what a host writes to /run appears outside")
	}
}

// The main thread of a Go program never ends, so a space on it would neither end its programs nor go away; and what
// looks for the processes of that space would find this one.
func TestResidentThreadIsNeverTheMainThread(t *testing.T) {
	for range 100 {
		s, err := Open("host-a")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Do(func() error {
			if unix.Gettid() == os.Getpid() {
				return errors.New("the space lives on the main thread")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		ids, err := s.Processes()
		if err != nil || len(ids) != 0 {
			t.Errorf("processes %v, %v, want none", ids, err)
		}
		s.Close()
		if t.Failed() {
			return
		}
	}
}

func TestConnectionsStayInTheHost(t *testing.T) {
	a := open(t, "host-a")
	b := open(t, "host-b")
	l, err := a.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	conn, err := a.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if conn, err := b.Dial(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("from another host: %v, %v, want refused", conn, err)
	}
}

func TestKillReachesChildrenOfChildren(t *testing.T) {
	s := open(t, "host-a")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command("sh", "-c", "(trap '' TERM; echo ready; sleep 600) & wait")
	cmd.Stdout = w
	if err := s.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if _, err := r.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	ids, err := s.Processes()
	if err != nil || len(ids) < 2 || !slices.Contains(ids, cmd.Process.Pid) {
		t.Fatalf("processes %v, %v, want at least the shell %d and its child", ids, err, cmd.Process.Pid)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// The pipe ends when the last process that holds it is gone.
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v, want the end: a child survives", n, err)
	}
}

func TestCloseEndsProgramsAndRefusesMore(t *testing.T) {
	s := open(t, "host-a")
	cmd := exec.Command("sleep", "600")
	if err := s.Start(cmd); err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for s.Do(func() error { return nil }) == nil {
			}
		})
	}
	s.Close()
	callers.Wait()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys() != syscall.WaitStatus(syscall.SIGKILL) {
		t.Errorf("the program ended with %v, want SIGKILL", err)
	}
	if _, err := s.Dial(context.Background(), "tcp", "127.0.0.1:1"); err == nil {
		t.Error("a closed host still connects")
	}
}
