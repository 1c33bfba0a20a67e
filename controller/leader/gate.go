package leader

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
)

// closedError is the error of a request that a closed gate rejects.
type closedError struct{}

func (closedError) Error() string { return "the process is shutting down and makes no more changes" }

// Is reports whether target is pnap.ErrUnsent: nothing left the process.
func (closedError) Is(target error) bool { return target == pnap.ErrUnsent }

// gate counts the requests that pass through it. A closed gate rejects all requests.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside int
	idle   chan struct{} // closed when the gate is closed and nothing is inside
}

func newGate() *gate { return &gate{idle: make(chan struct{})} }

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.idle)
	}
}

// close makes the gate reject all further requests.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	if g.inside == 0 {
		close(g.idle)
	}
}

// drain waits until nothing is inside a closed gate.
func (g *gate) drain(ctx context.Context) error {
	select {
	case <-g.idle:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		return fmt.Errorf("%d changes have no answer yet: %w", g.inside, ctx.Err())
	}
}

// pass sends the request if the gate is open. The request ends with the answer, without its body: by then the server
// has made the change.
func (g *gate) pass(base http.RoundTripper, request *http.Request) (*http.Response, error) {
	if !g.enter() {
		if request.Body != nil {
			_ = request.Body.Close() // http.RoundTripper must close it; the error has no recipient
		}
		return nil, closedError{}
	}
	defer g.leave()
	return base.RoundTrip(request)
}
