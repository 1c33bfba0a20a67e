//go:build linux

// Package space holds network, mount and host-name namespaces and runs functions, programs and connections in them.
package space

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Space is a host of the lab: network interfaces, mounts and a host name of its own. Namespaces belong to threads,
// so one thread lives in it for as long as it is open, and everything that is started there dies with that thread.
type Space struct {
	// Name is the host name.
	Name string
	// Net changes and lists the links, addresses, routes and neighbours.
	Net *netlink.Handle

	mu    sync.RWMutex // guards fd against Close
	fd    netns.NsHandle
	inode uint64
	work  chan func()
	quit  chan struct{}
	ended chan struct{}
	close sync.Once
}

// Open makes a space in which the loopback interface is up, /sys shows its own interfaces and /run (with home and
// tmp) is empty and its own.
func Open(name string) (*Space, error) {
	s := &Space{Name: name, work: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{}),
		fd: netns.None()}
	ready := make(chan error)
	go offMainThread(func() { s.live(ready) })
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	if err := s.attach(); err != nil {
		s.Close()
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	return s, nil
}

// offMainThread calls a function on a goroutine that is locked to a thread other than the main one. The runtime ends
// the thread of a locked goroutine with it, but never the main thread, whose namespaces and children would stay.
func offMainThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	// As long as this goroutine holds the main thread, the next one gets another.
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		offMainThread(f)
	}()
	<-done
}

// live is the resident thread. It is never unlocked, so that the runtime ends it, and with it the namespaces.
func (s *Space) live(ready chan<- error) {
	defer close(s.ended)
	err := s.enter()
	ready <- err
	if err != nil {
		return
	}
	for {
		select {
		case f := <-s.work:
			f()
		case <-s.quit:
			return
		}
	}
}

// enter moves the calling thread into new namespaces and sets them up.
func (s *Space) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("new namespaces (root or user namespaces are needed): %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range []struct{ kind, target string }{{"sysfs", "/sys"}, {"tmpfs", "/run"}} {
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for _, dir := range []string{"/run/home", "/run/tmp"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	fd, err := netns.Get()
	if err != nil {
		return err
	}
	s.fd = fd
	return unix.Sethostname([]byte(s.Name))
}

// attach opens the netlink handle and sets the loopback interface up.
func (s *Space) attach() error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(s.fd), &stat); err != nil {
		return err
	}
	s.inode = stat.Ino
	handle, err := netlink.NewHandleAt(s.fd, unix.NETLINK_ROUTE) // without the family it fails where XFRM is missing
	if err != nil {
		return err
	}
	s.Net = handle
	lo, err := s.Net.LinkByName("lo")
	if err != nil {
		return err
	}
	return s.Net.LinkSetUp(lo)
}

// Fd is the network namespace, for netlink.NsFd. It is valid until Close.
func (s *Space) Fd() int { return int(s.fd) }

// Do runs a function on the resident thread: it sees the space's network, mounts and host name, and a program that
// it starts stays in the space. Keep it short: the functions of a space run one after another.
func (s *Space) Do(f func() error) error {
	result := make(chan error, 1)
	select {
	case s.work <- func() { result <- f() }:
		return <-result
	case <-s.ended:
		return fmt.Errorf("host %s is gone", s.Name)
	}
}

// Dial connects from the space; the arguments are those of net.Dialer.DialContext, the address a literal one.
func (s *Space) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return s.DialFrom(ctx, netip.Addr{}, network, address)
}

