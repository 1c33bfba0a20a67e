//go:build linux

package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// supervisor starts long-lived programs and watches them end.
type supervisor struct {
	logs string

	mu      sync.Mutex
	next    int
	running map[int]*entry
}

type entry struct {
	wire.Process
	cmd   *exec.Cmd
	ended chan struct{}
}

// newSupervisor keeps logs in a directory, one file for each name of a program.
func newSupervisor(logs string) *supervisor {
	return &supervisor{logs: logs, running: map[int]*entry{}}
}

// Start starts a program on a host; its output is appended to the log of its name.
func (s *supervisor) Start(h *space.Space, p wire.Program) (int, error) {
	path, err := s.logPath(p.Name)
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("start %s on %s: %w", p.Name, h.Name, err)
	}
	defer log.Close()
	cmd, err := command(h, p)
	if err != nil {
		return 0, err
	}
	cmd.Stdout = log
	cmd.Stderr = log
	if err := h.Start(cmd); err != nil {
		return 0, fmt.Errorf("start %s on %s: %w", p.Name, h.Name, err)
	}
	return s.adopt(h, p, cmd), nil
}

// adopt registers a started program and waits for its end.
func (s *supervisor) adopt(h *space.Space, p wire.Program, cmd *exec.Cmd) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	e := &entry{cmd: cmd, ended: make(chan struct{}), Process: wire.Process{
		ID: s.next, Name: p.Name, Host: h.Name, Args: p.Args, PID: cmd.Process.Pid,
	}}
	s.running[e.ID] = e
	go func() {
		err := cmd.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		e.Exited = true
		e.Code = exitCode(cmd, err)
		close(e.ended)
	}()
	return e.ID
}

// Signal sends a signal to a program of StartProcess. That it has ended already is not an error.
func (s *supervisor) Signal(signal wire.Signal, _ *wire.Nothing) error {
	e, err := s.find(signal.ID)
	if err != nil {
		return err
	}
	if err := e.cmd.Process.Signal(syscall.Signal(signal.Number)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send signal %d to %s on %s: %w", signal.Number, e.Name, e.Host, err)
	}
	return nil
}

// await waits until a program has ended, the time is over or the context ends, and returns its state.
func (s *supervisor) await(ctx context.Context, id int, timeout time.Duration) (wire.Process, error) {
	e, err := s.find(id)
	if err != nil {
		return wire.Process{}, err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-e.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.Process, nil
}

// Processes lists the programs of a host, or of all hosts when the name is empty, in the order of their start.
func (s *supervisor) Processes(host string, reply *[]wire.Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.running)) {
		if e := s.running[id]; host == "" || e.Host == host {
			*reply = append(*reply, e.Process)
		}
	}
	return nil
}

// Log returns what the programs of a name have written.
func (s *supervisor) Log(name string, reply *[]byte) error {
	path, err := s.logPath(name)
	if err != nil {
		return err
	}
	if *reply, err = os.ReadFile(path); err != nil {
		return fmt.Errorf("log of %s: %w", name, err)
	}
	return nil
}

func (s *supervisor) logPath(name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") {
		return "", fmt.Errorf("program name %q cannot name a log file: use letters, digits and dashes", name)
	}
	return filepath.Join(s.logs, name+".log"), nil
}

func (s *supervisor) find(id int) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.running[id]; ok {
		return e, nil
	}
	return nil, fmt.Errorf("no process with the ID %d was started", id)
}

// runProgram runs a program on a host to its end and returns its output. When the context ends it is killed with all
// that it has started.
func runProgram(ctx context.Context, h *space.Space, p wire.Program) (wire.Output, error) {
	cmd, err := command(h, p)
	if err != nil {
		return wire.Output{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin = bytes.NewReader(p.Stdin)
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	cmd.WaitDelay = 2 * time.Second // for output that a surviving grandchild holds open
	if err := h.Start(cmd); err != nil {
		return wire.Output{}, fmt.Errorf("run %s on %s: %w", p.Args[0], h.Name, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err = cmd.Wait()
	stop()
	if ctx.Err() != nil {
		return wire.Output{}, fmt.Errorf("run %s on %s: %w (output so far: %s%s)", p.Args[0], h.Name,
			context.Cause(ctx), &stdout, &stderr)
	}
	return wire.Output{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Code: exitCode(cmd, err)}, nil
}

// command prepares a program; the name is looked up by the daemon's own PATH.
func command(h *space.Space, p wire.Program) (*exec.Cmd, error) {
	if len(p.Args) == 0 {
		return nil, fmt.Errorf("run on %s: no program given", h.Name)
	}
	path, err := exec.LookPath(p.Args[0])
	if err != nil {
		return nil, fmt.Errorf("run on %s: %w", h.Name, err)
	}
	return &exec.Cmd{Path: path, Args: p.Args, Env: append(h.Environment(), p.Env...), Dir: "/run/home"}, nil
}

// exitCode is as a shell gives it.
func exitCode(cmd *exec.Cmd, err error) int {
	if cmd.ProcessState == nil {
		return -1
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	if err == nil {
		return 0
	}
	return cmd.ProcessState.ExitCode()
}
