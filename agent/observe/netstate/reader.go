//go:build linux

package netstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// maxDumps bounds the attempts at a dump that a change interrupted.
	maxDumps = 5
	// dumpPause lets the change that interrupted a dump finish.
	dumpPause = 10 * time.Millisecond
)

// Reader reads the network namespace of the calling process.
type Reader struct {
	// SysctlRoot is the directory of the kernel's settings, normally /proc/sys.
	SysctlRoot string
	// FileRoot is the root of the machine's configuration files, normally "/".
	FileRoot string

	cache       tableCache
	machineOnce sync.Once
	machine     check.Machine
}

// NewReader returns a reader of the running machine.
func NewReader() *Reader { return &Reader{SysctlRoot: "/proc/sys", FileRoot: "/"} }

// Read takes a snapshot of links, addresses, rules, routes and settings. ARP answers and route look-ups are left to
// the caller. While Watch runs, links, addresses, rules and routes may be up to half a minute old if the kernel has
// reported no change since.
func (r *Reader) Read(ctx context.Context) (check.Snapshot, error) {
	t, err := r.cache.read(ctx)
	if err != nil {
		return check.Snapshot{}, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return check.Snapshot{}, fmt.Errorf("read the hostname: %w", err)
	}
	s := check.Snapshot{
		Hostname: hostname, Links: t.links, Addresses: t.addresses, Rules: t.rules, Tables: t.routes,
		Renderer: r.renderer(), Machine: r.readMachine(),
	}
	r.readSettings(&s)
	return s, nil
}

// Dump repeats a dump that was interrupted, because its result may lack entries.
func Dump[T any](ctx context.Context, list func() ([]T, error)) ([]T, error) {
	var values []T
	var err error
	for range maxDumps {
		values, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return values, err
		}
		if !loop.Sleep(ctx, dumpPause) {
			return nil, ctx.Err()
		}
	}
	return nil, err
}
