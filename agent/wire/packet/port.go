//go:build linux

// Package packet sends and receives Ethernet frames of one type on one interface, many with one system call.
package packet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Link is the state of an interface when it was read.
type Link struct {
	Name  string
	Index int
	MAC   [6]byte
	// Up reports whether it is set up and has carrier.
	Up bool
	// Path identifies the way of frames: the link below, its carrier and the active member of a bond.
	Path string
}

// ErrUnreadable means that the kernel did not answer about an interface, which may be as it was.
var ErrUnreadable = errors.New("the kernel did not answer")

// Look reads the state of an interface by name. The error is ErrUnreadable when it is unknown, and another one when
// there is no such interface, or none of Ethernet.
func Look(name string) (Link, error) {
	l, err := netlink.LinkByName(name)
	if missing := (netlink.LinkNotFoundError{}); err != nil && !errors.As(err, &missing) {
		return Link{}, fmt.Errorf("find interface %s: %w: %w", name, ErrUnreadable, err)
	}
	if err != nil {
		return Link{}, fmt.Errorf("find interface %s: %w", name, err)
	}
	a := l.Attrs()
	if len(a.HardwareAddr) != 6 {
		return Link{}, fmt.Errorf("interface %s has the hardware address %q: want one of Ethernet", name,
			a.HardwareAddr)
	}
	link := Link{Name: name, Index: a.Index, MAC: [6]byte(a.HardwareAddr), Up: isUp(a), Path: pathOf(l)}
	if a.ParentIndex == 0 {
		return link, nil
	}
	// A link below that is unreadable, because it is in another namespace, is not an error.
	if parent, err := netlink.LinkByIndex(a.ParentIndex); err == nil {
		link.Path += "/" + pathOf(parent)
	}
	return link, nil
}

func isUp(a *netlink.LinkAttrs) bool {
	return a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOWER_UP != 0
}

func pathOf(l netlink.Link) string {
	a := l.Attrs()
	path := fmt.Sprintf("%d:%s:%t", a.Index, a.HardwareAddr, isUp(a))
	if bond, ok := l.(*netlink.Bond); ok {
		path += fmt.Sprintf(":%d", bond.ActiveSlave)
	}
	return path
}

// Carrier remembers whether an interface is up, for as long as that cannot be read. It belongs to one goroutine.
type Carrier struct{ last Link }

// Up reports whether an interface is up; look is Look.
func (c *Carrier) Up(name string, look func(string) (Link, error)) bool {
	link, err := look(name)
	switch {
	case err == nil:
		c.last = link
	case !errors.Is(err, ErrUnreadable) || name != c.last.Name:
		c.last = Link{}
	}
	return c.last.Up
}

// Port is an open socket (packet(7)). One goroutine may receive while another sends.
type Port struct {
	Link
	file   *os.File
	raw    syscall.RawConn
	closed atomic.Bool
}

// Open opens an interface for frames of one type (host byte order, such as unix.ETH_P_ARP) that the filter accepts. It
// takes the capability NET_RAW. buffer is that of the socket in bytes, up to net.core.rmem_max.
func Open(name string, etherType uint16, filter []bpf.Instruction, buffer int) (*Port, error) {
	link, err := Look(name)
	if err != nil {
		return nil, err
	}
	fd, err := Socket(name, link.Index, unix.SOCK_RAW, etherType, filter, buffer)
	if err != nil {
		return nil, err
	}
	p := &Port{Link: link, file: os.NewFile(uintptr(fd), "packet socket on "+name)}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("use the packet socket on %s: %w", name, err), p.file.Close())
	}
	return p, nil
}

// Socket opens a socket that never waits, of a kind (unix.SOCK_RAW or SOCK_DGRAM); the rest is as for Open.
func Socket(name string, index, kind int, etherType uint16, filter []bpf.Instruction, buffer int) (fd int, err error) {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return 0, fmt.Errorf("assemble a packet filter: %w", err)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, instruction := range raw {
		program[i] = unix.SockFilter{Code: instruction.Op, Jt: instruction.Jt, Jf: instruction.Jf, K: instruction.K}
	}
	fd, err = unix.Socket(unix.AF_PACKET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("open a packet socket (takes the capability NET_RAW): %w", err)
	}
	// Before the bind the socket receives nothing, so nothing arrives unfiltered.
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{
			Len: uint16(len(program)), Filter: &program[0]}), //nolint:gosec // a filter has a few instructions
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: etherType<<8 | etherType>>8, Ifindex: index}),
	)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("bind a packet socket to %s: %w", name, err), unix.Close(fd))
	}
	return fd, nil
}

// KeepOpen calls serve with the name of the interface until ctx ends, each time after a pause when serve has ended. It
// waits while there is no interface. A reason why serve failed is logged once.
func KeepOpen(ctx context.Context, interfaceName func() string, pause time.Duration, task string,
	serve func(ctx context.Context, interfaceName string) error) {
	reported := ""
	for ctx.Err() == nil {
		if name := interfaceName(); name != "" {
			err := serve(ctx, name)
			if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != reported {
				klog.FromContext(ctx).Info("Failed to "+task+", retrying", "interface", name, "reason", text)
				reported = text
			}
		}
		loop.Sleep(ctx, pause)
	}
}

