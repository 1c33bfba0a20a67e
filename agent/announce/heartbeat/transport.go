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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/packet"
)

const (
	// batch is how many frames are read from the kernel with one system call.
	batch = 32
	// receiveBuffer is the requested size of the socket's buffer, in bytes.
	receiveBuffer = 1 << 19
	// reopenPause is the pause before an unusable interface is tried again, checkEvery that between two checks.
	reopenPause = 100 * time.Millisecond
	checkEvery  = time.Second
	// quietAfter is how long a node must not have been heard to count as silent.
	quietAfter = 3 * election.HeartbeatInterval
	// reportEvery is the minimum time between two reports of heartbeats with implausible numbers.
	reportEvery = time.Minute
)

// Config configures a Transport.
type Config struct {
	// Node is the name of the Node, Boot identifies this run of its agent.
	Node string
	Boot uint64
	// Scope is that of the cluster and the network.
	Scope Scope
	// Interface returns the name of the VLAN interface; empty while there is none.
	Interface func() string
	// Source returns the node's own address on it; invalid where it has none.
	Source func() netip.Addr
	Keys   *Keys
	Counts *Counts
	// Receive is called with each valid heartbeat of others, also of an agent of our name; it must not block.
	Receive func(*election.Heartbeat)
	// ReplaySuspect is called with the Node of one that was dropped, because it may be an old one; it must not block.
	ReplaySuspect func(node string)
	// Foreign is called, once a minute at most, with the Node of a heartbeat that another cluster signed with our key.
	// It must not block.
	Foreign func(node string)
	// Open opens the interface, Look reads its state. A test in another network namespace sets them.
	Open func(interfaceName string) (*packet.Port, error)
	Look func(interfaceName string) (packet.Link, error)
}

// Counts counts frames. Several Transports may share one, one after the other.
type Counts struct {
	sent     atomic.Uint64
	received [drops]atomic.Uint64
}

// Sent is the number of frames that were sent.
func (c *Counts) Sent() uint64 { return c.sent.Load() }

// Received are the frames that were received, by result.
func (c *Counts) Received() map[Drop]uint64 {
	all := map[Drop]uint64{}
	for i := range c.received {
		all[Drop(i)] = c.received[i].Load()
	}
	return all
}

// Transport sends heartbeats to the other agents and receives theirs.
type Transport struct {
	Config

	sent atomic.Uint64 // the sequence number of our newest heartbeat

	mu          sync.Mutex // guards the following fields, which send
	port        *packet.Port
	out         *packet.Batch
	signer      keySource
	body, frame []byte
}

// New returns a Transport; it starts nothing.
func New(c Config) *Transport {
	t := &Transport{Config: c, out: packet.NewBatch(batch, ethernetLength+maxFrame), signer: keySource{keys: c.Keys}}
	if t.Open == nil {
		t.Open = Open
	}
	if t.Counts == nil {
		t.Counts = &Counts{}
	}
	if t.Look == nil {
		t.Look = packet.Look
	}
	return t
}

// Run receives until ctx ends. It waits for a missing interface and opens one again that was created again.
func (t *Transport) Run(ctx context.Context) error {
	r := newReceiver(t)
	packet.KeepOpen(ctx, t.Interface, reopenPause, "receive heartbeats", func(ctx context.Context, name string) error {
		return t.listen(ctx, name, r)
	})
	return nil
}

// listen receives on one socket until the interface changes or ctx ends.
func (t *Transport) listen(ctx context.Context, name string, r *receiver) error {
	p, err := t.Open(name)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Close() })
	t.use(p)
	defer func() {
		t.use(nil)
		if stop() {
			_ = p.Close()
		}
	}()
	klog.FromContext(ctx).V(2).Info("Listening to heartbeats", "interface", name)
	for ctx.Err() == nil {
		if err := r.receive(ctx, p, time.Now().Add(checkEvery)); err != nil {
			return err
		}
		if _, err := p.Check(t.Interface(), t.Look); err != nil && !errors.Is(err, packet.ErrUnreadable) {
			return err
		}
	}
	return nil
}

// use sets the socket to send on.
func (t *Transport) use(p *packet.Port) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.port = p
}

