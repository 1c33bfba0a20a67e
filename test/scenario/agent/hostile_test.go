//go:build linux

package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	mdarp "github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
)

const (
	// hostileFrames is how many frames each attacker sends.
	hostileFrames = 50_000
	// memoryBound is what a flood may leave behind on the heap, in bytes.
	memoryBound = 4 << 20
	stranger    = "02:66:66:66:66:66"
)

// attacker makes the frames of one kind of flood.
type attacker func(r *rand.Rand) []byte

// TestMalformedARP: what says nothing changes nothing, however much of it there is.
func TestMalformedARP(t *testing.T) {
	a := newAttack(t, func(*network) attacker { return malformed })
	for _, report := range a.run() {
		for _, id := range []check.ID{check.NoDuplicate, check.GatewayUnique} {
			if f := report.Finding(id); f.Status == check.Fail || f.Status == check.Warn {
				t.Fatalf("%s is %s while frames carry no claim: %s", id, f.Status, f.Cause)
			}
		}
	}
	a.isHealthy()
	// What was let through by chance is at most a few frames; the rest was heard and dropped, or lost by the kernel.
	if c := a.listener.Counters(); c.Dropped == 0 {
		t.Errorf("the listener has dropped nothing: %+v", c)
	}
}

// TestHostileARP: a stranger claims the addresses of gateway, node and Service, with invented MAC addresses, with
// broadcast and with that of the node itself. The agent continues, and names a claimant.
func TestHostileARP(t *testing.T) {
	a := newAttack(t, hostile)
	named := map[check.ID]bool{}
	for _, report := range a.run() {
		for _, id := range []check.ID{check.NoDuplicate, check.GatewayUnique} {
			f := report.Finding(id)
			// A machine is named by its hardware address.
			if (f.Status == check.Fail || f.Status == check.Warn) && strings.Contains(f.Observed, ":") {
				named[id] = true
			}
			if len(f.Observed)+len(f.Cause) > 1000 {
				t.Fatalf("%s has %d characters: too many for a condition", id, len(f.Observed)+len(f.Cause))
			}
		}
	}
	for _, id := range []check.ID{check.NoDuplicate, check.GatewayUnique} {
		if !named[id] {
			t.Errorf("%s never named a claimant", id)
		}
	}
	if !a.heard(stranger, serviceVIP) {
		t.Errorf("the listener never heard %s claim %s", stranger, serviceVIP)
	}
	a.isHealthy()
}

// malformed is random bytes, a part of a packet, or a packet with impossible lengths and types.
func malformed(r *rand.Rand) []byte {
	p := claim(net.HardwareAddr{2, 0, 0, 0, 0, byte(r.Uint32())}, netip.AddrFrom4([4]byte{192, 0, 2, byte(r.Uint32())}),
		mdarp.OperationReply)
	switch r.IntN(5) {
	case 0:
		p = make([]byte, r.IntN(1400))
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		if len(p) > 1 {
			p[0] = 0xee // never Ethernet (RFC 826, ar$hrd)
		}
	case 1:
		p = p[:r.IntN(len(p))]
	case 2:
		p[4] = byte(r.Uint32()) | 16
		p[5] = byte(r.Uint32()) | 16
	case 3:
		p[2] = 0x86
		p[3] = 0xdd
	default:
		p[6] = 0xff
		p[7] = byte(r.Uint32())
	}
	return p
}

// hostile claims addresses that matter, in some machine's name: mostly the stranger's.
func hostile(n *network) attacker {
	fixed, err := net.ParseMAC(stranger)
	n.must("parse "+stranger, err)
	own := n.link(nodeVIF).Attrs().HardwareAddr
	addresses := []netip.Addr{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("192.0.2.2"),
		netip.MustParseAddr(serviceVIP),
	}
	operations := []mdarp.Operation{mdarp.OperationRequest, mdarp.OperationReply}
	return func(r *rand.Rand) []byte {
		senders := []net.HardwareAddr{
			fixed, fixed, own, ethernet.Broadcast, make(net.HardwareAddr, 6),
			{2, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())},
		}
		return claim(senders[r.IntN(len(senders))], addresses[r.IntN(len(addresses))], operations[r.IntN(2)])
	}
}

