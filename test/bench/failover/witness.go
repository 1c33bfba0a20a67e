//go:build linux

package failover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/packet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
)

// askEvery is the time between two questions of the witness.
const askEvery = 50 * time.Millisecond

// witnessAddress is its own.
var witnessAddress = netip.MustParseAddr("203.0.113.30")

// witness is a machine on the public network that keeps asking who has the address. It is another than the gateway,
// whose ARP entry its questions would refresh.
type witness struct {
	port   *packet.Port
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu    sync.Mutex
	asked []question
	// answered is when answers came.
	answered []time.Time
}

// question is what was heard until the next question.
type question struct {
	at   time.Time
	macs map[[6]byte]bool
}

func newWitness(ctx context.Context, host *space.Space) (*witness, error) {
	w := &witness{}
	if err := host.Visit(func() (err error) {
		w.port, err = packet.Open(publicLink, unix.ETH_P_ARP, []bpf.Instruction{bpf.RetConstant{Val: 64}}, 1<<16)
		return err
	}); err != nil {
		return nil, fmt.Errorf("watch the address: %w", err)
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.group.Go(func() { w.ask(ctx) })
	w.group.Go(w.hear)
	return w, nil
}

func (w *witness) stop() {
	w.cancel()
	_ = w.port.Close()
	w.group.Wait()
}

func (w *witness) ask(ctx context.Context) {
	out := packet.NewBatch(1, 64)
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		w.mu.Lock()
		w.asked = append(w.asked, question{at: time.Now(), macs: map[[6]byte]bool{}})
		w.mu.Unlock()
		out.Reset()
		out.Add(arpRequest(w.port.MAC, witnessAddress, virtual))
		_ = w.port.Send(out) // a lost request gets no answer
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// arpRequest is the frame of a request.
func arpRequest(from [6]byte, source, target netip.Addr) []byte {
	p, err := arp.NewPacket(arp.OperationRequest, from[:], source, make(net.HardwareAddr, 6), target)
	if err != nil {
		return nil // addresses are IPv4
	}
	payload, err := p.MarshalBinary()
	if err != nil {
		return nil
	}
	f := ethernet.Frame{Destination: ethernet.Broadcast, Source: from[:], EtherType: ethernet.EtherTypeARP,
		Payload: payload}
	raw, err := f.MarshalBinary()
	if err != nil {
		return nil
	}
	return raw
}

func (w *witness) hear() {
	in := packet.NewBatch(16, 64)
	for {
		err := w.port.Receive(in)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		for i := range in.Len() {
			w.take(in.Received(i))
		}
	}
}

// take notes a reply that this machine was sent; announcements are none.
func (w *witness) take(frame []byte) {
	var f ethernet.Frame
	var p arp.Packet
	if f.UnmarshalBinary(frame) != nil || p.UnmarshalBinary(f.Payload) != nil {
		return
	}
	if p.Operation != arp.OperationReply || p.SenderIP != virtual || [6]byte(f.Destination) != w.port.MAC {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = append(w.answered, time.Now())
	if len(w.asked) > 0 {
		w.asked[len(w.asked)-1].macs[[6]byte(p.SenderHardwareAddr)] = true
	}
}

// twoAnswered is for how long two machines answered since a time.
func (w *witness) twoAnswered(since time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var total time.Duration
	for _, q := range w.asked {
		if !q.at.Before(since) && len(q.macs) > 1 {
			total += askEvery
		}
	}
	return total
}

// silent is the longest time without an answer since a time, less the time between two questions.
func (w *witness) silent(since time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest time.Duration
	last := since
	for _, at := range w.answered {
		if at.After(since) {
			longest = max(longest, at.Sub(last)-askEvery)
			last = at
		}
	}
	return max(longest, time.Since(last)-askEvery)
}

// sole is the only machine that has answered since a time, every time but a few; ok is false when there is none.
func (w *witness) sole(since time.Time) (mac [6]byte, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := 0
	answered := 0
	for _, q := range w.asked {
		if q.at.Before(since) {
			continue
		}
		asked++
		for each := range q.macs {
			if answered > 0 && each != mac {
				return mac, false
			}
			mac = each
			answered++
		}
	}
	return mac, answered > 0 && answered >= asked-asked/4
}
