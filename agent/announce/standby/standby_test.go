package standby

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// earlier is an agent that has the turn.
type earlier struct {
	turn   *Turn
	server *httptest.Server
}

// newEarlier returns an agent that answers as handler does, or as the agents do where handler is nil.
func newEarlier(t *testing.T, handler http.Handler) earlier {
	t.Helper()
	turn := New("127.0.0.1:0")
	listener, err := turn.Listen(testlog.Context(t))
	if err != nil || turn.Waits() || !isClosed(turn.Started()) {
		t.Fatalf("the first agent waits: %t, %v", turn.Waits(), err)
	}
	if handler == nil {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
		mux.Handle("GET "+Path, &turn.Post)
		handler = mux
	}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	turn.Address = listener.Addr().String()
	return earlier{turn, server}
}

// later is an agent that starts beside it.
type later struct {
	turn *Turn
	warm atomic.Bool
	err  chan error
}

func newLater(ctx context.Context, address string) *later {
	l := &later{turn: New(address), err: make(chan error, 1)}
	l.turn.Warm = l.warm.Load
	go func() {
		listener, err := l.turn.Listen(ctx)
		if listener != nil {
			_ = listener.Close()
		}
		l.err <- err
	}()
	return l
}

// TestLaterAgentContinues: a later agent waits, is counted only when it could continue, and continues when the earlier
// one releases its turn, though that still has the address.
func TestLaterAgentContinues(t *testing.T) {
	first := newEarlier(t, nil)
	next := newLater(testlog.Context(t), first.turn.Address)
	time.Sleep(3 * pause)
	if first.turn.Post.Waiting() || isClosed(next.turn.Started()) || !next.turn.Waits() {
		t.Fatal("an agent that could not continue counts")
	}
	next.warm.Store(true)
	await(t, "the later agent stands by", func() bool { return first.turn.Post.Waiting() })
	await(t, "it has started", func() bool { return isClosed(next.turn.Started()) })
	if !next.turn.Waits() {
		t.Fatal("it does not wait for its turn")
	}
	first.turn.Post.Release()
	await(t, "its turn", func() bool { return !next.turn.Waits() })
	if first.turn.Post.Waiting() {
		t.Error("an agent waits after its turn began")
	}
	first.server.Close()
	if err := <-next.err; err != nil {
		t.Error(err)
	}
}

// TestTurnOfAnAgentThatEnds: the process that has the turn ends without a word.
func TestTurnOfAnAgentThatEnds(t *testing.T) {
	for _, warm := range []bool{true, false} {
		first := newEarlier(t, nil)
		next := newLater(testlog.Context(t), first.turn.Address)
		next.warm.Store(warm)
		if warm {
			await(t, "the later agent stands by", func() bool { return first.turn.Post.Waiting() })
		} else {
			time.Sleep(3 * pause)
		}
		first.server.Close()
		first.turn.Post.Release() // the kernel closes connections of a process that has ended
		if err := <-next.err; err != nil || next.turn.Waits() {
			t.Errorf("warm %t: waits %t, %v", warm, next.turn.Waits(), err)
		}
	}
}

// TestLaterAgentGoesAway: an agent that went away does not count.
func TestLaterAgentGoesAway(t *testing.T) {
	first := newEarlier(t, nil)
	ctx, cancel := context.WithCancel(testlog.Context(t))
	next := newLater(ctx, first.turn.Address)
	next.warm.Store(true)
	await(t, "the later agent stands by", func() bool { return first.turn.Post.Waiting() })
	cancel()
	await(t, "the later agent has gone", func() bool { return !first.turn.Post.Waiting() })
	if err := <-next.err; err != nil || !next.turn.Waits() {
		t.Errorf("waits %t, %v", next.turn.Waits(), err)
	}
}

// TestOlderVersion: an earlier agent that does not know of later ones is waited for until the address is free.
func TestOlderVersion(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	first := newEarlier(t, mux)
	next := newLater(testlog.Context(t), first.turn.Address)
	next.warm.Store(true)
	await(t, "it has started", func() bool { return isClosed(next.turn.Started()) })
	if !next.turn.Waits() {
		t.Fatal("two agents act")
	}
	first.server.Close()
	if err := <-next.err; err != nil || next.turn.Waits() {
		t.Errorf("waits %t, %v", next.turn.Waits(), err)
	}
}

// TestAnotherProgram: a program that is no agent is an error, as is an address that is not of this machine.
func TestAnotherProgram(t *testing.T) {
	first := newEarlier(t, http.NotFoundHandler())
	for _, warm := range []bool{true, false} {
		next := newLater(testlog.Context(t), first.turn.Address)
		next.warm.Store(warm)
		if err := <-next.err; err == nil || !strings.Contains(err.Error(), "no agent") {
			t.Errorf("warm %t: %v, want an error that says what is there", warm, err)
		}
	}
	if _, err := New("192.0.2.1:1").Listen(testlog.Context(t)); err == nil {
		t.Error("an address of another machine is no error")
	}
}

// TestNoAddress: an agent without an address never waits.
func TestNoAddress(t *testing.T) {
	turn := New("")
	if listener, err := turn.Listen(testlog.Context(t)); listener != nil || err != nil || turn.Waits() {
		t.Errorf("listener %v, waits %t, %v", listener, turn.Waits(), err)
	}
}

// answer is the answer to a later agent, which has it at the latest when the connection leaves the server's hands.
type answer struct {
	http.ResponseWriter
	handedOver func() net.Conn
}

func (a answer) Hijack() (net.Conn, *bufio.ReadWriter, error) { return a.handedOver(), nil, nil }

// TestLaterAgentIsKnownWhenItHasItsAnswer: the pod counts as started then, so the kubelet may end the earlier agent,
// which has to find it waiting.
func TestLaterAgentIsKnownWhenItHasItsAnswer(t *testing.T) {
	conn, later := net.Pipe()
	defer later.Close()
	var post Post
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey,
		&net.TCPAddr{IP: net.ParseIP("10.0.0.11"), Port: 10298}), http.MethodGet, Path, nil)
	r.RemoteAddr = "127.0.0.1:4"
	post.ServeHTTP(answer{ResponseWriter: httptest.NewRecorder(), handedOver: func() net.Conn {
		if post.mu.TryLock() { // Waiting would not wait for what follows
			t.Error("it can be asked whether an agent waits before the one that has its answer is known")
			post.mu.Unlock()
		}
		return conn
	}}, r)
	if !post.Waiting() {
		t.Error("no agent waits")
	}
}

// TestOnlyFromThisMachine: no other machine can pretend to stand by.
func TestOnlyFromThisMachine(t *testing.T) {
	own := &net.TCPAddr{IP: net.ParseIP("10.0.0.11"), Port: 10298}
	for from, want := range map[string]bool{"127.0.0.1:4": true, "10.0.0.11:4": true, "10.0.0.12:4": false,
		"[::1]:4": true, "nonsense": false} {
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, own),
			http.MethodGet, Path, nil)
		r.RemoteAddr = from
		if got := isLocal(r); got != want {
			t.Errorf("from %s: %t, want %t", from, got, want)
		}
	}
}
