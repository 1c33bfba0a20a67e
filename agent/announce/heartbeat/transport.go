//go:build linux

package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/packet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// batch is how many frames are taken from the kernel with one system call.
	batch = 32
	// receiveBuffer is asked of the kernel, in bytes.
	receiveBuffer = 1 << 19
	// reopenPause is the pause before an interface that could not be used is tried again, lookEvery the time between two
	// looks whether it is still the same.
	reopenPause = 100 * time.Millisecond
	lookEvery   = time.Second
)

// ErrNoInterface tells that there is no interface to send on.
var ErrNoInterface = errors.New("there is no VLAN interface to send heartbeats on")

// Config is what a Line works with.
type Config struct {
	// Node is the name of the Node, Boot tells this life of its agent apart from others.
	Node string
	Boot uint64
	// Interval is the time between two heartbeats; those of nodes with another one are not taken.
	Interval time.Duration
	// Interface returns the name of the VLAN interface; empty while there is none.
	Interface func() string
	// Source returns the node's own address on it; invalid where it has none.
	Source func() netip.Addr
	Keys   *KeyFile
	// Hear is called with each heartbeat of others that was taken; it must not block. That of another agent with the name of
	// this Node is one.
	Hear func(*election.Heartbeat)
	// Open opens the interface and Look looks at it. Set in New; a test that is in another network namespace replaces them.
	Open func(interfaceName string) (*packet.Port, error)
	Look func(interfaceName string) (packet.Link, error)
}

// Counters count since the line was made.
type Counters struct {
	// Sent are the frames that were sent, Heard those that were received, by what became of them.
	Sent  uint64
	Heard map[Drop]uint64
}

// Transport is the way to the other agents and from them.
type Transport struct {
	Config
	sent  atomic.Uint64
	heard [drops]atomic.Uint64

	mu          sync.Mutex // of what follows, which sends
	port        *packet.Port
	out         *packet.Batch
	signer      user
	body, frame []byte
}

// New returns a line; it starts nothing.
func New(c Config) *Transport {
	l := &Transport{Config: c, out: packet.NewBatch(batch, ethernetLength+mostFrame), signer: user{file: c.Keys}}
	if l.Open == nil {
		l.Open = Open
	}
	if l.Look == nil {
		l.Look = packet.Look
	}
	return l
}

// Counters returns what was counted so far.
func (l *Transport) Counters() Counters {
	c := Counters{Sent: l.sent.Load(), Heard: map[Drop]uint64{}}
	for i := range l.heard {
		c.Heard[Drop(i)] = l.heard[i].Load() //nolint:gosec // an index of a small array
	}
	return c
}

// Run hears until ctx ends. An interface that goes is waited for; one that was made anew is opened anew.
func (l *Transport) Run(ctx context.Context) error {
	told, ear := "", newReceiver(l)
	for ctx.Err() == nil {
		if name := l.Interface(); name != "" {
			err := l.listen(ctx, name, ear)
			if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != told {
				// An interface that is away for long is told of once.
				klog.FromContext(ctx).Info("Heartbeats are not heard, trying again", "interface", name, "reason", text)
				told = text
			}
		}
		loop.Sleep(ctx, reopenPause)
	}
	return nil
}

// listen hears on one socket until the interface is another or ctx ends.
func (l *Transport) listen(ctx context.Context, name string, ear *receiver) error {
	p, err := l.Open(name)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Close() })
	l.use(p)
	defer func() {
		l.use(nil)
		if stop() {
			_ = p.Close()
		}
	}()
	klog.FromContext(ctx).V(2).Info("Listening to heartbeats", "interface", name)
	for ctx.Err() == nil {
		if err := ear.hear(p, time.Now().Add(lookEvery)); err != nil {
			return err
		}
		link, err := l.Look(name)
		if err != nil {
			return err
		}
		if link.Index != p.Index || link.MAC != p.MAC || l.Interface() != name {
			return nil
		}
	}
	return nil
}