func claim(sender net.HardwareAddr, address netip.Addr, operation mdarp.Operation) []byte {
	p, err := mdarp.NewPacket(operation, sender, address, sender, address)
	if err != nil {
		return nil
	}
	raw, err := p.MarshalBinary()
	if err != nil {
		return nil
	}
	return raw
}

// attack is a node whose cable is flooded by its far end while the agent's parts look and listen.
type attack struct {
	*network
	frame    attacker
	conn     *packet.Conn
	listener *arp.Listener
	before   uint64

	mu     sync.Mutex
	claims map[string]bool
}

func newAttack(t *testing.T, prepare func(*network) attacker) *attack {
	t.Helper()
	n := newNetwork(t)
	a := &attack{network: n, frame: prepare(n), claims: map[string]bool{}}
	a.in(a.gateway, func() {
		link, err := net.InterfaceByName("port1.100")
		a.must("find port1.100", err)
		a.conn, err = packet.Listen(link, packet.Datagram, int(ethernet.EtherTypeARP), nil)
		a.must("open port1.100", err)
	})
	t.Cleanup(func() { _ = a.conn.Close() })
	a.listen()
	a.isHealthy()
	a.before = heap()
	return a
}

// listen runs the listener in the node's namespace until the test ends.
func (a *attack) listen() {
	a.listener = arp.NewListener(func() string { return nodeVIF }, a.hear)
	ctx, cancel := context.WithCancel(a.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		// The thread is never unlocked, so the runtime ends it, and no other goroutine runs in this namespace.
		runtime.LockOSThread()
		if err := netns.Set(a.node); err != nil {
			a.t.Error(err)
			return
		}
		if err := a.listener.Run(ctx); err != nil {
			a.t.Error(err)
		}
	})
	a.t.Cleanup(func() { cancel(); running.Wait() })
}

// hear keeps the claimants of the address of the Service; it is bounded, as all data from strangers must be.
func (a *attack) hear(h arp.Heard) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.Address.String() == serviceVIP && h.MAC == stranger {
		a.claims[h.MAC+" "+serviceVIP] = true
	}
}

func (a *attack) heard(mac, address string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.claims[mac+" "+address]
}

// run floods until all frames are sent and diagnoses the node meanwhile; it returns a report for each diagnosis.
func (a *attack) run() []check.Report {
	a.t.Helper()
	seed := rand.Uint64()
	a.t.Logf("seed %d", seed)
	done := make(chan error, 1)
	begun := time.Now()
	go func() { done <- a.flood(rand.New(rand.NewPCG(seed, 0))) }()
	var reports []check.Report
	for {
		select {
		case err := <-done:
			a.must("flood", err)
			a.t.Logf("%d frames in %s, %d looks, listener %+v", hostileFrames,
				time.Since(begun).Round(time.Millisecond), len(reports), a.listener.Counters())
			if len(reports) == 0 {
				a.t.Fatal("the flood was over before the first look")
			}
			return reports
		default:
			_, report := a.look(expected())
			reports = append(reports, report)
		}
	}
}

// flood sends the frames to all stations, as fast as the cable takes them.
func (a *attack) flood(r *rand.Rand) error {
	for range hostileFrames {
		if _, err := a.conn.WriteTo(a.frame(r), &packet.Addr{HardwareAddr: ethernet.Broadcast}); err != nil &&
			!errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
	return nil
}

// isHealthy waits until the node is healthy, as it must be without an attack, and compares the memory with its bound.
func (a *attack) isHealthy() {
	a.t.Helper()
	var verdict check.Outcome
	for range 5 {
		_, report := a.look(expected())
		if verdict = report.Outcome(); verdict.Status == check.OK {
			break
		}
	}
	if verdict.Status != check.OK {
		a.t.Errorf("without an attack the node is %s %s: %s", verdict.Status, verdict.Reason, verdict.Message)
	}
	if now := heap(); a.before > 0 && now > a.before+memoryBound {
		a.t.Errorf("the flood left %d KiB on the heap", (now-a.before)>>10)
	}
}

// heap is what is in use, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
