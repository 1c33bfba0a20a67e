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

// maxAge is how long the links, addresses, rules and routes once read serve while the kernel tells of no change. To list
// them is the largest part of what a sample costs on a node with hundreds of pods.
const maxAge = 25 * time.Second

// tables are what the kernel tells changes of.
type tables struct {
	links     []check.Link
	addresses []check.Address
	rules     []check.Rule
	routes    map[int][]check.Route
}

// tableCache keeps the tables between two reads. It keeps nothing while nobody watches.
type tableCache struct {
	watched atomic.Bool
	// changes counts what the watch was told.
	changes atomic.Uint64

	mu   sync.Mutex
	kept tables
	// at is when the tables were read, after so many changes; zero when they must not be used.
	at    time.Time
	after uint64
}

// Watch is Watch of the package. While it runs, Read rests on what it was told.
func (r *Reader) Watch(ctx context.Context, changed func()) error {
	defer r.keeper.watched.Store(false)
	return watch(ctx, func() {
		// Whatever changed while nobody watched is unknown.
		r.keeper.changes.Add(1)
		r.keeper.watched.Store(true)
	}, func() {
		r.keeper.changes.Add(1)
		changed()
	})
}

// read returns the tables as they are now.
func (k *tableCache) read(ctx context.Context) (tables, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// First the count, then the tables: a change in between is seen by the next read.
	watched, after := k.watched.Load(), k.changes.Load()
	if watched && after == k.after && !k.at.IsZero() && time.Since(k.at) < maxAge {
		if links, err := again(k.kept.links); err == nil {
			k.kept.links = links
			return k.kept, nil
		}
	}
	k.at = time.Time{}
	now := time.Now()
	t, err := readTables(ctx)
	if err == nil && watched {
		k.kept, k.at, k.after = t, now, after
	}
	return t, err
}

// again reads anew what the kernel changes of links without a word: what a bond and its members know of their partner.
func again(links []check.Link) ([]check.Link, error) {
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
	if t.links, err = dump(ctx, listLinks); err != nil {
		return t, fmt.Errorf("list network interfaces: %w", err)
	}
	addresses, err := dump(ctx, func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
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
