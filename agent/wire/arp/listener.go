//go:build linux

package arp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/mdlayher/ethernet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/packet"
)

const (
	// listenCheck is how often a listener checks that its interface is still the same.
	listenCheck = 10 * time.Second
	// drainInterval is the time after which a listener reads the packets that have arrived, all at once: waking up
	// costs more than reading, and on a network with hundreds of addresses a hundred packets arrive in a second.
	drainInterval = time.Second
	// maxDrain is how many it reads then at most; a flood beyond that is lost to it, but does not load the node.
	maxDrain = 4096
	// reopenPause is the pause before the interface is opened again.
	reopenPause = time.Second
)

// Wire is the source of packets.
type Wire interface {
	// Drain passes on the packets that have arrived, up to a limit; one is valid during the call. It does not wait.
	Drain(limit int, take func(payload []byte)) error
	Close() error
}

// Listener receives every ARP packet on one interface, including those that this machine sends.
type Listener struct {
	// Interface returns the current name of the interface; empty while there is none.
	Interface func() string
	// Hear is called with each packet that claims an address; it must not block.
	Hear func(Heard)
	// Open opens the interface. NewListener sets it; a test replaces it.
	Open func(interfaceName string) (Wire, *net.Interface, error)

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

// Run listens until ctx ends. It waits for a missing interface and opens one again that was created again.
func (l *Listener) Run(ctx context.Context) error {
	packet.KeepOpen(ctx, l.Interface, reopenPause, "listen to ARP", l.listen)
	return nil
}

// listen reads from one socket until the interface changes or ctx ends.
func (l *Listener) listen(ctx context.Context, name string) error {
	wire, link, err := l.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = wire.Close() }()
	klog.FromContext(ctx).V(2).Info("Listening to ARP", "interface", name)
	own := link.HardwareAddr.String()
	for l.Interface() == name && ctx.Err() == nil {
		if err := l.listenFor(ctx, wire, own); err != nil {
			return fmt.Errorf("listen to ARP on %s: %w", name, err)
		}
		current, err := interfaceNamed(name)
		if err == nil && (current.Index != link.Index || current.HardwareAddr.String() != own) {
			return nil
		}
	}
	return nil
}

// listenFor handles packets until it is time to check the interface; own is its hardware address.
func (l *Listener) listenFor(ctx context.Context, wire Wire, own string) error {
	ticker := time.NewTicker(drainInterval)
	defer ticker.Stop()
	for range listenCheck / drainInterval {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := wire.Drain(maxDrain, func(payload []byte) { l.take(payload, own) }); err != nil {
			return err
		}
	}
	return nil
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
	l.Hear(Heard{Announcement: claim, At: time.Now(), Own: claim.MAC == own})
}

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

// openAll opens a socket for all ARP packets of an interface: for all protocols with a filter, because one for ARP
// would not receive what this machine sends (net/core/dev.c, dev_queue_xmit_nit). While the listener sleeps, the kernel
// keeps as many packets as net.core.rmem_max allows without the capability NET_ADMIN.
func openAll(interfaceName string) (Wire, *net.Interface, error) {
	link, err := interfaceNamed(interfaceName)
	if err != nil {
		return nil, nil, fmt.Errorf("find interface %s: %w", interfaceName, err)
	}
	fd, err := packet.Socket(interfaceName, link.Index, unix.SOCK_DGRAM, unix.ETH_P_ALL, onlyARP, receiveBuffer)
	if err != nil {
		return nil, nil, err
	}
	return &socket{fd: fd}, link, nil
}

// onlyARP is a filter (classic BPF) that lets frames of type ARP through, cut to what a packet and its padding have.
var onlyARP = []bpf.Instruction{
	bpf.LoadExtension{Num: bpf.ExtProto},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(ethernet.EtherTypeARP), SkipTrue: 1},
	bpf.RetConstant{Val: packetLimit},
	bpf.RetConstant{Val: 0},
}
