//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// port is a TCP port on 127.0.0.1 that no other program is given while a server of ours starts on
// it: a socket of ours is bound to it with SO_REUSEPORT, but does not listen, so that every connection goes to
// the server, which sets the same option (socket(7)).
type port struct {
	number int
	socket int
}

// reservePort has the kernel choose a free port.
func reservePort(context.Context) (*port, error) {
	// Between socket and CloseOnExec no child may be forked, or it would hold the port for its lifetime.
	syscall.ForkLock.RLock()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("reserve a port on 127.0.0.1: %w", err)
	}
	p := &port{socket: socket}
	if err := p.bind(); err != nil {
		return nil, errors.Join(fmt.Errorf("reserve a port on 127.0.0.1: %w", err), p.release())
	}
	return p, nil
}

func (p *port) bind() error {
	if err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	if err := unix.Bind(p.socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	address, err := unix.Getsockname(p.socket)
	if err != nil {
		return err
	}
	v4, isV4 := address.(*unix.SockaddrInet4)
	if !isV4 {
		return fmt.Errorf("the kernel bound %T, want an IPv4 address", address)
	}
	p.number = v4.Port
	return nil
}

// release gives the port back. It may be called more than once.
func (p *port) release() error {
	if p.socket < 0 {
		return nil
	}
	err := unix.Close(p.socket)
	p.socket = -1
	return err
}

// ownSession has a program start in a session of its own (setsid(2)).
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
