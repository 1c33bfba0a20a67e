package localhealth

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// proxy serves checks like kube-proxy, each on a port of its own.
type proxy struct {
	t      *testing.T
	status atomic.Int32
	body   string
	// opened and closed count connections.
	opened, closed atomic.Int32
}

func newProxy(t *testing.T) *proxy {
	p := &proxy{t: t, body: `{"service":{"namespace":"shop","name":"web"},"localEndpoints":1}`}
	p.status.Store(http.StatusOK)
	return p
}

// serve listens on an address, which may have port 0, and returns its port.
func (p *proxy) serve(at string) (port int32, server *http.Server) {
	p.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(p.t.Context(), "tcp", at)
	if err != nil {
		p.t.Fatal(err)
	}
	server = &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(int(p.status.Load()))
			_, _ = fmt.Fprint(w, p.body)
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				p.opened.Add(1)
			case http.StateClosed:
				p.closed.Add(1)
			default:
			}
		},
	}
	go func() { _ = server.Serve(listener) }()
	p.t.Cleanup(func() { _ = server.Close() })
	address, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	return int32(address.Port()), server
}

const anyPort = "127.0.0.1:0"

// patient is a prober that waits long enough for any machine.
func patient(t *testing.T, ports ...int32) *Prober {
	a := New(nil, func() []int32 { return ports }, none, func() {})
	a.client.timeout = time.Minute
	t.Cleanup(a.client.transport.CloseIdleConnections)
	return a
}

// TestManyServices: 500 Services are probed over 500 connections, however often, and none of them fails.
func TestManyServices(t *testing.T) {
	const services, rounds = 500, 6
	p := newProxy(t)
	var ports []int32
	for range services {
		port, _ := p.serve(anyPort)
		ports = append(ports, port)
	}
	a := patient(t, ports...)
	for i := range rounds {
		p.status.Store([]int32{http.StatusOK, http.StatusServiceUnavailable}[i%2])
		a.probeAll(t.Context(), ports)
		for _, port := range ports {
			if a.Ready(port) != (i%2 == 0) {
				t.Fatalf("round %d: port %d ready %t", i, port, a.Ready(port))
			}
		}
	}
	if probes, failures := a.Counters(); probes != services*rounds || failures != 0 || p.opened.Load() != services {
		t.Errorf("%d probes, %d failures, %d connections; want %d, none, %d", probes, failures, p.opened.Load(),
			services*rounds, services)
	}
	t.Logf("figure local_services_connections %d connections", p.opened.Load())
	if most := periodOf(10_000); most >= keepIdle {
		t.Errorf("10,000 Services are probed every %s, and a connection is kept for %s", most, keepIdle)
	}
}

// TestRate: many Services are probed more rarely each: at most 250 probes are sent in a second.
func TestRate(t *testing.T) {
	for ports, want := range map[int]time.Duration{
		1: period, 125: period, 250: time.Second, 500: 2 * time.Second,
	} {
		if got := periodOf(ports); got != want {
			t.Errorf("%d ports every %s, want %s", ports, got, want)
		}
	}
}

// TestRestart: a connection that kube-proxy has closed is opened again at once, and one to a port that is closed fails.
func TestRestart(t *testing.T) {
	p := newProxy(t)
	port, server := p.serve(anyPort)
	a := patient(t, port)
	probe := func(want bool) {
		t.Helper()
		if ready, err := a.probe(t.Context(), port); ready != want || (err == nil) != want {
			t.Errorf("ready %t (%v), want %t", ready, err, want)
		}
	}
	probe(true)
	_ = server.Close()
	probe(false)
	_, server = p.serve(fmt.Sprintf("127.0.0.1:%d", port))
	probe(true)
	_ = server.Close()
	p.serve(fmt.Sprintf("127.0.0.1:%d", port))
	probe(true)
	if p.opened.Load() != 3 {
		t.Errorf("%d connections, want 3", p.opened.Load())
	}
}

// TestHangs: a kube-proxy that accepts connections and does not answer is asked once, not at every address.
func TestHangs(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	address, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other := newProxy(t)
	other.serve(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), address.Port()).String())
	a := newClient(time.Millisecond)
	ready, err := a.probe(t.Context(), []netip.Addr{loopback, netip.MustParseAddr("127.0.0.2")}, int32(address.Port()))
	if ready || !isTimeout(err) || other.opened.Load() != 0 {
		t.Errorf("ready %t, %v; %d connections to another address", ready, err, other.opened.Load())
	}
}

// TestForeignAnswers: an answer without a status of kube-proxy is an error, and what stands behind an answer is not
// taken for the next one.
func TestForeignAnswers(t *testing.T) {
	for name, raw := range map[string]string{
		"no HTTP":          "hello\r\n\r\n",
		"nothing":          "",
		"cut short":        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
		"an endless head":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxAnswer),
		"another status":   "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
		"more than asked":  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 503 X\r\n\r\n",
		"a closing answer": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", anyPort)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 1<<10))
				_, _ = conn.Write([]byte(raw))
				_ = conn.Close()
			}
		}()
		a := patient(t)
		address, _ := netip.ParseAddrPort(listener.Addr().String())
		well := strings.HasPrefix(raw, "HTTP/1.1 200 OK\r\nC")
		for range 2 {
			ready, err := a.probe(context.Background(), int32(address.Port()))
			if ready != well || (err == nil) != well {
				t.Errorf("%s: ready %t, %v", name, ready, err)
			}
		}
		_ = listener.Close()
	}
}
