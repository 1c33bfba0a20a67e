package subprocess

import "syscall"

// dieWithParent has the kernel send sig when the thread that starts the program ends.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }
