//go:build linux

// Package lab is a network of servers, a switch, a gateway and a client on which real programs run: in namespaces of
// this machine where its kernel has 802.1Q, else inside a virtual machine. The caller does not notice which.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/rpc"
	"sync"
	"sync/atomic"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// Server is a bare-metal server of the lab.
type Server = wire.Server

// Config describes a lab.
type Config struct {
	// Servers are the servers. Nothing but the private network is configured on them.
	Servers []Server
	// HostPorts are TCP ports on this machine's loopback interface that servers reach, through their private VLAN
	// only, at the same port of wire.ManagementAddress.
	HostPorts []uint16
	// FeedURL is where the simulated API serves its data plane, on this machine's loopback interface; the path is
	// that of package dataplane. Without it no VLAN is ever open and the gateway serves no block.
	FeedURL string
	// ClientPrivate is an address of the client on the private network, from which it reaches HostPorts as servers do;
	// the zero value means that it has none.
	ClientPrivate netip.Prefix
	// NetworkPlugin leaves the connection of pods to a network plugin: their namespaces have only a loopback interface,
	// and no host has a route to pods.
	NetworkPlugin bool
	// Files are handed over: name → path on this machine. Each appears as /lab/<name> on every host.
	Files map[string]string
	// Programs are programs of this machine, such as nft, that the hosts find in their PATH.
	Programs []string
	// Machine has the lab in a virtual machine even where this machine's kernel would do, for programs that change more
	// than namespaces keep to themselves, such as a kubelet.
	Machine bool
	// MemoryMiB is the memory of the virtual machine where there is one; 0 means 1024.
	MemoryMiB int
	// TimeLimit ends the lab where it is in a virtual machine; 0 means 2 hours.
	TimeLimit time.Duration
	// Log receives what the lab's daemon has to say; nil discards it.
	Log io.Writer
}

// Lab is a running lab. Its methods may be called at the same time. The times that they return are by the caller's
// clock, exact to about the duration of a call.
type Lab struct {
	// Topology is what was built.
	wire.Topology
	// InMachine reports that the lab is in a virtual machine.
	InMachine bool

	client *rpc.Client
	end    context.CancelFunc
	ended  chan struct{}
	err    error         // how the place ended; valid when ended is closed
	calls  atomic.Uint64 // numbers those that can be cancelled
	stop   sync.Once
	result error
}

// stopAllowance is what the lab may take to end by itself before it is killed.
const stopAllowance = 20 * time.Second

// Start builds a lab and returns when it stands. The context bounds the start only; Stop ends the lab.
func Start(ctx context.Context, c Config) (*Lab, error) {
	c.MemoryMiB = cmp.Or(c.MemoryMiB, 1024)
	c.TimeLimit = cmp.Or(c.TimeLimit, 2*time.Hour)
	if c.Log == nil {
		c.Log = io.Discard
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the lab: %w", err)
	}
	defer func() { _ = listener.Close() }()
	l, err := launch(ctx, c, listener)
	if err != nil {
		return nil, fmt.Errorf("start the lab: %w", err)
	}
	if l.Topology, err = call[wire.Topology](ctx, l, "SetUp", wire.Setup{Servers: c.Servers,
		Host: l.hostAddress(), HostPorts: c.HostPorts, FeedURL: c.FeedURL,
		ClientPrivate: c.ClientPrivate, NetworkPlugin: c.NetworkPlugin}); err != nil {
		return nil, errors.Join(fmt.Errorf("start the lab: %w", err), l.Stop())
	}
	return l, nil
}

// Stop removes the lab with everything that runs in it and returns when nothing of it is left. It may be called
// again.
func (l *Lab) Stop() error {
	l.stop.Do(func() { l.result = l.shutDown() })
	return l.result
}

func (l *Lab) shutDown() error {
	defer l.end()
	if err := l.client.Close(); err != nil && !errors.Is(err, rpc.ErrShutdown) {
		return fmt.Errorf("stop the lab: %w", err)
	}
	timer := time.NewTimer(stopAllowance)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C:
		l.end()
		<-l.ended
		return fmt.Errorf("stop the lab: it did not end within %s and was killed: %w", stopAllowance, l.err)
	}
	if l.err != nil {
		return fmt.Errorf("the lab ended: %w", l.err)
	}
	return nil
}
