// Package listen serves on the private addresses of a machine, and on no public one. Both programs run in the network
// of their host, which may be on the Internet, and they cannot be given the address of their Node: without --node-ip a
// kubelet knows none until the controller has initialised the Node.
package listen

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Flag is the flag of both programs that has them use this package.
const Flag = "metrics-on-private-addresses"

// interval is the time between two looks for addresses that the machine did not have before.
const interval = 10 * time.Second

// OnPrivate returns a listener that accepts connections from first and, on the same TCP port, from each private address
// of the machine, those that it gets later included. It closes first, like all others, when it is closed or ctx ends.
func OnPrivate(ctx context.Context, first net.Listener) net.Listener {
	return onPrivate(ctx, first, interval, privateAddresses)
}

func onPrivate(ctx context.Context, first net.Listener, interval time.Duration,
	addresses func() ([]netip.Addr, error)) net.Listener {
	own, err := netip.ParseAddrPort(first.Addr().String())
	if err != nil || own.Addr().IsUnspecified() {
		return first // it has all addresses already
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{Listener: first, ctx: ctx, cancel: cancel, accepted: make(chan accepted)}
	l.add(first)
	opened := map[netip.Addr]bool{own.Addr(): true}
	go func() {
		_ = loop.Run(ctx, func(ctx context.Context) time.Duration {
			l.open(addresses, own.Port(), opened)
			return interval
		})
	}()
	return l
}

type accepted struct {
	conn net.Conn
	err  error
}

// listener has the address of the first of its listeners.
type listener struct {
	net.Listener

	ctx      context.Context // its own life, which Close ends
	cancel   context.CancelFunc
	accepted chan accepted
}

// open listens on the addresses that were not opened before.
func (l *listener) open(addresses func() ([]netip.Addr, error), port uint16, opened map[netip.Addr]bool) {
	logger := klog.FromContext(l.ctx)
	all, err := addresses()
	if err != nil {
		logger.Error(err, "Failed to list the addresses of this machine")
	}
	for _, address := range all {
		if opened[address] {
			continue
		}
		at := netip.AddrPortFrom(address, port).String()
		more, err := (&net.ListenConfig{}).Listen(l.ctx, "tcp", at)
		if err != nil {
			logger.V(1).Info("Not listening on a private address yet", "address", at, "reason", err)
			continue
		}
		opened[address] = true
		l.add(more)
		logger.Info("Listening on a private address, too", "address", at)
	}
}

// add passes on what a listener accepts, and closes it when the life of l ends.
func (l *listener) add(from net.Listener) {
	context.AfterFunc(l.ctx, func() { _ = from.Close() })
	go func() {
		for {
			conn, err := from.Accept()
			select {
			case l.accepted <- accepted{conn, err}:
			case <-l.ctx.Done():
				if conn != nil {
					_ = conn.Close()
				}
				return
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.cancel()
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil // the end of its life was faster
}

// privateAddresses lists the private addresses of the machine. Those of kube-proxy's dummy interface are Services'.
func privateAddresses() ([]netip.Addr, error) {
	interfaces, err := net.Interfaces()
	var private []netip.Addr
	for _, each := range interfaces {
		if each.Name == "kube-ipvs0" {
			continue
		}
		found, failed := each.Addrs()
		err = errors.Join(err, failed)
		for _, address := range found {
			prefix, failed := netip.ParsePrefix(address.String())
			if failed == nil && contract.IsPrivate(prefix.Addr()) {
				private = append(private, prefix.Addr().Unmap())
			}
		}
	}
	return private, err
}
