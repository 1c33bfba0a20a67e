//go:build linux

// Package daemon is the process in which the lab's namespaces live; it does what its caller says over one
// connection and takes everything away when that ends.
package daemon

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/rpc"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/forward"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/space"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/topology"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/dataplane"
)

// Daemon serves one caller.
type Daemon struct {
	*topology.Network
	*supervisor
	record claimRecord

	mu     sync.Mutex
	probes map[int]*runningProbe
	calls  map[uint64]context.CancelFunc
	// ctx ends with the connection; group holds everything that runs until then.
	ctx   context.Context
	group *errgroup.Group
}

type runningProbe struct {
	prober *prober
	stop   context.CancelFunc
	done   chan struct{}
}

// New makes a daemon that keeps the logs of programs in a directory.
func New(logs string) *Daemon {
	d := &Daemon{
		supervisor: newSupervisor(logs),
		probes:     map[int]*runningProbe{}, calls: map[uint64]context.CancelFunc{},
	}
	d.Network = topology.New(d.watch)
	return d
}

// Serve answers calls until the connection or the context ends, removes the lab and returns.
func (d *Daemon) Serve(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	d.ctx = ctx
	d.group = group
	server := rpc.NewServer()
	if err := server.RegisterName(wire.Service, d); err != nil {
		return fmt.Errorf("register the methods of the lab: %w", err)
	}
	group.Go(func() error {
		server.ServeConn(conn) // returns when the connection has ended
		cancel()
		return nil
	})
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	<-ctx.Done()
	d.Close()
	return group.Wait()
}

// forward makes the caller's services reachable for servers.
func (d *Daemon) forward(setup wire.Setup) error {
	host, err := d.Host(wire.Management)
	if err != nil {
		return err
	}
	for _, port := range setup.HostPorts {
		listener, err := host.Listen(d.ctx, "tcp", netip.AddrPortFrom(wire.ManagementAddress.Addr(), port).String())
		if err != nil {
			return fmt.Errorf("listen for servers on port %d: %w", port, err)
		}
		f := forward.Forwarder{Listener: listener, Target: net.JoinHostPort(setup.Host, strconv.Itoa(int(port)))}
		d.group.Go(func() error { return f.Run(d.ctx) })
	}
	return nil
}

// follow couples the network with the data plane of the simulated API.
func (d *Daemon) follow(setup wire.Setup) error {
	if setup.FeedURL == "" {
		return nil
	}
	feed, err := url.Parse(setup.FeedURL)
	if err != nil {
		return fmt.Errorf("data plane: %w", err)
	}
	if port := feed.Port(); port != "" {
		feed.Host = net.JoinHostPort(setup.Host, port)
	}
	d.group.Go(func() error { return dataplane.Follow(d.ctx, feed.String(), d.apply) })
	return nil
}

// apply carries a state of the data plane out. What cannot be carried out is said and not fatal: the next state may
// be better, and a test that depends on it fails with the evidence in the log.
func (d *Daemon) apply(state dataplane.DataPlane) error {
	logger := klog.FromContext(d.ctx)
	if err := d.Apply(state); err != nil {
		logger.Error(err, "Data plane applied in part", "revision", state.Revision)
		return nil
	}
	logger.V(2).Info("Data plane applied", "revision", state.Revision, "networks", len(state.Networks))
	return nil
}

// watch records ARP on an interface of the gateway.
func (d *Daemon) watch(host *space.Space, vlan int, link netlink.Link) (func(), error) {
	var conn *packet.Conn
	err := host.Visit(func() error {
		ifi := &net.Interface{Index: link.Attrs().Index, Name: link.Attrs().Name,
			HardwareAddr: link.Attrs().HardwareAddr, MTU: link.Attrs().MTU}
		var err error
		conn, err = packet.Listen(ifi, packet.Raw, unix.ETH_P_ARP, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch ARP on VLAN %d: %w", vlan, err)
	}
	done := make(chan struct{})
	d.group.Go(func() error {
		defer close(done)
		if err := d.record.Watch(conn, host.Name, vlan); err != nil {
			klog.FromContext(d.ctx).Error(err, "ARP is not watched any more", "vlan", vlan)
		}
		return nil
	})
	return func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = conn.Close()
	}, nil
}
