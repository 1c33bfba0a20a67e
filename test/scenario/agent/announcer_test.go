//go:build linux

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/heartbeat"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/packet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

// portVIF is the gateway's interface.
const portVIF = "port1.100"

var (
	virtual     = netip.MustParseAddr(serviceVIP)
	gatewayIP   = netip.MustParseAddr("203.0.113.1")
	unspecified = netip.IPv4Unspecified()
)

// opened opens an interface in the namespace of the node or the gateway, whatever thread it is called on.
func opened[T any](n *network, where inside, open func() (T, error)) (result T, err error) {
	n.t.Helper()
	if entered := where.at(func() { result, err = open() }); entered != nil {
		return result, entered
	}
	return result, err
}

// background runs a part until the test ends.
func (n *network) background(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Errorf("it returned %v after its context ended", err)
		}
	})
}

// answering starts a responder on the node. Frames leave by the path of that name.
func (n *network) answering(path *atomic.Value) *responder.Responder {
	node := inside{node: n.node}
	r := responder.New(responder.Config{
		Interface: func() string { return nodeVIF },
		Open: func(name string) (*packet.Port, error) {
			return opened(n, node, func() (*packet.Port, error) { return responder.Open(name) })
		},
		Look: func(name string) (packet.Link, error) {
			link, err := opened(n, node, func() (packet.Link, error) { return packet.Look(name) })
			if other, ok := path.Load().(string); ok {
				link.Path = other
			}
			return link, err
		},
		Watch: func(ctx context.Context, changed func()) error {
			ticker := time.NewTicker(100 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-ticker.C:
					changed()
				}
			}
		},
	})
	n.background(r.Run)
	return r
}

// requester is a socket of the gateway.
type requester struct {
	*packet.Port
	t  *testing.T
	in *packet.Batch
}

func (n *network) requester() *requester {
	n.t.Helper()
	p, err := opened(n, inside{node: n.gateway}, func() (*packet.Port, error) {
		return packet.Open(portVIF, unix.ETH_P_ARP, []bpf.Instruction{bpf.RetConstant{Val: 256}}, 1<<20)
	})
	n.must("open the gateway's interface", err)
	n.t.Cleanup(func() { _ = p.Close() })
	return &requester{Port: p, t: n.t, in: packet.NewBatch(64, 256)}
}

// request is the frame of a request; a source of 0.0.0.0 makes it a probe.
func (a *requester) request(source, target netip.Addr) []byte {
	a.t.Helper()
	p, err := arp.NewPacket(arp.OperationRequest, a.MAC[:], source, make(net.HardwareAddr, 6), target)
	if err != nil {
		a.t.Fatal(err)
	}
	payload, err := p.MarshalBinary()
	if err != nil {
		a.t.Fatal(err)
	}
	f := ethernet.Frame{Destination: ethernet.Broadcast, Source: a.MAC[:], EtherType: ethernet.EtherTypeARP,
		Payload: payload}
	raw, err := f.MarshalBinary()
	if err != nil {
		a.t.Fatal(err)
	}
	return raw
}

func (a *requester) send(frames ...[]byte) {
	a.t.Helper()
	out := packet.NewBatch(len(frames), 256)
	for _, f := range frames {
		out.Add(f)
	}
	if err := a.Send(out); err != nil {
		a.t.Fatal(err)
	}
}

// answers returns the replies to the gateway that claim the address of the Service, until there are enough or the time
// is over.
func (a *requester) answers(enough int, within time.Duration) []arp.Packet {
	a.t.Helper()
	return a.hear(enough, within, func(p arp.Packet) bool {
		return p.Operation == arp.OperationReply && bytes.Equal(p.TargetHardwareAddr, a.MAC[:])
	})
}

// announcements returns those of the address of the Service, likewise.
func (a *requester) announcements(enough int, within time.Duration) []arp.Packet {
	a.t.Helper()
	return a.hear(enough, within, func(p arp.Packet) bool { return p.TargetIP == p.SenderIP })
}