// Send sends a heartbeat to the others.
func (t *Transport) Send(h *election.Heartbeat) error {
	if err := check(h); err != nil {
		return fmt.Errorf("send a heartbeat: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ring, err := t.signer.newest()
	if err != nil {
		return err
	}
	if t.port == nil {
		return errors.New("there is no VLAN interface to send heartbeats on")
	}
	ring.scope = t.Scope
	t.sent.Store(h.Sequence)
	t.body = appendBody(t.body[:0], h)
	from := addressOf(t.port.MAC, t.Source())
	rest := t.body
	space := maxBody(h.Node)
	parts := max(1, (len(rest)+space-1)/space)
	t.out.Reset()
	for i := range parts {
		piece := rest[:min(len(rest), space)]
		rest = rest[len(piece):]
		next := part{
			node: h.Node, boot: h.Boot, sequence: h.Sequence,
			index: i, parts: parts, body: piece,
		}
		t.frame = next.appendFrame(t.frame[:0], ring, from)
		t.out.Add(t.frame)
	}
	t.Counts.sent.Add(uint64(parts))
	return t.port.Send(t.out)
}

// receiver reads frames. It belongs to one goroutine.
type receiver struct {
	transport *Transport
	in        *packet.Batch
	keys      keySource
	names     interner
	replay    replayWindow
	// implausible is the last heartbeat with numbers that no agent sends, reportedAt when one was last reported.
	implausible election.Heartbeat
	reportedAt  time.Time
	// foreign is the Node of the last heartbeat of another cluster, foreignAt when one was last reported.
	foreign   string
	foreignAt time.Time
}

func newReceiver(t *Transport) *receiver {
	return &receiver{
		transport: t, in: packet.NewBatch(batch, ethernetLength+maxFrame), keys: keySource{keys: t.Keys},
		replay: replayWindow{id: election.IDOf(t.Node), sent: t.sent.Load, quiet: quietAfter},
	}
}

// receive handles frames until a time.
func (r *receiver) receive(ctx context.Context, p *packet.Port, until time.Time) error {
	if err := p.SetReadDeadline(until); err != nil {
		return err
	}
	for time.Now().Before(until) {
		err := p.Receive(r.in)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Now()
		for i := range r.in.Len() {
			r.handle(ctx, r.in.Received(i), now)
		}
	}
	return nil
}

// handle counts a frame, and passes on what it says.
func (r *receiver) handle(ctx context.Context, frame []byte, now time.Time) {
	h, drop := r.take(frame, now)
	r.transport.Counts.received[drop].Add(1)
	switch {
	case h != nil:
		r.transport.Receive(h)
	case drop == Implausible:
		r.report(ctx, now)
	case drop == OtherCluster:
		r.reportForeign(now)
	}
}

// take reads a frame. It returns a heartbeat when one is complete.
func (r *receiver) take(frame []byte, now time.Time) (*election.Heartbeat, Drop) {
	ring, err := r.keys.newest()
	if err != nil {
		return nil, OtherKey
	}
	ring.scope = r.transport.Scope
	payload, ok := payloadOf(frame)
	if !ok {
		return nil, Malformed
	}
	p, drop := parsePart(payload, ring, &r.names)
	if drop == Implausible {
		r.implausible = election.Heartbeat{Node: p.node, Boot: p.boot, Sequence: p.sequence}
	}
	if drop == OtherCluster {
		r.foreign = p.node
	}
	if drop != Taken {
		return nil, drop
	}
	if p.node == r.transport.Node && p.boot == r.transport.Boot {
		return nil, Own
	}
	body, drop := r.replay.admit(p, now)
	again := drop == Replayed && p.parts == 1
	if again {
		body = p.body
	}
	if body == nil {
		return nil, drop
	}
	h := &election.Heartbeat{Node: p.node, Boot: p.boot, Sequence: p.sequence, Format: Version}
	switch {
	case !parseBody(body, h):
		return nil, Malformed
	case max(h.Number, h.Seen) > election.MaxNumber:
		r.implausible = *h
		return nil, Implausible
	case again && !r.replay.readmit(h, now):
		r.transport.reportReplaySuspect(h.Node)
		return nil, Replayed
	}
	r.replay.note(h)
	return h, Taken
}

func (t *Transport) reportReplaySuspect(node string) {
	if t.ReplaySuspect != nil {
		t.ReplaySuspect(node)
	}
}

// reportForeign reports a heartbeat of another cluster, not too often.
func (r *receiver) reportForeign(now time.Time) {
	if r.transport.Foreign != nil && now.Sub(r.foreignAt) >= reportEvery {
		r.foreignAt = now
		r.transport.Foreign(r.foreign)
	}
}

// report logs a signed heartbeat with numbers that no agent sends, not too often.
func (r *receiver) report(ctx context.Context, now time.Time) {
	if now.Sub(r.reportedAt) < reportEvery {
		return
	}
	r.reportedAt = now
	h := r.implausible
	klog.FromContext(ctx).Info("Dropped a signed heartbeat with a number that no agent sends. If it lasts, replace "+
		"the agent of that Node, or the key if the Node is none of this cluster", "node", h.Node,
		"run", h.Boot, "maxRun", uint64(maxBoot), "sequence", h.Sequence, "maxSequence", uint64(maxSequence),
		"view", h.Number, "seen", h.Seen, "maxView", uint64(election.MaxNumber))
}

// Open opens an interface for heartbeats. The filter first drops what is sent only to this machine: nearly everything.
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
		bpf.RetConstant{Val: ethernetLength + maxFrame},
		bpf.RetConstant{Val: 0},
	}, receiveBuffer)
}
