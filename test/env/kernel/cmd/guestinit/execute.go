//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
)

// orphanAllowance is how long output is still read when the command has ended and a process that it left behind
// holds the pipe open.
const orphanAllowance = 5 * time.Second

// execute runs the command, sends its output to the host and returns its exit code.
func execute(spec guest.Spec, port *os.File) (int, error) {
	if err := os.MkdirAll(spec.Dir, 0o755); err != nil {
		return 0, fmt.Errorf("make the working directory: %w", err)
	}
	if err := awaitStart(port); err != nil {
		return 0, fmt.Errorf("report to the host that the machine has booted: %w", err)
	}
	link := &link{port: port}
	stdout, err := link.pipe(guest.Stdout)
	if err != nil {
		return 0, err
	}
	stderr, err := link.pipe(guest.Stderr)
	if err != nil {
		return 0, err
	}
	pid, err := start(spec.Command, spec.Dir, spec.Env, stdout, stderr)
	if err := errors.Join(err, stdout.Close(), stderr.Close()); err != nil {
		return 0, err
	}
	code, err := reap(pid)
	return code, errors.Join(err, link.drain())
}

// awaitStart reports that the machine has booted and waits until the host wants the command to run.
func awaitStart(port *os.File) error {
	if err := guest.WriteFrame(port, guest.Booted, []byte(uptime().String())); err != nil {
		return err
	}
	_, err := io.ReadFull(port, make([]byte, 1))
	return err
}

// link sends what is written to pipes as frames through one port.
type link struct {
	mu    sync.Mutex
	port  *os.File
	err   error
	pipes []*os.File
	done  sync.WaitGroup
}

// pipe returns the end to write to; what is written there is sent as frames of a stream.
func (l *link) pipe(s guest.Stream) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for output: %w", err)
	}
	l.pipes = append(l.pipes, r)
	l.done.Go(func() { l.copy(s, r) })
	return w, nil
}

// copy sends until all writers have closed the pipe or its time is over.
func (l *link) copy(s guest.Stream, r *os.File) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			l.send(s, buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

func (l *link) send(s guest.Stream, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errors.Join(l.err, guest.WriteFrame(l.port, s, data))
}

// drain waits until everything is sent.
func (l *link) drain() error {
	deadline := time.Now().Add(orphanAllowance)
	for _, r := range l.pipes {
		if err := r.SetReadDeadline(deadline); err != nil {
			return fmt.Errorf("read the rest of the output: %w", err)
		}
	}
	l.done.Wait()
	return l.err
}

// command runs a program of the system itself; its output goes to the console.
func command(path string, args ...string) error {
	argv := append([]string{path}, args...)
	pid, err := start(argv, "/", nil, os.Stderr, os.Stderr)
	if err != nil {
		return err
	}
	code, err := reap(pid)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return nil
}

// path is where programs are looked for; what the host sent stands before busybox.
const path = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// start starts a program that is waited for by reap, not by os/exec: the first process of a system inherits
// every orphan, and the two would take each other's children.
func start(argv []string, dir string, env []string, stdout, stderr *os.File) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", argv[0], err)
	}
	defer null.Close()
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", argv[0], err)
	}
	base := []string{"PATH=" + path, "HOME=/root", "TMPDIR=/tmp", guest.Variable + "=" + guest.Inside}
	p, err := os.StartProcess(program, argv, &os.ProcAttr{
		Dir: dir, Env: append(base, env...), Files: []*os.File{null, stdout, stderr},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", argv[0], err)
	}
	defer func() { _ = p.Release() }()
	return p.Pid, nil
}

// reap collects every process that ends until pid does, and returns that one's exit code.
func reap(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for process %d: %w", pid, err)
		case ended == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case ended == pid && status.Exited():
			return status.ExitStatus(), nil
		}
	}
}
