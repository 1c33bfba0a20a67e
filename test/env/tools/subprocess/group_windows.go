package subprocess

import (
	"os"
	"syscall"
)

// inOwnGroup has a program start in a process group of its own.
func inOwnGroup(attr *syscall.SysProcAttr) { attr.CreationFlags |= syscall.CREATE_NEW_PROCESS_GROUP }

// interruptGroup ends a process: Windows interrupts only what shares a console.
func interruptGroup(leader *os.Process) error { return leader.Kill() }
