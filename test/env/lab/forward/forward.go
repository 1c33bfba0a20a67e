// Package forward passes TCP connections on, byte by byte.
package forward

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Forwarder accepts connections and passes each on to the target.
type Forwarder struct {
	// Listener is closed by Run.
	Listener net.Listener
	// Target is where the other side listens.
	Target string
}

// Run serves until the context ends, then closes every connection, waits for them and returns nil.
func (f Forwarder) Run(ctx context.Context) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	stop := context.AfterFunc(ctx, func() { _ = f.Listener.Close() })
	defer stop()
	for {
		conn, err := f.Listener.Accept()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("forward to %s: %w", f.Target, err)
		}
		connections.Go(func() { f.pass(ctx, conn) })
	}
}

// pass connects to the target and copies both ways. A side that cannot be reached looks like one that hangs up.
func (f Forwarder) pass(ctx context.Context, near net.Conn) {
	far, err := new(net.Dialer).DialContext(ctx, "tcp", f.Target)
	if err != nil {
		near.Close()
		return
	}
	Join(ctx, near, far)
}

// Join copies both ways until both sides have ended or the context ends, and closes both.
func Join(ctx context.Context, near, far net.Conn) {
	defer near.Close()
	defer far.Close()
	stop := context.AfterFunc(ctx, func() {
		near.Close()
		far.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { oneWay(far, near) })
	both.Go(func() { oneWay(near, far) })
	both.Wait()
}

// oneWay copies until the source ends and then closes the destination for writing.
func oneWay(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