// DialFrom is Dial with an address of the space as the near end, for TCP and UDP; the zero value leaves it to the
// kernel.
func (s *Space) DialFrom(ctx context.Context, from netip.Addr, network, address string) (net.Conn, error) {
	dialer := net.Dialer{}
	switch {
	case !from.IsValid():
	case strings.HasPrefix(network, "udp"):
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	default:
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	var conn net.Conn
	err := s.Visit(func() error {
		var err error
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens in the space.
func (s *Space) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var listener net.Listener
	err := s.Visit(func() error {
		var err error
		listener, err = new(net.ListenConfig).Listen(ctx, network, address)
		return err
	})
	return listener, err
}

// Visit runs a function that may take its time on a thread of its own in the network of the space (not in its
// mounts). A socket stays in the namespace that its thread was in when it was made.
func (s *Space) Visit(f func() error) error {
	result := make(chan error, 1)
	go offMainThread(func() {
		home, err := netns.Get()
		if err != nil {
			result <- err
			return
		}
		defer func() { _ = home.Close() }()
		if err := s.join(); err != nil {
			result <- fmt.Errorf("enter host %s: %w", s.Name, err)
			return
		}
		err = f()
		if netns.Set(home) == nil { // else the thread stays locked and ends
			runtime.UnlockOSThread()
		}
		result <- err
	})
	return <-result
}

// join moves the calling thread into the network of the space.
func (s *Space) join() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return netns.Set(s.fd)
}

// Sysctl sets a value below /proc/sys/net, such as "ipv4/ip_forward". Names of interfaces may contain dots.
func (s *Space) Sysctl(name, value string) error {
	err := s.Do(func() error {
		f, err := os.OpenFile(filepath.Join("/proc/sys/net", name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(value)
		return err
	})
	if err != nil {
		return fmt.Errorf("host %s: set %s to %s: %w", s.Name, name, value, err)
	}
	return nil
}

// Close ends the resident thread. The kernel ends every program that was started from it (PDEATHSIG) and, when the
// last one is gone, removes the namespaces with all that is in them.
func (s *Space) Close() {
	s.close.Do(func() {
		close(s.quit)
		<-s.ended
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.Net != nil {
			s.Net.Close()
		}
		if s.fd.IsOpen() {
			_ = s.fd.Close()
		}
	})
}

// Up sets a link up.
func (s *Space) Up(link netlink.Link) error {
	if err := s.Net.LinkSetUp(link); err != nil {
		return fmt.Errorf("host %s: set %s up: %w", s.Name, link.Attrs().Name, err)
	}
	return nil
}

// Address sets a link up and gives it an address, if there is one; having it already is not an error.
func (s *Space) Address(name string, address netip.Prefix) error {
	link, err := s.Net.LinkByName(name)
	if err != nil {
		return fmt.Errorf("host %s: find %s: %w", s.Name, name, err)
	}
	if err := s.Up(link); err != nil || !address.IsValid() {
		return err
	}
	if err := s.Net.AddrReplace(link, &netlink.Addr{IPNet: IPNet(address)}); err != nil {
		return fmt.Errorf("host %s: give %s the address %s: %w", s.Name, name, address, err)
	}
	return nil
}

// DefaultRoute sends everything without a better route to the gateway, which is taken to be on the link.
func (s *Space) DefaultRoute(link netlink.Link, gateway netip.Addr) error {
	return s.Route(link, netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway)
}

// Route sends what is for a network to a next hop, which is taken to be on the link.
func (s *Space) Route(link netlink.Link, to netip.Prefix, via netip.Addr) error {
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: IPNet(to), Gw: via.AsSlice(),
		Flags: int(netlink.FLAG_ONLINK)}
	if err := s.Net.RouteReplace(r); err != nil {
		return fmt.Errorf("host %s: route to %s via %s: %w", s.Name, to, via, err)
	}
	return nil
}

// Sysctls sets values in no particular order.
func (s *Space) Sysctls(values map[string]string) error {
	for name, value := range values {
		if err := s.Sysctl(name, value); err != nil {
			return err
		}
	}
	return nil
}

// IPNet converts a prefix.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Environment is what every program in a space finds in its environment, before what it is given.
func (s *Space) Environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/run/home", "TMPDIR=/run/tmp", "HOSTNAME=" + s.Name}
}

// Start starts a program in the space. It is killed when the space is closed.
func (s *Space) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return s.Do(cmd.Start)
}

// Processes are the IDs of the processes in the space, children of what was started there included. A process
// belongs to the space whose network it uses; this process, whose threads visit spaces, belongs to none.
func (s *Space) Processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes of host %s: %w", s.Name, err)
	}
	var ids []int
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil || id == os.Getpid() {
			continue
		}
		var stat unix.Stat_t
		// A process may end while the list is read.
		if unix.Stat(filepath.Join("/proc", e.Name(), "ns/net"), &stat) == nil && stat.Ino == s.inode {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Kill sends SIGKILL to every process in the space until none is left.
func (s *Space) Kill() error {
	// A process may fork while the list is read; its child is found the next time. The bound stops a fork bomb.
	for range 100 {
		ids, err := s.Processes()
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			_ = unix.Kill(id, unix.SIGKILL)
		}
	}
	return nil
}
