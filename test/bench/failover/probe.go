//go:build linux

package failover

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
)

const (
	// requestEvery is the time between two requests of the client, patience how long it waits for the answer of one.
	requestEvery = 10 * time.Millisecond
	patience     = 200 * time.Millisecond
)

// serveEcho answers requests in a node's namespace: what came, and behind it the index of the node.
func serveEcho(ctx context.Context, node *space.Space, index int) (stop func(), err error) {
	var conn net.PacketConn
	if err := node.Visit(func() (err error) {
		conn, err = new(net.ListenConfig).ListenPacket(ctx, "udp",
			netip.AddrPortFrom(nodeAddress(index), echoPort).String())
		return err
	}); err != nil {
		return nil, fmt.Errorf("serve on %s: %w", node.Name, err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := conn.ReadFrom(buffer[:32])
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = conn.WriteTo(append(buffer[:n], byte(index)), from) // a client that is gone
			}
		}
	})
	return func() {
		_ = conn.Close()
		group.Wait()
	}, nil
}

// request is one request of the client.
type request struct {
	at       time.Time
	answered bool
	// after is when the answer came, by the index of which node.
	after time.Duration
	node  int
}

// prober asks for the Service without end.
type prober struct {
	conn   net.Conn
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu       sync.Mutex
	requests []request
}

func newProber(ctx context.Context, client *space.Space) (*prober, error) {
	conn, err := client.Dial(ctx, "udp", netip.AddrPortFrom(virtual, echoPort).String())
	if err != nil {
		return nil, fmt.Errorf("ask for the Service: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &prober{conn: conn, cancel: cancel}
	p.group.Go(func() { p.ask(ctx) })
	p.group.Go(p.hear)
	return p, nil
}

func (p *prober) stop() {
	p.cancel()
	_ = p.conn.Close()
	p.group.Wait()
}

func (p *prober) ask(ctx context.Context) {
	ticker := time.NewTicker(requestEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p.mu.Lock()
		number := uint64(len(p.requests))
		p.requests = append(p.requests, request{at: time.Now()})
		p.mu.Unlock()
		// No node has the address: this is what is measured.
		_, _ = p.conn.Write(binary.BigEndian.AppendUint64(nil, number))
	}
}

func (p *prober) hear() {
	buffer := make([]byte, 64)
	for {
		n, err := p.conn.Read(buffer)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || n != 9 {
			continue // an ICMP message that the address is unreachable
		}
		now := time.Now()
		number := binary.BigEndian.Uint64(buffer)
		p.mu.Lock()
		if number < uint64(len(p.requests)) {
			if r := &p.requests[number]; !r.answered && now.Sub(r.at) <= patience {
				r.answered = true
				r.after = now.Sub(r.at)
				r.node = int(buffer[8])
			}
		}
		p.mu.Unlock()
	}
}

// since returns the requests from a time on that are decided.
func (p *prober) since(at time.Time) []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []request
	for _, r := range p.requests {
		if !r.at.Before(at) && (r.answered || time.Since(r.at) > patience) {
			all = append(all, r)
		}
	}
	return all
}

// forget drops what was asked so far.
func (p *prober) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.requests {
		p.requests[i].at = time.Time{}
	}
}

// outage is the longest time that the client was without an answer: between the requests before and after that were
// answered, less the time between two requests that follow each other.
func outage(requests []request) time.Duration {
	var longest time.Duration
	var last time.Time
	for _, r := range requests {
		if !r.answered {
			continue
		}
		if !last.IsZero() {
			longest = max(longest, r.at.Sub(last)-requestEvery)
		}
		last = r.at
	}
	return longest
}

// steady reports whether requests were answered for a while, all by one node other than some.
func steady(requests []request, window time.Duration, but int) bool {
	if len(requests) == 0 {
		return false
	}
	end := requests[len(requests)-1].at
	node := -1
	counted := 0
	for i := len(requests) - 1; i >= 0 && end.Sub(requests[i].at) < window; i-- {
		r := requests[i]
		if !r.answered || r.node == but || node >= 0 && r.node != node {
			return false
		}
		node, counted = r.node, counted+1
	}
	return counted >= int(window/requestEvery)*3/4
}
