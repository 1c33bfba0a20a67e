//go:build linux

package netstate

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// receiveBuffer is the requested size of the event socket's buffer, in bytes: a node with many pods causes bursts.
const receiveBuffer = 1 << 20

// Watch calls changed whenever the kernel reports a change of a link, an address, a route, a rule or of the few
// settings that it reports (RTM_NEWNETCONF; rp_filter is one), and whenever events were lost (ENOBUFS), until ctx
// ends. The content of events is not used: a snapshot follows anyway.
func Watch(ctx context.Context, changed func()) error { return watch(ctx, func() {}, changed) }

// watch calls begun when no later change can be missed.
func watch(ctx context.Context, begun, changed func()) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV4_NETCONF)
	if err != nil {
		return fmt.Errorf("subscribe to changes of the network: %w", err)
	}
	stop := context.AfterFunc(ctx, socket.Close)
	defer func() {
		if stop() {
			socket.Close()
		}
	}()
	// Without CAP_NET_ADMIN the limit of net.core.rmem_max holds; a smaller buffer only means more resyncs.
	if err := socket.SetReceiveBufferSize(receiveBuffer, false); err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to enlarge the event buffer", "reason", err.Error())
	}
	begun()
	for {
		_, _, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			klog.FromContext(ctx).V(2).Info("Network events were lost, reading everything again")
		case err != nil:
			return fmt.Errorf("receive changes of the network: %w", err)
		default:
		}
		changed()
	}
}
