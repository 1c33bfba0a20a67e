//go:build linux

package netstate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// maxAge is how long cached links, addresses, rules and routes are used while the kernel reports no change. Listing
// them is the largest part of the cost of a sample on a node with hundreds of pods.
const maxAge = 25 * time.Second

// tables are what the kernel reports changes of.
type tables struct {
	links     []check.Link
	addresses []check.Address
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

// Watch watches the kernel, see watch. While it runs, Read uses the cache.
func (r *Reader) Watch(ctx context.Context, changed func()) error {
	defer r.cache.watched.Store(false)
	return watch(ctx, func() {
		// Changes before the watch are unknown.
		r.cache.changes.Add(1)
		r.cache.watched.Store(true)
	}, func() {
		r.cache.changes.Add(1)
		changed()
	})
}

// read returns the current tables.
func (k *tableCache) read(ctx context.Context) (tables, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// The count is read before the tables: a change in between is seen by the next read.
	watched, after := k.watched.Load(), k.changes.Load()
	if watched && after == k.after && !k.at.IsZero() && time.Since(k.at) < maxAge {
		if links, err := refreshBonds(k.kept.links); err == nil {
			k.kept.links = links
			return k.kept, nil
		}
	}
	k.at = time.Time{}
	now := time.Now()
	t, err := readTables(ctx)
	if err == nil && watched {
		k.kept = t
		k.at = now
		k.after = after
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
	addresses, err := Dump(ctx, func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return t, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addresses {
		if value, valid := addressOf(a); valid {
			t.addresses = append(t.addresses, value)
		}
	}
	t.rules, t.routes, err = readRouting(ctx, t.links)
	return t, err
}
