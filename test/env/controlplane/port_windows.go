package controlplane

import (
	"errors"
	"fmt"
	"net"
)

// port is a TCP port on 127.0.0.1 that was free a moment ago: Windows has no SO_REUSEPORT by which it could be kept
// until a server has it.
type port struct{ number int }

// reservePort has the kernel choose a free port.
func reservePort() (*port, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("reserve a port on 127.0.0.1: %w", err)
	}
	address, isTCP := listener.Addr().(*net.TCPAddr)
	if !isTCP {
		return nil, errors.Join(fmt.Errorf("reserve a port on 127.0.0.1: the kernel bound %v", listener.Addr()),
			listener.Close())
	}
	return &port{number: address.Port}, listener.Close()
}

// release gives the port back. It may be called more than once.
func (p *port) release() error { return nil }
