package controlplane

import "syscall"

// ownSession has a program start apart from the console's interrupts.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
