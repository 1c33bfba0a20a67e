//go:build unix

package subprocess

import (
	"os"
	"syscall"
)

// inOwnGroup has a program start in a process group of its own.
func inOwnGroup(attr *syscall.SysProcAttr) { attr.Setpgid = true }

// interruptGroup interrupts a process and those that it started.
func interruptGroup(leader *os.Process) error { return syscall.Kill(-leader.Pid, syscall.SIGINT) }
