//go:build linux

package subprocess

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary play the parent that dies: with SUBPROCESS_PARENT set it starts a sleeper,
// prints its process ID and hangs until it is killed.
func TestMain(m *testing.M) {
	if os.Getenv("SUBPROCESS_PARENT") == "" {
		os.Exit(m.Run())
	}
	p, err := Start(exec.Command("sleep", "600"))
	if err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(p.PID()) + "\n")
	_ = p.Wait()
	os.Exit(2)
}

func TestChildDiesWithItsKilledParent(t *testing.T) {
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), "SUBPROCESS_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("read the child's process ID: %v", err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(child) {
		t.Fatalf("child %d is not running while its parent lives", child)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	waitGone(t, child)
}

func TestStop(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		killed bool
	}{
		"ends on SIGTERM":  {script: "echo ready; exec sleep 600"},
		"ignores SIGTERM":  {script: "trap '' TERM; echo ready; while :; do sleep 0.1; done", killed: true},
		"has ended before": {script: "echo ready"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startReady(t, tc.script)
			err := p.Stop(300 * time.Millisecond)
			if (err != nil) != tc.killed {
				t.Errorf("Stop() = %v, want an error: %v", err, tc.killed)
			}
			if alive(p.PID()) {
				t.Errorf("process %d still runs after Stop", p.PID())
			}
		})
	}
}

func TestRunInterruptsTheWholeGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The shell waits for its child, as go build waits for a compiler.
	cmd := exec.CommandContext(ctx, "sh", "-c", `sh -c 'echo $$; exec sleep 600'; true`)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	cmd.Stdout = w
	ended := make(chan error, 1)
	go func() { ended <- Run(cmd) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	grandchild, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("Run() = nil after its context ended, want an error")
	}
	_ = w.Close()
	waitGone(t, grandchild)
}

func TestStartNamesTheProgram(t *testing.T) {
	_, err := Start(exec.Command("/nonexistent/program"))
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/program") {
		t.Errorf("Start() = %v, want an error that names the program", err)
	}
}

// startReady starts a shell script and returns when it has printed its first line.
func startReady(t *testing.T, script string) *Process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout = w
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(0) })
	_ = w.Close()
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return p
}

// alive reports whether a process runs; one that has ended and only waits to be collected does not.
func alive(pid int) bool {
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z")
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// waitGone waits for a process that is not our child, whose end is not reported to us.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for alive(pid) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d outlives its killed parent", pid)
		}
	}
}
