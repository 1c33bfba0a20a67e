//go:build !linux

package subprocess

import "syscall"

// dieWithParent does nothing: only Linux can signal a program that its parent has ended.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
