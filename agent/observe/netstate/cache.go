//go:build linux

package netstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// maxAge is how long cached links, addresses, rules and routes are used while the kernel reports no change. Listing
// them is the largest part of the cost of a sample on a node with hundreds of pods.
const maxAge = 25 * time.Second

// tables are what the kernel reports changes of.
type tables struct {
	links     []check.Link
	addresses []check.Address
	programs  []check.Program
	rules     []check.Rule
	routes    map[int][]check.Route
}

// tableCache keeps the tables between two reads. It keeps nothing while no watch runs.
type tableCache struct {
	watched atomic.Bool
	// changes counts the reported changes.
	changes atomic.Uint64

	mu   sync.Mutex
	kept tables
	// at is when the tables were read, after so many changes; zero when they must not be used.
	at    time.Time
	after uint64
}

// Watch calls changed as the function Watch does. While it runs, Read uses the cache.
func (r *Reader) Watch(ctx context.Context, changed func()) error {
	defer r.cache.watched.Store(false)
	return Watch(ctx, func() {
		r.cache.changes.Add(1)
		r.cache.watched.Store(true)
		changed()
	})
}

// read returns the current tables.
func (c *tableCache) read(ctx context.Context) (tables, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The count is read before the tables: a change in between is seen by the next read.
	watched, after := c.watched.Load(), c.changes.Load()
	if watched && after == c.after && !c.at.IsZero() && time.Since(c.at) < maxAge {
		if links, err := refreshBonds(c.kept.links); err == nil {
			c.kept.links = links
			return c.kept, nil
		}
	}
	c.at = time.Time{}
	now := time.Now()
	t, err := readTables(ctx)
	if err == nil && watched {
		c.kept = t
		c.at = now
		c.after = after
	}
	return t, err
}

// refreshBonds reads again what the kernel changes without an event: the LACP state of a bond and its members.
func refreshBonds(links []check.Link) ([]check.Link, error) {
	links = slices.Clone(links)
	for i, l := range links {
		if l.Bond == nil && l.Slave == nil {
			continue
		}
		read, err := readLink(l.Index)
		if err != nil {
			return nil, err
		}
		links[i] = read
	}
	return links, nil
}

func readTables(ctx context.Context) (t tables, err error) {
	if t.links, err = Dump(ctx, listLinks); err != nil {
		return t, fmt.Errorf("list network interfaces: %w", err)
	}
	if t.addresses, err = listAddresses(ctx, netlink.FAMILY_ALL); err != nil {
		return t, err
	}
	t.programs = listPrograms(t.links)
	t.rules, t.routes, err = readRouting(ctx, t.links)
	return t, err
}

// receiveBuffer is the requested size of the event socket's buffer, in bytes: a node with many pods causes bursts.
const receiveBuffer = 1 << 20

// Watch calls changed whenever the kernel reports a change of a link, an address, a route, a rule or of the few
// settings that it reports (RTM_NEWNETCONF; rp_filter is one), and whenever events were lost (ENOBUFS), until ctx
// ends. It calls changed once when it has subscribed, too: what changed before is not reported. The content of events
// is not used: a snapshot follows anyway.
func Watch(ctx context.Context, changed func()) error {
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
	changed()
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
