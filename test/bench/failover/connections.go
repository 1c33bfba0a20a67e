//go:build linux

package failover

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
)

const (
	// connectionCount is how many TCP connections the client has open when something happens.
	connectionCount = 20
	// echoPatience is how long an echo may take on a connection that is not broken: TCP sends again what was lost.
	echoPatience = 5 * time.Second
)

// serveTCP echoes what comes by TCP in a node's namespace.
func serveTCP(ctx context.Context, node *space.Space, index int) (stop func(), err error) {
	listener, err := node.Listen(ctx, "tcp", netip.AddrPortFrom(nodeAddress(index), echoPort).String())
	if err != nil {
		return nil, fmt.Errorf("serve TCP on %s: %w", node.Name, err)
	}
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				end := context.AfterFunc(ctx, func() { _ = conn.Close() })
				defer end()
				_, _ = io.Copy(conn, conn) // until the client ends, or this program
			})
		}
	})
	return func() {
		cancel()
		_ = listener.Close()
		group.Wait()
	}, nil
}

// connections are open TCP connections of the client to the Service.
type connections []net.Conn

func connect(ctx context.Context, client *space.Space) (all connections, err error) {
	for range connectionCount {
		conn, err := client.Dial(ctx, "tcp", netip.AddrPortFrom(virtual, echoPort).String())
		if err != nil {
			all.close()
			return nil, fmt.Errorf("connect with the Service: %w", err)
		}
		all = append(all, conn)
	}
	if broken := all.broken(); broken > 0 {
		all.close()
		return nil, fmt.Errorf("%d of %d connections do not work before anything happens", broken, connectionCount)
	}
	return all, nil
}

func (c connections) close() {
	for _, conn := range c {
		_ = conn.Close()
	}
}

// broken counts the connections on which nothing is echoed any more.
func (c connections) broken() int {
	results := make([]bool, len(c))
	var group sync.WaitGroup
	for i, conn := range c {
		group.Go(func() { results[i] = echoes(conn) })
	}
	group.Wait()
	broken := 0
	for _, ok := range results {
		if !ok {
			broken++
		}
	}
	return broken
}

func echoes(conn net.Conn) bool {
	if conn.SetDeadline(time.Now().Add(echoPatience)) != nil {
		return false
	}
	one := []byte{1}
	if _, err := conn.Write(one); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, one)
	return err == nil
}
