// Package standby lets an agent start beside the one that it replaces on the same node, as in an update of the
// DaemonSet with maxSurge: it waits, with all that it needs to know, until the earlier one ends, and continues at once.
//
// Only one agent of a node can listen on the address of metrics and health: that one acts. A later agent connects to it
// (GET /standby) once it is ready to continue. When the connection ends, it is the later agent's turn. So the earlier
// agent, when it has to end, knows whether it is replaced or has to hand over its addresses to other nodes; and a
// process that crashes releases its turn, too.
package standby

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Path is where a later agent waits, readyPath where every agent reports whether it is ready.
const (
	Path      = "/standby"
	readyPath = "/readyz"
	protocol  = "phoenixnap-standby"
)

const (
	// pause is the time between two attempts to get the turn, timeout bounds a request.
	pause   = 100 * time.Millisecond
	timeout = 5 * time.Second
)

// Post is where later agents wait for the one that has the turn. The zero value is ready to use.
type Post struct {
	mu      sync.Mutex
	waiting map[net.Conn]bool
}

// ServeHTTP keeps the connection of a later agent of this machine until Release, or until the process ends.
func (p *Post) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isLocal(r) {
		http.Error(w, "only an agent of this machine may stand by", http.StatusForbidden)
		return
	}
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", protocol)
	// Once the later agent has its answer, the kubelet may end this one, which has to find it waiting.
	p.mu.Lock()
	defer p.mu.Unlock()
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if p.waiting == nil {
		p.waiting = map[net.Conn]bool{}
	}
	p.waiting[conn] = true
	go p.watch(conn)
}

// watch forgets a later agent that went away. It sends nothing.
func (p *Post) watch(conn net.Conn) {
	_, _ = conn.Read(make([]byte, 1))
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, conn)
	_ = conn.Close()
}

// isLocal reports whether a request comes from this machine: over loopback, or from the address that it was sent to.
func isLocal(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	own, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	from := net.ParseIP(host)
	return err == nil && ok && (from.IsLoopback() || from.Equal(own.IP))
}

// Waiting reports whether a later agent is ready to continue.
func (p *Post) Waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting) > 0
}

// Release gives the turn to the later agent.
func (p *Post) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.waiting {
		_ = conn.Close()
	}
	clear(p.waiting)
}

// Turn is the turn of an agent.
type Turn struct {
	// Address is that of metrics and health; empty for an agent that never waits.
	Address string
	// Warm reports whether this agent could continue at once. It is asked again and again while the agent waits.
	Warm func() bool
	// Post is where a later agent waits for this one.
	Post Post

	started, begun chan struct{}
	start, begin   sync.Once
}

// New returns the turn of an agent that has not begun.
func New(address string) *Turn {
	return &Turn{Address: address, Warm: func() bool { return true }, started: make(chan struct{}),
		begun: make(chan struct{})}
}

// Begun is closed when it is this agent's turn.
func (t *Turn) Begun() <-chan struct{} { return t.begun }

// Started is closed when the agent acts, or stands by and could continue at once.
func (t *Turn) Started() <-chan struct{} { return t.started }

// Waits reports whether an earlier agent has the turn.
func (t *Turn) Waits() bool {
	select {
	case <-t.begun:
		return false
	default:
		return true
	}
}

func (t *Turn) isStarted() { t.start.Do(func() { close(t.started) }) }

func (t *Turn) isBegun() {
	t.isStarted()
	t.begin.Do(func() { close(t.begun) })
}

// Listen waits for the turn and listens on the address. It returns no listener when there is no address or ctx ended.
func (t *Turn) Listen(ctx context.Context) (net.Listener, error) {
	if t.Address == "" {
		t.isBegun()
		return nil, nil //nolint:nilnil // nothing is served
	}
	var config net.ListenConfig
	logged := false
	for ctx.Err() == nil {
		listener, err := config.Listen(ctx, "tcp", t.Address)
		if err == nil {
			t.isBegun()
			return listener, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		if !logged {
			klog.FromContext(ctx).Info("Standing by: the earlier agent of this node has the address",
				"address", t.Address)
			logged = true
		}
		if t.Waits() && t.wait(ctx) {
			return nil, fmt.Errorf("%w, by a program that is no agent", err)
		}
		loop.Sleep(ctx, pause)
	}
	return nil, nil //nolint:nilnil // the agent ends
}

// wait waits for the earlier agent as long as that has the address, and reports whether another program has it.
func (t *Turn) wait(ctx context.Context) (foreign bool) {
	if !t.Warm() {
		return t.isForeign(ctx)
	}
	conn, status, err := request(ctx, t.Address, Path)
	if err != nil {
		return false // it has just ended, or does not answer: it is asked again
	}
	defer conn.Close()
	if status != http.StatusSwitchingProtocols {
		// An earlier agent may be of a version that does not know of later ones.
		if foreign = t.isForeign(ctx); !foreign {
			t.isStarted()
		}
		return foreign
	}
	klog.FromContext(ctx).Info("Ready to continue in place of the earlier agent of this node")
	t.isStarted()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_, _ = conn.Read(make([]byte, 1))
	if ctx.Err() == nil {
		t.isBegun()
	}
	return false
}

// isForeign reports whether what has the address does not answer as an agent does.
func (t *Turn) isForeign(ctx context.Context) bool {
	conn, status, err := request(ctx, t.Address, readyPath)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return status != http.StatusOK && status != http.StatusServiceUnavailable
}

// request sends a request to what has the address, and returns the status of the answer. The connection stays open.
func request(ctx context.Context, address, path string) (conn net.Conn, status int, err error) {
	dialer := net.Dialer{Timeout: timeout}
	if conn, err = dialer.DialContext(ctx, "tcp", address); err != nil {
		return nil, 0, err
	}
	if status, err = exchange(conn, path); err != nil {
		_ = conn.Close()
		return nil, 0, err
	}
	return conn, status, nil
}

// exchange sends a request and reads the answer.
func exchange(conn net.Conn, path string) (status int, err error) {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: agent\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		path, protocol); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	return answer.StatusCode, conn.SetDeadline(time.Time{})
}