// hear returns packets that claim the address of the Service.
func (a *requester) hear(enough int, within time.Duration, is func(arp.Packet) bool) (claims []arp.Packet) {
	a.t.Helper()
	if err := a.SetReadDeadline(time.Now().Add(within)); err != nil {
		a.t.Fatal(err)
	}
	for len(claims) < enough {
		err := a.Receive(a.in)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return claims
		}
		if err != nil {
			a.t.Fatal(err)
		}
		for i := range a.in.Len() {
			var f ethernet.Frame
			var p arp.Packet
			if f.UnmarshalBinary(a.in.Received(i)) == nil && p.UnmarshalBinary(f.Payload) == nil &&
				p.SenderIP == virtual && is(p) {
				claims = append(claims, p)
			}
		}
	}
	return claims
}

// drain takes what has come so far.
func (a *requester) drain() { a.answers(1<<20, 300*time.Millisecond) }

func table(good time.Duration) *responder.Table {
	return responder.NewTable(responder.Now()+good, virtual)
}

// TestResponder: an address that no interface has is announced at once, and requests and probes for it are answered
// until it is given up or not known to be ours any more; this survives the deletion and return of its interface.
func TestResponder(t *testing.T) {
	n := newNetwork(t)
	var path atomic.Value
	r := n.answering(&path)
	a := n.requester()
	r.Grant(table(time.Hour))
	if claims := a.announcements(2, limits.Wait); len(claims) < 2 || claims[0].Operation == claims[1].Operation {
		t.Fatalf("announced by %v, want a request and a reply", claims)
	}
	a.drain()
	for range 10 { // the repeats are over when none comes for longer than between two
		const pause = 5 * time.Second
		if len(a.announcements(1, pause)) == 0 {
			break
		}
	}
	before := r.Counters().Announced
	path.Store("eno2")
	const again = 20 * time.Second // sooner than addresses are announced again anyway
	if claims := a.announcements(2, again); len(claims) < 2 || r.Counters().Announced <= before {
		t.Errorf("by another path announced by %v, %d times in all after %d", claims, r.Counters().Announced, before)
	}
	a.drain()
	for _, source := range []netip.Addr{gatewayIP, unspecified} {
		a.send(a.request(source, virtual))
		if claims := a.answers(1, limits.Wait); len(claims) != 1 || claims[0].TargetIP != source {
			t.Errorf("%s asks and hears %v", source, claims)
		}
	}
	for what, held := range map[string]*responder.Table{"expired": table(-time.Second),
		"given up": responder.NewTable(responder.Now() + time.Hour), "never held": nil} {
		r.Grant(held)
		a.drain()
		a.send(a.request(gatewayIP, virtual))
		if claims := a.answers(1, 500*time.Millisecond); len(claims) > 0 {
			t.Errorf("%s, and answered by %v", what, claims)
		}
	}

	r.Grant(table(time.Hour))
	n.must("delete the interface", netlink.LinkDel(n.link(nodeVIF)))
	n.addVLAN("bond0", nodeVIF, vlanID, "192.0.2.2/28")
	n.waitForCarrier()
	answered := false
	for deadline := time.Now().Add(limits.Wait); !answered && time.Now().Before(deadline); {
		a.drain()
		a.send(a.request(gatewayIP, virtual))
		answered = len(a.answers(1, time.Second)) > 0
	}
	if !answered {
		t.Error("it does not answer on the interface that was made again")
	}
}

// TestResponderInAFlood: among thousands of frames that are no requests, each request is answered, and nothing else.
func TestResponderInAFlood(t *testing.T) {
	n := newNetwork(t)
	r := n.answering(new(atomic.Value))
	a := n.requester()
	r.Grant(table(time.Hour))
	a.announcements(2, limits.Wait)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	const rounds, garbage = 50, 63
	for round := range rounds {
		frames := make([][]byte, 0, garbage+1)
		for range garbage {
			frames = append(frames, spoilt(random, a.request(gatewayIP, virtual)))
		}
		a.send(append(frames, a.request(gatewayIP, virtual))...)
		claims := a.answers(1, limits.Wait)
		if len(claims) != 1 || claims[0].TargetIP != gatewayIP {
			t.Fatalf("seed %d, round %d: answered by %v", seed, round, claims)
		}
	}
	if more := a.answers(1, time.Second); len(more) > 0 {
		t.Errorf("seed %d: answered without a request: %v", seed, more)
	}
	counted := r.Counters().Frames
	if counted[responder.Answered] != rounds ||
		counted[responder.Malformed]+counted[responder.NotHeld]+counted[responder.Claim] == 0 {
		t.Errorf("seed %d: counted %v, want %d answered and the rest named", seed, counted, rounds)
	}
}

