package localhealth

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// TestTimeline: answers count at once, missing answers only after a while.
func TestTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const port = 30000
		const maxFailures = int(patience/period) + 1
		var proxy struct {
			sync.Mutex
			ready   bool
			err     error
			ports   []int32
			changes int
		}
		set := func(ready bool, err error, ports ...int32) {
			proxy.Lock()
			defer proxy.Unlock()
			proxy.ready = ready
			proxy.err = err
			proxy.ports = ports
		}
		a := New(nil, func() []int32 {
			proxy.Lock()
			defer proxy.Unlock()
			return proxy.ports
		}, nil, func() { proxy.changes++ })
		a.probe = func(context.Context, int32) (bool, error) {
			proxy.Lock()
			defer proxy.Unlock()
			return proxy.ready, proxy.err
		}
		set(false, nil, port)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		pass := func(rounds int) {
			<-time.After(time.Duration(rounds) * period)
			synctest.Wait()
		}
		<-time.After(period / 2)
		for i, step := range []struct {
			ready  bool
			err    error
			rounds int
			want   bool
		}{
			{false, nil, 1, false},
			{true, nil, 1, true},
			{false, nil, 1, false},
			{true, nil, 1, true},
			{false, errors.New("refused"), maxFailures - 1, true},
			{true, nil, 1, true},
			{false, errors.New("refused"), maxFailures - 1, true},
			{false, errors.New("refused"), 1, false},
			{false, errors.New("refused"), 5, false},
			{true, nil, 1, true},
		} {
			set(step.ready, step.err, port)
			pass(step.rounds)
			if a.Ready(port) != step.want {
				t.Errorf("step %d: ready %t, want %t", i, !step.want, step.want)
			}
		}
		set(true, nil)
		pass(1)
		if a.Ready(port) {
			t.Error("a Service that is gone is ready")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v after its context ended", err)
		}
		if proxy.changes != 7 {
			t.Errorf("%d changes were reported, want 7", proxy.changes)
		}
	})
}

// TestIdle: without ports nothing wakes up until Changed is called.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const port = 30000
		var looked, asked atomic.Int32
		var listed atomic.Pointer[[]int32]
		listed.Store(new([]int32))
		wake := loop.NewWake()
		a := New(wake, func() []int32 {
			looked.Add(1)
			return *listed.Load()
		}, nil, func() {})
		a.probe = func(context.Context, int32) (bool, error) {
			asked.Add(1)
			return true, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		<-time.After(10*idle - period)
		if n := looked.Load(); n != 10 {
			t.Errorf("looked for ports %d times in ten idle times, want 10", n)
		}
		listed.Store(&[]int32{port})
		wake.Signal()
		synctest.Wait()
		if !a.Ready(port) {
			t.Error("a new port was not asked at once")
		}
		for range 100 {
			wake.Signal()
			<-time.After(period / 50)
		}
		synctest.Wait()
		if n := asked.Load(); n != 3 {
			t.Errorf("asked %d times in two periods of changes, want 3", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestLoopback asks what kube-proxy's server of health checks answers.
func TestLoopback(t *testing.T) {
	for status, want := range map[int]struct{ ready, fails bool }{
		http.StatusOK: {ready: true}, http.StatusServiceUnavailable: {}, http.StatusNotFound: {fails: true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				t.Errorf("asked for %s", r.URL.Path)
			}
			w.WriteHeader(status)
		}))
		address, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.ParseInt(address.Port(), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		ready, err := New(nil, nil, none, nil).probe(t.Context(), int32(port))
		if ready != want.ready || (err != nil) != want.fails {
			t.Errorf("%d: ready %t, %v", status, ready, err)
		}
		server.Close()
		if _, err := New(nil, nil, none, nil).probe(t.Context(), int32(port)); err == nil {
			t.Errorf("%d: a port without a listener is no error", status)
		}
	}
}

func none() []netip.Addr { return nil }

// TestPrimaryAddressOnly: kube-proxy in nftables mode does not listen on 127.0.0.1.
func TestPrimaryAddressOnly(t *testing.T) {
	primary := netip.MustParseAddr("127.0.0.2")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", netip.AddrPortFrom(primary, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	at, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ready, err := New(nil, nil, func() []netip.Addr { return []netip.Addr{primary} }, nil).probe(t.Context(),
		int32(at.Port()))
	if !ready || err != nil {
		t.Errorf("ready %t, %v; want the answer at the Node's address", ready, err)
	}
	if _, err := New(nil, nil, none, nil).probe(t.Context(), int32(at.Port())); err == nil {
		t.Error("something listens on the loopback interface, so this test proves nothing")
	}
}
