package netinfo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

const (
	// maxDumps bounds the attempts at a dump that the kernel says was interrupted by a change.
	maxDumps = 5
	// dumpPause lets the change that interrupted a dump finish.
	dumpPause = 10 * time.Millisecond
)

// Reader reads the network namespace of the calling process.
type Reader struct {
	// SysctlRoot is the directory of the kernel's settings, normally /proc/sys.
	SysctlRoot string
	// FileRoot is where the configuration of the machine begins, normally "/".
	FileRoot string
}

// NewReader returns a reader of the running machine.
func NewReader() *Reader { return &Reader{SysctlRoot: "/proc/sys", FileRoot: "/"} }

// Read takes a snapshot of links, addresses and settings. ARP answers and route look-ups are left to the caller.
func (r *Reader) Read(ctx context.Context) (check.Snapshot, error) {
	links, err := dump(ctx, netlink.LinkList)
	if err != nil {
		return check.Snapshot{}, fmt.Errorf("list network interfaces: %w", err)
	}
	addresses, err := dump(ctx, func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return check.Snapshot{}, fmt.Errorf("list addresses: %w", err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return check.Snapshot{}, fmt.Errorf("read the hostname: %w", err)
	}
	s := check.Snapshot{Hostname: hostname, Renderer: r.renderer()}
	for _, l := range links {
		s.Links = append(s.Links, linkOf(l))
	}
	for _, a := range addresses {
		if value, valid := addressOf(a); valid {
			s.Addresses = append(s.Addresses, value)
		}
	}
	r.readSettings(&s)
	return s, nil
}

// dump repeats a listing that was interrupted: its result may lack entries.
func dump[T any](ctx context.Context, list func() ([]T, error)) ([]T, error) {
	var values []T
	var err error
	for range maxDumps {
		values, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return values, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(dumpPause):
		}
	}
	return nil, err
}

// Routes looks up routes as the kernel would choose them (RTM_GETROUTE); nothing is sent.
func (r *Reader) Routes(s check.Snapshot, questions []check.RouteQuestion) []check.RouteAnswer {
	answers := make([]check.RouteAnswer, 0, len(questions))
	for _, q := range questions {
		answers = append(answers, lookUp(s, q))
	}
	return answers
}

func lookUp(s check.Snapshot, q check.RouteQuestion) check.RouteAnswer {
	answer := check.RouteAnswer{Destination: q.Destination, Source: q.Source}
	options := &netlink.RouteGetOptions{}
	if q.Source.IsValid() {
		options.SrcAddr = q.Source.AsSlice()
	}
	routes, err := netlink.RouteGetWithOptions(q.Destination.AsSlice(), options)
	switch {
	case err != nil:
		answer.Error = errnoText(err)
	case len(routes) == 0:
		answer.Error = "no answer"
	case routes[0].Type == unix.RTN_BLACKHOLE, routes[0].Type == unix.RTN_UNREACHABLE, routes[0].Type == unix.RTN_PROHIBIT:
		answer.Error = "refused by a route"
	default:
		if l := s.LinkIndexed(routes[0].LinkIndex); l != nil {
			answer.Interface = l.Name
		}
		if gateway, valid := netip.AddrFromSlice(routes[0].Gw); valid {
			answer.Gateway = gateway.Unmap()
		}
	}
	return answer
}

func errnoText(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno) + ": " + errno.Error()
	}
	return err.Error()
}
