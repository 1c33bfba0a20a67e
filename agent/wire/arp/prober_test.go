package arp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/arp"
)

// wire is a segment with hosts that answer, as a packet connection. It keeps the requests.
type wire struct {
	hosts []host

	mu       sync.Mutex
	asked    []*arp.Packet
	to       []string
	inbox    chan []byte
	deadline time.Time
	changed  chan struct{}
	failWith error
	// fails is how many requests are not sent because of failWith; 0 means all.
	fails int
}

// host answers for an address after a delay; lost is how many requests it does not receive.
type host struct {
	address string
	mac     string
	after   time.Duration
	lost    int
	// gratuitous makes it announce the address after that time instead of replying.
	gratuitous bool
}

func newWire(hosts ...host) *wire {
	return &wire{hosts: hosts, inbox: make(chan []byte, 64), changed: make(chan struct{}, 1)}
}

func (w *wire) WriteTo(payload []byte, to net.Addr) (int, error) {
	if err := w.failWith; err != nil {
		if w.fails--; w.fails == 0 {
			w.failWith = nil
		}
		return 0, err
	}
	p := &arp.Packet{}
	if err := p.UnmarshalBinary(payload); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, p)
	w.to = append(w.to, to.String())
	for i := range w.hosts {
		h := &w.hosts[i]
		if h.address != p.TargetIP.String() {
			continue
		}
		if h.lost > 0 {
			h.lost--
			continue
		}
		mac, err := net.ParseMAC(h.mac)
		if err != nil {
			return 0, err
		}
		receiver := p.SenderIP
		if h.gratuitous {
			receiver = p.TargetIP
		}
		reply, err := arp.NewPacket(arp.OperationReply, mac, p.TargetIP, p.SenderHardwareAddr, receiver)
		if err != nil {
			return 0, err
		}
		raw, err := reply.MarshalBinary()
		if err != nil {
			return 0, err
		}
		time.AfterFunc(h.after, func() { w.inbox <- raw })
	}
	return len(payload), nil
}

func (w *wire) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		w.mu.Lock()
		left := time.Until(w.deadline)
		w.mu.Unlock()
		if left <= 0 {
			return 0, nil, os.ErrDeadlineExceeded
		}
		select {
		case raw := <-w.inbox:
			return copy(b, raw), nil, nil
		case <-w.changed:
		case <-time.After(left):
		}
	}
}

func (w *wire) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	w.deadline = t
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return nil
}

func (w *wire) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (w *wire) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }
func (w *wire) LocalAddr() net.Addr              { return nil }
func (w *wire) Close() error                     { return nil }

func (w *wire) prober() *Prober {
	a := NewProber()
	a.Listen = func(string) (net.PacketConn, net.HardwareAddr, error) {
		return w, net.HardwareAddr{2, 0, 0, 0, 0, 1}, nil
	}
	return a
}

const (
	macA = "02:00:00:00:00:0a"
	macB = "02:00:00:00:00:0b"
)

func question(target string) Question {
	return Question{Target: netip.MustParseAddr(target), Source: netip.MustParseAddr("192.0.2.2")}
}

// TestUnicastPoll: the first request goes to where the target was last heard, the next ones to all machines.
func TestUnicastPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(host{"192.0.2.1", macA, time.Millisecond, 2, false})
		known := question("192.0.2.1")
		known.To = net.HardwareAddr{2, 0, 0, 0, 0, 10}
		answers, err := w.prober().Ask(t.Context(), "bond0.100", []Question{known})
		if err != nil || len(answers) != 1 || !answers[0].Replied {
			t.Errorf("%+v, %v", answers, err)
		}
		const all = "ff:ff:ff:ff:ff:ff"
		if diff := cmp.Diff([]string{macA, all, all}, w.to); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
	})
}

// TestClaimed: an address is claimed when another machine answers the probe, and only then.
func TestClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(host{"192.0.2.1", macA, time.Millisecond, 0, false})
		held := netip.MustParseAddr("192.0.2.1")
		got, err := w.prober().Claimed(t.Context(), "bond0.100", []netip.Addr{held, held.Next()})
		if err != nil || len(got) != 1 || !got[held] {
			t.Errorf("claimed %v, %v; want only %s", got, err, held)
		}
		for _, p := range w.asked {
			if !p.SenderIP.IsUnspecified() {
				t.Errorf("asked as %s, want probes", p.SenderIP)
			}
		}
	})
}

