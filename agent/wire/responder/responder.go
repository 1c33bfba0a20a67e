//go:build linux

package responder

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/packet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// batch is how many frames are read from and written to the kernel with one system call.
	batch = 64
	// receiveBuffer is the requested size of the buffer, in bytes, for requests while the process does not run.
	receiveBuffer = 1 << 20
	// reopenPause is the pause before an unusable interface is tried again, checkEvery that between two checks.
	reopenPause = 100 * time.Millisecond
	checkEvery  = 10 * time.Second
)

// Config configures a Responder.
type Config struct {
	// Interface returns the name of the VLAN interface; empty while there is none.
	Interface func() string
	// Watch calls changed when a network interface may have changed, until ctx ends or it fails; see netstate.Watch.
	Watch func(ctx context.Context, changed func()) error
	// Open opens the interface, Look reads its state. A test in another network namespace sets them.
	Open func(interfaceName string) (*packet.Port, error)
	Look func(interfaceName string) (packet.Link, error)
	// Seed seeds the jitter of announcements; nodes should have different ones.
	Seed uint64
}

// Counters count since the Responder was made.
type Counters struct {
	// Frames are the received frames by result, without those that the kernel filters out, such as replies.
	Frames map[Result]uint64
	// Announced are the addresses that were announced; each announcement is a request and a reply.
	Announced uint64
}

// Responder answers for the addresses of its table and announces them.
type Responder struct {
	Config
	table     atomic.Pointer[Table]
	frames    [results]atomic.Uint64
	announced atomic.Uint64
	granted   loop.Wake
	changed   loop.Wake
}

// New returns a Responder without addresses; it starts nothing.
func New(c Config) *Responder {
	r := &Responder{Config: c, granted: loop.NewWake(), changed: loop.NewWake()}
	if r.Open == nil {
		r.Open = Open
	}
	if r.Look == nil {
		r.Look = packet.Look
	}
	return r
}

// Now returns the time since the machine was started (CLOCK_BOOTTIME, clock_gettime(2)). Unlike the monotonic clock,
// which Go's timers use, it counts the time that the machine slept; unlike the wall clock it is never set.
func Now() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0 // every kernel since 2.6.39 has it
	}
	return time.Duration(now.Nano())
}

// Grant replaces the table from the next packet on; new addresses are announced at once. It does not block.
func (r *Responder) Grant(t *Table) {
	before := r.table.Swap(t)
	if !slices.Equal(before.Addresses(), t.Addresses()) {
		r.granted.Signal()
	}
}

// Counters returns what was counted so far.
func (r *Responder) Counters() Counters {
	c := Counters{Frames: map[Result]uint64{}, Announced: r.announced.Load()}
	for i := range r.frames {
		c.Frames[Result(i)] = r.frames[i].Load()
	}
	return c
}

// Run answers and announces until ctx ends. It waits for a missing interface, and opens one again that has changed.
func (r *Responder) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if r.Watch != nil {
		// Without it, a changed interface is found a little later. That is no reason to stop answering.
		group.Go(func() error { return netstate.Follow(ctx, r.Watch, r.changed.Signal) })
	}
	group.Go(func() error {
		packet.KeepOpen(ctx, r.Interface, reopenPause, "answer ARP requests", r.serve)
		return nil
	})
	return group.Wait()
}

// serve uses one socket until the interface changes or ctx ends.
func (r *Responder) serve(ctx context.Context, name string) error {
	p, err := r.Open(name)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Answering ARP requests", "interface", name, "mac", fmt.Sprintf("%x", p.MAC))
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _ = p.Close() })
	defer stop()
	group.Go(func() error { return r.answerAll(p) })
	group.Go(func() error { return r.announceAll(ctx, p) })
	return group.Wait()
}

// answerAll answers until the socket is closed or fails.
func (r *Responder) answerAll(p *packet.Port) error {
	in := packet.NewBatch(batch, frameLength)
	out := packet.NewBatch(batch, frameLength)
	for {
		if err := p.Receive(in); err != nil {
			return err
		}
		r.decide(in, out, p.MAC)
		if err := p.Send(out); err != nil {
			return err
		}
	}
}

// decide fills out with the answers to in. It allocates nothing.
func (r *Responder) decide(in, out *packet.Batch, own MAC) {
	out.Reset()
	held := r.table.Load()
	now := Now()
	var f frame
	for i := range in.Len() {
		result := answer(in.Received(i), own, held, now, &f)
		if result == Answered {
			out.Add(f[:])
		}
		r.frames[result].Add(1)
	}
}

// announceAll announces what is due until ctx ends or the interface changes, and all again when the path changes.
func (r *Responder) announceAll(ctx context.Context, p *packet.Port) error {
	plan := newSchedule(r.Seed)
	out := packet.NewBatch(batch, frameLength)
	path := p.Path
	look := time.NewTicker(checkEvery)
	defer look.Stop()
	for {
		plan.follow(r.table.Load(), time.Now())
		due, next := plan.take(time.Now())
		if err := r.announce(p, out, due); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(next)):
			continue
		case <-r.granted:
			continue
		case <-look.C:
		case <-r.changed:
		}
		link, err := p.Check(r.Interface(), r.Look)
		switch {
		case errors.Is(err, packet.ErrUnreadable): // it is as it was, as far as is known
		case err != nil:
			return err
		case link.Path != path:
			klog.FromContext(ctx).V(2).Info("Frames leave by another path, announcing again",
				"interface", p.Name, "before", path, "now", link.Path)
			path = link.Path
			plan.beginAll(time.Now())
		}
	}
}

// announce announces addresses that this node may still announce.
func (r *Responder) announce(p *packet.Port, out *packet.Batch, addresses []netip.Addr) error {
	if len(addresses) == 0 {
		return nil
	}
	held := r.table.Load()
	out.Reset()
	for _, a := range addresses {
		if !held.Holds(a, Now()) {
			continue
		}
		var request, reply frame
		announceRequest(&request, p.MAC, a)
		announceReply(&reply, p.MAC, a)
		out.Add(request[:])
		out.Add(reply[:])
		r.announced.Add(1)
		if out.Full() {
			if err := p.Send(out); err != nil {
				return err
			}
			out.Reset()
		}
	}
	return p.Send(out)
}

// Open opens an interface for ARP requests to all or to this machine, not those only received in promiscuous mode.
func Open(interfaceName string) (*packet.Port, error) {
	return packet.Open(interfaceName, unix.ETH_P_ARP, []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_BROADCAST, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_HOST, SkipTrue: 3},
		bpf.LoadAbsolute{Off: atOperation, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: operationRequest, SkipTrue: 1},
		bpf.RetConstant{Val: frameLength},
		bpf.RetConstant{Val: 0},
	}, receiveBuffer)
}
