//go:build linux

package arp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/bpf"
)

// tap is the receiving side of a socket.
type tap struct {
	mu     sync.Mutex
	frames [][]byte
	failed error
	closed bool
}

func (t *tap) put(frames ...[]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frames = append(t.frames, frames...)
}

func (t *tap) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = err
}

func (t *tap) Drain(limit int, take func([]byte)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(limit, len(t.frames))
	for _, f := range t.frames[:n] {
		take(f)
	}
	t.frames = t.frames[n:]
	return t.failed
}

func (t *tap) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return nil
}

// TestListener: packets of others and our own are distinguished and counted, malformed ones are dropped, and a socket
// that fails is replaced until the context ends.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []Heard
		var taps []*tap
		l := NewListener(func() string { return "bond0.100" }, func(h Heard) { heard = append(heard, h) })
		l.Open = func(string) (Wire, *net.Interface, error) {
			if len(taps) == 1 {
				taps = append(taps, nil)
				return nil, nil, errors.New("no such network interface")
			}
			c := &tap{}
			taps = append(taps, c)
			return c, &net.Interface{HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		taps[0].put(goldenRequest, edited(func(b []byte) { b[13] = 9; b[7] = 2 }), goldenRequest[:20])
		time.Sleep(25 * time.Second) // two checks of the interface
		taps[0].fail(errors.New("network is down"))
		time.Sleep(3500 * time.Millisecond) // one failed attempt, one that succeeds
		synctest.Wait()
		taps[2].put(goldenRequest)
		time.Sleep(drainInterval)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended, want nil", err)
		}
		ours := Announcement{Address: netip.MustParseAddr("192.0.2.2"), MAC: "02:00:00:00:00:09", Reply: true,
			Target: netip.MustParseAddr("192.0.2.1")}
		theirs := Announcement{Address: ours.Address, MAC: "02:00:00:00:00:01", Target: ours.Target}
		var claims []Announcement
		for _, h := range heard {
			claims = append(claims, h.Announcement)
			if h.Own != (h.MAC == ours.MAC) {
				t.Errorf("%+v: own is %t", h.Announcement, h.Own)
			}
		}
		if diff := cmp.Diff([]Announcement{theirs, ours, theirs}, claims,
			cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
		if !taps[0].closed || !taps[2].closed {
			t.Error("a socket was left open")
		}
		if got, want := l.Counters(), (Counters{Heard: 2, Sent: 1, Dropped: 1}); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
	})
}

// TestListenerFollowsTheName: without an interface nothing is opened, and another name is opened again.
func TestListenerFollowsTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var name atomic.Value
		name.Store("")
		var opened []string
		l := NewListener(func() string { text, _ := name.Load().(string); return text }, func(Heard) {})
		l.Open = func(interfaceName string) (Wire, *net.Interface, error) {
			opened = append(opened, interfaceName)
			return &tap{}, &net.Interface{}, nil
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
	program, err := bpf.Assemble(onlyARP)
	if err != nil || len(program) != 4 {
		t.Errorf("the filter is %+v, %v", program, err)
	}
}

func TestAsks(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	b := netip.MustParseAddr("192.0.2.2")
	for name, tc := range map[string]struct {
		claim Announcement
		asks  bool
	}{
		"request":            {Announcement{Address: a, Target: b}, true},
		"gratuitous request": {Announcement{Address: a, Target: a}, false},
		"reply":              {Announcement{Address: a, Target: b, Reply: true}, false},
	} {
		if tc.claim.Asks() != tc.asks {
			t.Errorf("%s: asks is %t", name, tc.claim.Asks())
		}
	}
}

// TestListenerFollowsTheInterface: one of the same name with another index or hardware address is opened again.
func TestListenerFollowsTheInterface(t *testing.T) {
	current, err := interfaceNamed("lo")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		edit func(*net.Interface)
		want int
	}{
		"the same":                 {func(*net.Interface) {}, 1},
		"made again":               {func(i *net.Interface) { i.Index++ }, 3},
		"another hardware address": {func(i *net.Interface) { i.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 9} }, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			opened := 0
			l := NewListener(func() string { return "lo" }, func(Heard) {})
			l.Open = func(string) (Wire, *net.Interface, error) {
				link := *current
				tc.edit(&link)
				opened++
				return &tap{}, &link, nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*listenCheck)
			defer cancel()
			if err := l.Run(ctx); err != nil || opened != tc.want {
				t.Errorf("%s: opened %d times, %v; want %d", name, opened, err, tc.want)
			}
		})
	}
}
