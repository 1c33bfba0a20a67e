package controlplane

import (
	"context"
	"syscall"
)

// port is a TCP port on 127.0.0.1 that was free a moment ago: Windows has no SO_REUSEPORT by which it could be kept
// until a server has it.
type port struct{ number int }

// reservePort has the kernel choose a free port.
func reservePort(ctx context.Context) (*port, error) {
	number, err := freePort(ctx)
	return &port{number: number}, err
}

// release gives the port back. It may be called more than once.
func (p *port) release() error { return nil }

// ownSession has a program start apart from the console's interrupts.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
