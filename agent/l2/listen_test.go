package l2

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tap is the receiving side of a socket.
type tap struct {
	net.PacketConn
	frames chan []byte
	closed chan struct{}
	once   sync.Once

	mu       sync.Mutex
	deadline time.Time
}

func newTap() *tap { return &tap{frames: make(chan []byte), closed: make(chan struct{})} }

func (c *tap) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c *tap) ReadFrom(b []byte) (int, net.Addr, error) {
	c.mu.Lock()
	left := time.Until(c.deadline)
	c.mu.Unlock()
	select {
	case f, open := <-c.frames:
		if !open {
			return 0, nil, errors.New("network is down")
		}
		return copy(b, f), nil, nil
	case <-c.closed:
		return 0, nil, net.ErrClosed
	case <-time.After(left):
		return 0, nil, os.ErrDeadlineExceeded
	}
}

func (c *tap) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// TestListener: packets of others and our own are told apart and counted, rubbish is dropped, and a socket that fails is
// replaced until the context ends.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []Heard
		var taps []*tap
		l := NewListener(func() string { return "bond0.100" }, func(h Heard) { heard = append(heard, h) })
		l.Open = func(string) (net.PacketConn, *net.Interface, error) {
			if len(taps) == 1 {
				taps = append(taps, nil)
				return nil, nil, errors.New("no such network interface")
			}
			c := newTap()
			taps = append(taps, c)
			return c, &net.Interface{HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		taps[0].frames <- goldenRequest
		taps[0].frames <- edited(func(b []byte) { b[13] = 9; b[7] = 2 })
		taps[0].frames <- goldenRequest[:20]
		time.Sleep(25 * time.Second) // two looks at the interface
		close(taps[0].frames)
		time.Sleep(2500 * time.Millisecond) // one failed attempt, one that succeeds
		synctest.Wait()
		taps[2].frames <- goldenRequest
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended, want nil", err)
		}
		ours := Claim{Address: netip.MustParseAddr("192.0.2.2"), MAC: "02:00:00:00:00:09", Reply: true, Target: netip.MustParseAddr("192.0.2.1")}
		theirs := Claim{Address: ours.Address, MAC: "02:00:00:00:00:01", Target: ours.Target}
		var claims []Claim
		for _, h := range heard {
			claims = append(claims, h.Claim)
			if h.Own != (h.MAC == ours.MAC) {
				t.Errorf("%+v: own is %t", h.Claim, h.Own)
			}
		}
		if diff := cmp.Diff([]Claim{theirs, ours, theirs}, claims, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
		if got, want := l.Counters(), (Counters{Heard: 2, Sent: 1, Dropped: 1}); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
	})
}

// TestListenerFollowsTheName: without an interface nothing is opened, and another name is opened anew.
func TestListenerFollowsTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var name atomic.Value
		name.Store("")
		var opened []string
		l := NewListener(func() string { text, _ := name.Load().(string); return text }, func(Heard) {})
		l.Open = func(interfaceName string) (net.PacketConn, *net.Interface, error) {
			opened = append(opened, interfaceName)
			return newTap(), &net.Interface{}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		for _, step := range []string{"", "bond0.100", "vlan100"} {
			name.Store(step)
			time.Sleep(15 * time.Second)
			synctest.Wait()
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"bond0.100", "vlan100"}, opened); diff != "" {
			t.Errorf("opened (-want +got):\n%s", diff)
		}
	})
}

func TestFilterAssembles(t *testing.T) {
	program, err := onlyARP()
	if err != nil || len(program) != 4 {
		t.Errorf("the filter has %d instructions, %v", len(program), err)
	}
}

func TestAsks(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for name, tc := range map[string]struct {
		claim Claim
		asks  bool
	}{
		"request":            {Claim{Address: a, Target: b}, true},
		"gratuitous request": {Claim{Address: a, Target: a}, false},
		"reply":              {Claim{Address: a, Target: b, Reply: true}, false},
	} {
		if tc.claim.Asks() != tc.asks {
			t.Errorf("%s: asks is %t", name, tc.claim.Asks())
		}
	}
}