// use sets the socket to send on.
func (l *Transport) use(p *packet.Port) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.port = p
}

// Send tells the others.
func (l *Transport) Send(h *election.Heartbeat) error {
	if err := check(h); err != nil {
		return fmt.Errorf("send a heartbeat: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ring, err := l.signer.newest()
	if err != nil {
		return err
	}
	if l.port == nil {
		return ErrNoInterface
	}
	l.body = appendBody(l.body[:0], h)
	from, rest, space := addressOf(l.port.MAC, l.Source()), l.body, room(h.Node)
	parts := max(1, (len(rest)+space-1)/space)
	l.out.Reset()
	for i := range parts {
		piece := rest[:min(len(rest), space)]
		rest = rest[len(piece):]
		l.frame = part{node: h.Node, boot: h.Boot, sequence: h.Sequence, index: i, parts: parts, interval: l.interval(), body: piece}.appendFrame(l.frame[:0], ring, from)
		l.out.Add(l.frame)
	}
	l.sent.Add(uint64(parts)) //nolint:gosec // bounded by mostParts
	return l.port.Send(l.out)
}

// interval is that of the line, in milliseconds.
func (l *Transport) interval() uint16 { return uint16(l.Interval / time.Millisecond) } //nolint:gosec // a minute and less

// receiver takes frames apart. It belongs to one goroutine.
type receiver struct {
	line  *Transport
	in    *packet.Batch
	keys  user
	names interner
	guard replayWindow
}

func newReceiver(l *Transport) *receiver {
	return &receiver{line: l, in: packet.NewBatch(batch, ethernetLength+mostFrame), keys: user{file: l.Keys}}
}

// hear takes what comes until a time.
func (e *receiver) hear(p *packet.Port, until time.Time) error {
	if err := p.SetReadDeadline(until); err != nil {
		return err
	}
	for time.Now().Before(until) {
		err := p.Receive(e.in)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Now()
		for i := range e.in.Len() {
			h, drop := e.take(e.in.Received(i), now)
			e.line.heard[drop].Add(1)
			if h != nil {
				e.line.Hear(h)
			}
		}
	}
	return nil
}

// take reads a frame. It returns a heartbeat when one is complete.
func (e *receiver) take(frame []byte, now time.Time) (*election.Heartbeat, Drop) {
	ring, err := e.keys.newest()
	if err != nil {
		return nil, OtherKey
	}
	payload, ok := payloadOf(frame)
	if !ok {
		return nil, Malformed
	}
	p, drop := parsePart(payload, ring, &e.names)
	if drop != Taken {
		return nil, drop
	}
	if p.node == e.line.Node && p.boot == e.line.Boot {
		return nil, Own
	}
	if p.interval != e.line.interval() {
		return nil, OtherInterval
	}
	body, drop := e.guard.admit(p, now)
	if drop != Taken || body == nil {
		return nil, drop
	}
	h := &election.Heartbeat{Node: p.node, Boot: p.boot, Sequence: p.sequence}
	if !parseBody(body, h) {
		return nil, Malformed
	}
	return h, Taken
}

// Open opens an interface for heartbeats. The filter's first question turns away what is sent to this machine alone, which on
// a node that serves is nearly everything.
func Open(interfaceName string) (*packet.Port, error) {
	const fragment, protocol, destinationPort = ethernetLength + 6, ethernetLength + 9, ethernetLength + ipv4Length + 2
	return packet.Open(interfaceName, unix.ETH_P_IP, []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_BROADCAST, SkipTrue: 9},
		bpf.LoadAbsolute{Off: ethernetLength, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: versionAndIHL, SkipTrue: 7},
		bpf.LoadAbsolute{Off: protocol, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolUDP, SkipTrue: 5},
		bpf.LoadAbsolute{Off: fragment, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 3},
		bpf.LoadAbsolute{Off: destinationPort, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: Port, SkipTrue: 1},
		bpf.RetConstant{Val: ethernetLength + mostFrame},
		bpf.RetConstant{Val: 0},
	}, receiveBuffer)
}
