//go:build unix

package controlplane

import "syscall"

// ownSession has a program start in a session of its own (setsid(2)).
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
