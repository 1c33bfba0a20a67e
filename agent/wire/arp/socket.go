//go:build linux

package arp

import (
	"errors"
	"fmt"
	"net"

	"github.com/mdlayher/ethernet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// packetLimit is how many bytes of a packet are read: 28 and its padding.
	packetLimit = 256
	// receiveBuffer is the requested size of the socket's buffer, in bytes.
	receiveBuffer = 1 << 20
)

// socket is a packet socket (packet(7)) that is read without waiting. It is not registered with the runtime's poller:
// that would wake the process for every packet, which costs more than everything else that an idle agent does.
type socket struct {
	fd     int
	buffer [packetLimit]byte
}

// Drain implements Wire.
func (s *socket) Drain(limit int, take func(payload []byte)) error {
	for range limit {
		n, err := unix.Read(s.fd, s.buffer[:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read a packet socket: %w", err)
		default:
			take(s.buffer[:n])
		}
	}
	return nil
}

// Close implements Wire.
func (s *socket) Close() error { return unix.Close(s.fd) }

// openAll opens a socket that receives all ARP packets of an interface. A socket only for the ARP protocol would not
// receive what this machine sends (net/core/dev.c, dev_queue_xmit_nit: outgoing packets go to sockets for all
// protocols), so this one is for all protocols and the kernel filters.
func openAll(interfaceName string) (Wire, *net.Interface, error) {
	link, err := interfaceNamed(interfaceName)
	if err != nil {
		return nil, nil, fmt.Errorf("find interface %s: %w", interfaceName, err)
	}
	filter, err := onlyARP()
	if err != nil {
		return nil, nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a packet socket (takes the capability NET_RAW): %w", err)
	}
	// Before the bind the socket receives nothing, so nothing arrives unfiltered. While the listener sleeps, the
	// kernel keeps as many packets as net.core.rmem_max allows without the capability NET_ADMIN.
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, filter),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: link.Index}),
	)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("bind a packet socket to %s: %w", interfaceName, err), unix.Close(fd))
	}
	return &socket{fd: fd}, link, nil
}

func bigEndian(v uint16) uint16 { return v<<8 | v>>8 }

// onlyARP is a filter (classic BPF) that lets frames of type ARP through, cut to what a packet and its padding have.
func onlyARP() (*unix.SockFprog, error) {
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(ethernet.EtherTypeARP), SkipTrue: 1},
		bpf.RetConstant{Val: packetLimit},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, fmt.Errorf("filter for ARP: %w", err)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, instruction := range raw {
		program[i] = unix.SockFilter{Code: instruction.Op, Jt: instruction.Jt, Jf: instruction.Jf, K: instruction.K}
	}
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}, nil //nolint:gosec // four instructions
}