// spoilt makes a request one that must not be answered.
func spoilt(r *rand.Rand, frame []byte) []byte {
	switch r.IntN(7) {
	case 0:
		return frame[:14+r.IntN(28)]
	case 1:
		frame[15] ^= byte(1 + r.IntN(255)) // hardware type
	case 2:
		frame[18+r.IntN(2)] ^= byte(1 + r.IntN(255)) // lengths
	case 3:
		copy(frame[22:28], make([]byte, 6)) // without a sender
	case 4:
		copy(frame[28:32], frame[38:42]) // an announcement
	case 5:
		frame[41] ^= byte(1 + r.IntN(255)) // another address
	default:
		frame[21] = byte(2 + r.IntN(200)) // no request
	}
	return frame
}

// TestHeartbeats: what one node says the other hears, whole, however long it is, with an address of its own or without;
// what was signed with another key is not.
func TestHeartbeats(t *testing.T) {
	n := newNetwork(t)
	key := func(b byte) *heartbeat.Keys {
		keys := heartbeat.NewKeys()
		keys.Set(contract.FormatAnnouncerKey(contract.AnnouncerKey{b}), nil)
		return keys
	}
	var mu sync.Mutex
	heard := map[uint64]*election.Heartbeat{}
	line := func(name, vif string, where inside, keys *heartbeat.Keys, source netip.Addr) *heartbeat.Transport {
		l := heartbeat.New(heartbeat.Config{
			Node: name, Boot: 1, Interface: func() string { return vif },
			Source: func() netip.Addr { return source }, Keys: keys,
			Receive: func(h *election.Heartbeat) {
				mu.Lock()
				defer mu.Unlock()
				heard[h.Sequence] = h
			},
			Open: func(name string) (*packet.Port, error) {
				return opened(n, where, func() (*packet.Port, error) { return heartbeat.Open(name) })
			},
			Look: func(name string) (packet.Link, error) {
				return opened(n, where, func() (packet.Link, error) { return packet.Look(name) })
			},
		})
		n.background(l.Run)
		return l
	}
	shared := key(1)
	there := inside{node: n.gateway}
	listener := line("node-a", nodeVIF, inside{node: n.node}, shared, netip.MustParseAddr("192.0.2.2"))
	with := line("node-b", portVIF, there, shared, gatewayIP)
	without := line("node-c", portVIF, there, shared, netip.Addr{})
	stranger := line("node-d", portVIF, there, key(2), gatewayIP)
	acks := make([]election.Ack, 800)
	for i := range acks {
		acks[i] = election.Ack{Node: election.ID(i), Sequence: 7}
	}
	for i, l := range []*heartbeat.Transport{with, without, stranger} {
		sequence := uint64(100 * (i + 1))
		name := fmt.Sprintf("node-%c", 'b'+i)
		for deadline := time.Now().Add(limits.Wait); ; {
			sequence++
			err := l.Send(&election.Heartbeat{Node: name, Boot: 1, Sequence: sequence, Number: 3, Acks: acks})
			<-time.After(200 * time.Millisecond)
			mu.Lock()
			got := heard[sequence]
			mu.Unlock()
			if err == nil && (l == stranger || got != nil && got.Node == name && len(got.Acks) == len(acks)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is not heard within %s (%v); counted %v", name, limits.Wait, err,
					listener.Counts.Received())
			}
		}
	}
	if counted := listener.Counts.Received(); counted[heartbeat.OtherKey] == 0 ||
		counted[heartbeat.Forged]+counted[heartbeat.Malformed] > 0 {
		t.Errorf("counted %v, want frames of another key and none that is broken", counted)
	}
}
