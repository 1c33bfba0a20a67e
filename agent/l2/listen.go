package l2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

const (
	// listenCheck is how often a listener that hears nothing looks whether its interface is still the same.
	listenCheck = 10 * time.Second
	// gather is how long a listener rests after a packet, drain how long it then takes what has come meanwhile at most.
	gather = time.Second
	drain  = 10 * time.Millisecond
	// receiveBuffer is asked of the kernel, in bytes.
	receiveBuffer = 1 << 20
	// reopenPause is the pause before the interface is opened anew.
	reopenPause = time.Second
)

// Heard is an ARP packet that was on the wire.
type Heard struct {
	Claim
	// At is when it was heard.
	At time.Time
	// Own tells that this machine sent it.
	Own bool
}

// Counters count packets since the listener was made.
type Counters struct {
	// Heard are those that other machines sent, Sent those of this machine: the kernel's and kube-vip's as well as ours.
	Heard, Sent uint64
	// Dropped are those that say nothing: malformed, or not about IPv4 addresses. Probes (RFC 5227) are among them.
	Dropped uint64
}

// Listener hears every ARP packet on one interface, what this machine itself sends included.
type Listener struct {
	// Interface returns the name of the interface at the moment; empty while there is none.
	Interface func() string
	// Hear is called with each packet that claims an address; it must not block.
	Hear func(Heard)
	// Open opens the interface. Set in NewListener; a test puts a wire of its own here.
	Open func(interfaceName string) (net.PacketConn, *net.Interface, error)

	heard, sent, dropped atomic.Uint64
}

// NewListener returns a listener; it starts nothing.
func NewListener(interfaceName func() string, hear func(Heard)) *Listener {
	return &Listener{Interface: interfaceName, Hear: hear, Open: openAll}
}

// Counters returns what was counted so far.
func (l *Listener) Counters() Counters {
	return Counters{Heard: l.heard.Load(), Sent: l.sent.Load(), Dropped: l.dropped.Load()}
}

// Run listens until ctx ends. An interface that goes is waited for; one that was made anew is opened anew.
func (l *Listener) Run(ctx context.Context) error {
	told := ""
	for ctx.Err() == nil {
		name := l.Interface()
		if name != "" {
			err := l.listen(ctx, name)
			if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != told {
				// An interface that is away for long is told of once.
				klog.FromContext(ctx).Info("ARP is not listened to, trying again", "interface", name, "reason", text)
				told = text
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(reopenPause):
		}
	}
	return nil
}

// listen reads from one socket until the interface is another or ctx ends.
func (l *Listener) listen(ctx context.Context, name string) error {
	conn, link, err := l.Open(name)
	if err != nil {
		return err
	}
	// Closing is what ends a read: a deadline would be overwritten by the next.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if stop() {
			_ = conn.Close()
		}
	}()
	klog.FromContext(ctx).V(2).Info("Listening to ARP", "interface", name)
	own, buffer := link.HardwareAddr.String(), make([]byte, 256)
	for l.Interface() == name && ctx.Err() == nil {
		if err := l.takeUntil(ctx, conn, time.Now().Add(listenCheck), packetTaker{buffer, own}); err != nil {
			return fmt.Errorf("listen to ARP on %s: %w", name, err)
		}
		current, err := interfaceNamed(name)
		if err == nil && (current.Index != link.Index || current.HardwareAddr.String() != own) {
			return nil
		}
	}
	return nil
}

// packetTaker is where packets are read to, and our own hardware address.
type packetTaker struct {
	buffer []byte
	own    string
}

// takeUntil takes what comes until a time. After a packet it rests before it takes what else has come: waking up costs
// more than reading, and on a network with hundreds of addresses a hundred packets come in a second.
func (l *Listener) takeUntil(ctx context.Context, conn net.PacketConn, end time.Time, p packetTaker) error {
	for {
		if err := conn.SetReadDeadline(end); err != nil {
			return err
		}
		took, err := l.takeOne(conn, p)
		if err != nil || !took {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(gather):
		}
		if err := conn.SetReadDeadline(time.Now().Add(drain)); err != nil {
			return err
		}
		for took {
			if took, err = l.takeOne(conn, p); err != nil {
				return err
			}
		}
	}
}

// takeOne takes a packet; took is false when none came until the deadline.
func (l *Listener) takeOne(conn net.PacketConn, p packetTaker) (took bool, err error) {
	n, _, err := conn.ReadFrom(p.buffer)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.take(p.buffer[:n], p.own)
	return true, nil
}

// take passes on a packet.
func (l *Listener) take(payload []byte, own string) {
	claim, drop := Parse(payload)
	switch {
	case drop != Kept:
		l.dropped.Add(1)
		return
	case claim.MAC == own:
		l.sent.Add(1)
	default:
		l.heard.Add(1)
	}
	l.Hear(Heard{Claim: claim, At: time.Now(), Own: claim.MAC == own})
}

// openAll opens a socket that gets all ARP of an interface. A socket for the ARP protocol alone would not get what this
// machine sends (net/core/dev.c, dev_queue_xmit_nit: outgoing packets go to sockets for all protocols), so this one is
// for all protocols and the kernel filters.
func openAll(interfaceName string) (net.PacketConn, *net.Interface, error) {
	link, err := interfaceNamed(interfaceName)
	if err != nil {
		return nil, nil, fmt.Errorf("find interface %s: %w", interfaceName, err)
	}
	filter, err := onlyARP()
	if err != nil {
		return nil, nil, err
	}
	conn, err := packet.Listen(link, packet.Datagram, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	if err != nil {
		return nil, nil, fmt.Errorf("open a packet socket on %s (takes the capability NET_RAW): %w", interfaceName, err)
	}
	if err := enlarge(conn); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("enlarge the buffer of %s: %w", interfaceName, err), conn.Close())
	}
	return conn, link, nil
}

// enlarge lets the kernel keep more packets while the listener rests: as many as net.core.rmem_max allows without the
// capability NET_ADMIN.
func enlarge(conn *packet.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) })
	return errors.Join(err, set)
}

// onlyARP is a filter (classic BPF) that lets frames of type ARP through, cut to what a packet and its padding have.
func onlyARP() ([]bpf.RawInstruction, error) {
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(ethernet.EtherTypeARP), SkipTrue: 1},
		bpf.RetConstant{Val: 256},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, fmt.Errorf("filter for ARP: %w", err)
	}
	return program, nil
}