// Close closes the socket; a Receive that waits returns os.ErrClosed.
func (p *Port) Close() error {
	p.closed.Store(true)
	return p.file.Close()
}

// wrap returns the error of a use of the socket: the runtime exports none for a socket that was closed meanwhile.
func (p *Port) wrap(what string, err error, b *Batch) error {
	if err == nil {
		err = b.failure
	}
	if err == nil {
		return nil
	}
	if p.closed.Load() {
		err = os.ErrClosed
	}
	return fmt.Errorf("%s on %s: %w", what, p.Name, err)
}

// Check reads the state of the socket's interface; look is Look, and name that of the interface to use now. The error
// is ErrUnreadable when the socket may still be used, and another one when it must be opened again.
func (p *Port) Check(name string, look func(string) (Link, error)) (Link, error) {
	changed := fmt.Errorf("interface %s has changed", p.Name)
	if name != p.Name {
		return Link{}, changed
	}
	link, err := look(name)
	if err == nil && (link.Index != p.Index || link.MAC != p.MAC) {
		return Link{}, changed
	}
	return link, err
}

// SetReadDeadline makes a Receive that waits return os.ErrDeadlineExceeded at that time.
func (p *Port) SetReadDeadline(t time.Time) error { return p.file.SetReadDeadline(t) }

// Receive waits for at least one frame and fills the batch with those that have arrived. It allocates nothing.
func (p *Port) Receive(b *Batch) error {
	b.failure = nil
	return p.wrap("receive", p.raw.Read(b.receive), b)
}

// Send sends the frames of a batch. Those for which the interface has no room are lost, as on the wire.
func (p *Port) Send(b *Batch) error {
	b.failure = nil
	b.sent = 0
	if b.count == 0 {
		return nil
	}
	return p.wrap("send", p.raw.Write(b.send), b)
}

// Batch holds received frames or frames to send. It belongs to one goroutine.
type Batch struct {
	size     int
	room     []byte
	vectors  []unix.Iovec
	messages []unix.Mmsghdr
	count    int
	sent     int
	failure  error
	// receive and send are created once, because a closure is an allocation.
	receive, send func(fd uintptr) bool
}

// NewBatch returns a batch for a number of frames of a size in bytes each; longer frames are cut.
func NewBatch(frames, size int) *Batch {
	b := &Batch{
		size: size, room: make([]byte, frames*size),
		vectors: make([]unix.Iovec, frames), messages: make([]unix.Mmsghdr, frames),
	}
	for i := range frames {
		b.vectors[i].Base = &b.room[i*size]
		b.vectors[i].SetLen(size)
		b.messages[i].Hdr.Iov = &b.vectors[i]
		b.messages[i].Hdr.SetIovlen(1)
	}
	b.receive = b.receiveFrom
	b.send = b.sendTo
	return b
}

// Len is the number of frames.
func (b *Batch) Len() int { return b.count }

// Received is one of the frames that Receive read; it is valid until the batch is used again.
func (b *Batch) Received(i int) []byte { return b.room[i*b.size : i*b.size+int(b.messages[i].Len)] }

// Reset empties the batch.
func (b *Batch) Reset() { b.count = 0 }

// Full reports whether no frame can be added.
func (b *Batch) Full() bool { return b.count == len(b.messages) }

// Add adds a frame to send; it is cut to the size of the batch, and dropped when the batch is full.
func (b *Batch) Add(frame []byte) {
	if b.Full() {
		return
	}
	n := copy(b.room[b.count*b.size:(b.count+1)*b.size], frame)
	b.vectors[b.count].SetLen(n)
	b.count++
}

// receiveFrom is called by the runtime when there may be something to read; false makes it wait.
func (b *Batch) receiveFrom(fd uintptr) bool {
	n, errno := b.call(unix.SYS_RECVMMSG, fd, b.messages)
	for errno == unix.EINTR {
		n, errno = b.call(unix.SYS_RECVMMSG, fd, b.messages)
	}
	switch {
	case errno == unix.EAGAIN:
		return false
	case errno != 0:
		b.count = 0
		b.failure = errno
	default:
		b.count = n
	}
	return true
}

// sendTo is called by the runtime when there may be room to write. It never waits: a late frame would be wrong.
func (b *Batch) sendTo(fd uintptr) bool {
	for b.sent < b.count {
		n, errno := b.call(unix.SYS_SENDMMSG, fd, b.messages[b.sent:b.count])
		switch {
		case errno == unix.EINTR:
		case errno == unix.ENOBUFS || errno == unix.EAGAIN:
			return true
		case errno != 0:
			b.failure = errno
			return true
		default:
			b.sent += n
		}
	}
	return true
}

func (b *Batch) call(trap, fd uintptr, messages []unix.Mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(trap, fd, uintptr(unsafe.Pointer(&messages[0])), uintptr(len(messages)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