func TestAsk(t *testing.T) {
	ms := time.Millisecond
	probe := Question{Target: netip.MustParseAddr("192.0.2.2"), Source: netip.IPv4Unspecified()}
	for name, tc := range map[string]struct {
		hosts     []host
		questions []Question
		want      []Answer
		took      time.Duration
		requests  int
	}{
		"answered": {[]host{{"192.0.2.1", macA, 5 * ms, 0, false}}, []Question{question("192.0.2.1")},
			[]Answer{{[]string{macA}, true, 5 * ms, 5 * ms}}, 300 * ms, 1},
		"slow: the reply comes after the second request": {[]host{{"192.0.2.1", macA, 350 * ms, 0, false}},
			[]Question{question("192.0.2.1")},
			[]Answer{{[]string{macA}, true, 350 * ms, 350 * ms}}, 750 * ms, 2},
		"very slow": {[]host{{"192.0.2.1", macA, 700 * ms, 0, false}}, []Question{question("192.0.2.1")},
			[]Answer{{[]string{macA}, true, 700 * ms, 700 * ms}}, 1400 * ms, 3},
		"one gateway is slow, one is not": {[]host{{"192.0.2.1", macA, 320 * ms, 0, false},
			{"192.0.2.5", macB, ms, 0, false}},
			[]Question{question("192.0.2.1"), question("192.0.2.5")},
			[]Answer{{[]string{macA}, true, 320 * ms, 320 * ms}, {[]string{macB}, true, ms, ms}}, 720 * ms, 3},
		"announced, but no reply": {[]host{{"192.0.2.1", macA, ms, 0, true}}, []Question{question("192.0.2.1")},
			[]Answer{{[]string{macA}, false, 0, 0}}, 900 * ms, 3},
		"silent": {[]host{}, []Question{question("192.0.2.1")}, []Answer{{}}, 900 * ms, 3},
		"two lost": {[]host{{"192.0.2.1", macA, 5 * ms, 2, false}}, []Question{question("192.0.2.1")},
			[]Answer{{[]string{macA}, true, 5 * ms, 605 * ms}}, 1305 * ms, 3},
		"two hosts claim it, one late": {[]host{{"192.0.2.1", macB, 200 * ms, 0, false},
			{"192.0.2.1", macA, ms, 0, false}},
			[]Question{question("192.0.2.1")}, []Answer{{[]string{macA, macB}, true, ms, ms}}, 300 * ms, 1},
		"our own packets": {[]host{{"192.0.2.1", "02:00:00:00:00:01", ms, 0, false}}, []Question{question("192.0.2.1")},
			[]Answer{{}}, 900 * ms, 3},
		"several": {[]host{{"192.0.2.1", macA, ms, 0, false}, {"192.0.2.5", macB, 2 * ms, 0, false}},
			[]Question{question("192.0.2.1"), question("192.0.2.6"), question("192.0.2.5")},
			[]Answer{{[]string{macA}, true, ms, ms}, {}, {[]string{macB}, true, 2 * ms, 2 * ms}}, 900 * ms, 5},
		"silence after a probe is good": {[]host{{"192.0.2.1", macA, ms, 0, false}},
			[]Question{probe, question("192.0.2.1")},
			[]Answer{{}, {[]string{macA}, true, ms, ms}}, 300 * ms, 2},
		"nothing to ask": {[]host{}, nil, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Channels belong to the bubble in which they are made.
				w := newWire(tc.hosts...)
				begin := time.Now()
				got, err := w.prober().Ask(t.Context(), "bond0.100", tc.questions)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("answers (-want +got):\n%s", diff)
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				if len(w.asked) != tc.requests {
					t.Errorf("sent %d requests, want %d", len(w.asked), tc.requests)
				}
				for _, p := range w.asked {
					if p.SenderIP == p.TargetIP {
						t.Errorf("asked for %s as %s: that would claim it", p.TargetIP, p.SenderIP)
					}
				}
			})
		})
	}
}

func TestAskEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := newWire().prober().Ask(ctx, "bond0.100", []Question{question("192.0.2.1")})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 50*time.Millisecond {
			t.Errorf("ended after %s with %v, want 50ms and the context's error", time.Since(begin), err)
		}
	})
}

// TestAskReportsFailure: a request that was not sent is a failure, whatever the wire does afterwards.
func TestAskReportsFailure(t *testing.T) {
	for _, fails := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			w.failWith = net.ErrClosed
			w.fails = fails
			_, err := w.prober().Ask(t.Context(), "bond0.100", []Question{question("192.0.2.1")})
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%d requests fail: error is %v, want the socket's", fails, err)
			}
		})
	}
}

// TestNoteTimesOneMachine: only replies of the machine that replied first show which request it answered.
func TestNoteTimesOneMachine(t *testing.T) {
	target := netip.MustParseAddr("192.0.2.1")
	asked := time.Now()
	s := &session{mac: net.HardwareAddr{2, 0, 0, 0, 0, 1}, questions: []Question{{Target: target}},
		answers: make([]Answer, 1), exchanges: []exchange{{requests: []time.Time{asked, asked.Add(time.Second)}}}}
	for i, mac := range []string{"02:00:00:00:00:0a", "02:00:00:00:00:0b"} {
		s.note(Announcement{Address: target, MAC: mac, Reply: true}, asked.Add(time.Duration(2+i)*time.Second))
	}
	least, most := s.exchanges[0].roundTrip()
	if least != time.Second || most != 2*time.Second || len(s.answers[0].MACs) != 2 {
		t.Errorf("the first reply took %s to %s, want 1 s to 2 s; %v claim the address", least, most, s.answers[0].MACs)
	}
}

func TestAskOnAMissingInterface(t *testing.T) {
	if _, err := NewProber().Ask(t.Context(), "nonesuch0", []Question{question("192.0.2.1")}); err == nil {
		t.Error("no error for an interface that is not there")
	}
}
