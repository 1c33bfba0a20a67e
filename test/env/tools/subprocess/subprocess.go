// Package subprocess starts programs that end when the program that started them ends, however it ends.
package subprocess

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a running program. It sits in a process group of its own, so that an interrupt from the
// terminal reaches only the program that started it, which then stops its servers in the right order.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts cmd. On Linux the kernel sends it SIGKILL as soon as the calling process is gone, be it by
// SIGKILL; cmd.SysProcAttr, where set, is respected except for the process group.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		dieWithParent(cmd.SysProcAttr, syscall.SIGKILL)
	}
	inOwnGroup(cmd.SysProcAttr)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.own(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// own starts the program and waits for it on one operating system thread: the kernel counts the thread
// that forked, not the process, as the parent whose end is reported (prctl(2), PR_SET_PDEATHSIG).
func (p *Process) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end and returns what exec.Cmd.Wait returned.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Stop asks the program to end (SIGTERM), waits at most grace and then kills it by its process ID. It returns
// when the program is gone; the error reports only whether it had to be killed.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		<-p.done
		return nil
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return fmt.Errorf("%s (process %d) did not end within %s of SIGTERM and was killed", p.cmd.Path, p.PID(), grace)
}

// Kill ends the program at once (SIGKILL), and returns when it is gone.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s (process %d): %w", p.cmd.Path, p.PID(), err)
	}
	<-p.done
	return nil
}

// Run starts cmd and waits for it. When the context of cmd ends, the whole process group is interrupted, so
// that a program such as go build takes its compilers with it and removes its temporary files; what is still
// there after ten seconds is killed.
func Run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	dieWithParent(cmd.SysProcAttr, syscall.SIGINT)
	if cmd.Cancel != nil {
		cmd.Cancel = func() error { return interruptGroup(cmd.Process) }
	}
	cmd.WaitDelay = 10 * time.Second
	p, err := Start(cmd)
	if err != nil {
		return err
	}
	return p.Wait()
}
