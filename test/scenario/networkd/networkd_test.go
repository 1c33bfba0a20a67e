//go:build linux

package networkd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/vlan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/guest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

const program = "systemd-networkd"

func TestMain(m *testing.M) {
	// It is a service and not in anybody's PATH.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/lib/systemd:/lib/systemd"); err != nil {
		panic(err)
	}
	if err := unpack(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: no netplan and ifupdown for these tests:", err)
		os.Exit(1)
	}
	written, err := writeProfiles()
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: no profiles of NetworkManager for these tests:", err)
		os.Exit(1)
	}
	options := []kernel.Option{kernel.Programs(program, "networkctl", "dbus-daemon", "dash", "ip", "nft", "sysctl",
		"generate", "ifup", "ifdown", "ifquery", "nmcli", "NetworkManager", "python3.11", "bridge"),
		kernel.File(written),
		kernel.File(filepath.Join(os.Getenv(ifupdown2), "usr", "share", "ifupdown2")),
		kernel.File(filepath.Join(os.Getenv(ifupdown2), "etc", "network")),
		kernel.File(os.Getenv(hooks)),
		kernel.File(filepath.Join(root(), "agent", "verify", "check", "testdata")),
		kernel.File(filepath.Join(root(), "docs", "guides", "network.md"))}
	for _, directory := range filepath.SplitList(os.Getenv(pythonPath)) {
		options = append(options, kernel.File(directory))
	}
	code := kernel.Main(m, options...)
	if os.Getenv(kernel.Variable) != guest.Inside {
		err = os.RemoveAll(written)
	}
	if err != nil {
		panic(err)
	}
	os.Exit(code)
}

// service is systemd-networkd with a configuration of its own.
type service struct {
	// tool configures the server by it; lacks is what its own uplink lacks.
	tool  check.Tool
	lacks func(*testing.T) string
	// again sets up the whole network again by its files, in place of a restart of the machine. A walk ends with it
	// where endsAgain is set.
	again     func(*testing.T)
	endsAgain bool
	// rename makes the server's names of those in a fault; nil where they are the same.
	rename *strings.Replacer

	t      *testing.T
	path   string
	cmd    *exec.Cmd
	output *bytes.Buffer
}

func (s *service) renamed(script string) string {
	if s.rename == nil {
		return script
	}
	return s.rename.Replace(script)
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// prepare makes the world that systemd would make for its service.
func prepare(t *testing.T) *service {
	t.Helper()
	path, err := exec.LookPath(program)
	must(t, "find "+program, err)
	empty(t, "/etc/systemd/network", "/run/systemd", "/run/udev")
	for _, dir := range []string{"links", "leases", "lldp"} {
		must(t, "make its state", os.MkdirAll(filepath.Join("/run/systemd/netif", dir), 0o755))
	}
	// The user that the service becomes. Its number does not matter here.
	overlay(t, "/etc/passwd", "root:x:0:0::/:/bin/sh\nsystemd-network:x:0:0::/:/bin/false\n")
	overlay(t, "/etc/group", "root:x:0:\nsystemd-network:x:0:\n")
	s := &service{tool: check.Networkd, lacks: uplinkLacks, t: t, path: path, output: &bytes.Buffer{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s says:\n%s", program, s.output)
		}
	})
	return s
}

// empty gives directories no content for the rest of the test.
func empty(t *testing.T, directories ...string) {
	t.Helper()
	for _, path := range directories {
		must(t, "make "+path, os.MkdirAll(path, 0o755))
		must(t, "mount over "+path, unix.Mount("tmpfs", path, "tmpfs", 0, "mode=755"))
		t.Cleanup(func() { must(t, "unmount "+path, unix.Unmount(path, unix.MNT_DETACH)) })
	}
}

// overlay lets a file have another content in this mount namespace.
func overlay(t *testing.T, path, content string) {
	t.Helper()
	if _, err := os.Stat(path); os.IsNotExist(err) {
		must(t, "write "+path, os.WriteFile(path, nil, 0o644))
	}
	other := filepath.Join(t.TempDir(), "file")
	must(t, "write", os.WriteFile(other, []byte(content), 0o644))
	must(t, "mount over "+path, unix.Mount(other, path, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, "unmount "+path, unix.Unmount(path, unix.MNT_DETACH)) })
}

func (s *service) configure(name, content string) {
	s.t.Helper()
	must(s.t, "configure", os.WriteFile(filepath.Join("/etc/systemd/network", name), []byte(content), 0o644))
}

// initialise notes of every interface what udev notes once it has seen it; the service waits for that.
func (s *service) initialise() {
	s.t.Helper()
	const data = "/run/udev/data"
	must(s.t, "make "+data, os.MkdirAll(data, 0o755))
	links, err := netlink.LinkList()
	must(s.t, "list interfaces", err)
	for _, l := range links {
		must(s.t, "note", os.WriteFile(filepath.Join(data, "n"+strconv.Itoa(l.Attrs().Index)), []byte("I:1\n"), 0o644))
	}
}

func (s *service) start() {
	s.t.Helper()
	s.initialise()
	s.cmd = exec.Command(s.path)
	s.cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=info", "SYSTEMD_LOG_TARGET=console")
	s.cmd.Stdout = s.output
	s.cmd.Stderr = s.output
	must(s.t, "start "+program, s.cmd.Start())
	s.t.Cleanup(s.stop)
}

func (s *service) stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(unix.SIGTERM)
		_ = s.cmd.Wait() // it ends by the signal
	}
}

// TestRestart restarts systemd-networkd on a managed node. It takes away what it does not know, on interfaces that it
// configures; without a managing agent that lasts until an administrator repairs it.
func TestRestart(t *testing.T) {
	for _, tc := range []struct {
		name, foreign string
		// lost are beginnings of what it takes away.
		lost []string
	}{
		{"that configures the bond", "", []string{"rule"}},
		{"that configures every interface", "[Match]\nName=bond0.*\n[Network]\nLinkLocalAddressing=no\n",
			[]string{"rule", "route", "address"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := prepare(t)
			s.configure("10-bond.network",
				"[Match]\nName=bond0\n[Network]\nAddress=10.0.0.2/24\nGateway=10.0.0.1\nLinkLocalAddressing=no\n")
			if tc.foreign != "" {
				s.configure("20-foreign.network", tc.foreign)
			}
			connect(t)
			s.start()
			keep(t)
			// One look for both: the service may still be taking away what it found at its first start.
			var want []string
			await(t, "the agent's work", func() bool {
				want = ours(t)
				return complete(want)
			})
			s.stop()
			settled(t, want)

			began := time.Now()
			s.start()
			lost, took := disturbance(t, want, tc.lost, began)
			t.Logf("figure networkd_restart_repaired %.2f s", took.Seconds())
			if !begins(lost, tc.lost) {
				t.Errorf("the restart took away %q and not each of %q: the test shows nothing", lost, tc.lost)
			}
			if limits.Late(took, 2*time.Second) {
				t.Errorf("what the restart took away was back after %s, want 2 s", took)
			}
			settled(t, want)
		})
	}
}

// connect makes a bond with one member; the far end of its cable only gives it a carrier.
func connect(t *testing.T) {
	t.Helper()
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
	bond.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
	bond.Miimon = 50
	err := netlink.LinkAdd(bond)
	if errors.Is(err, unix.EEXIST) { // the kernel's module makes one when it is loaded
		must(t, "delete bond0", netlink.LinkDel(find(t, "bond0")))
		err = netlink.LinkAdd(bond)
	}
	must(t, "add bond0", err)
	must(t, "add a cable", netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eno1"},
		PeerName: "port1"}))
	must(t, "enslave eno1", netlink.LinkSetMaster(find(t, "eno1"), bond))
	for _, name := range []string{"eno1", "port1", "bond0"} {
		must(t, "set "+name+" up", netlink.LinkSetUp(find(t, name)))
	}
	t.Cleanup(func() {
		must(t, "remove bond0", netlink.LinkDel(find(t, "bond0")))
		must(t, "remove the cable", netlink.LinkDel(find(t, "eno1")))
	})
}

func find(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	must(t, "find "+name, err)
	return link
}

// keep runs a managing agent's reconcilers until the test ends, and then takes back what they did.
func keep(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	journal := &ownership.Journal{}
	system := vlan.System{Journal: journal}
	path := returnpath.New(returnpath.Config{
		Expected: func() []check.Expected { return []check.Expected{published()} }, Bits: returnpath.DefaultBits,
		Journal: journal,
		Watches: []func(context.Context, func()) error{netstate.Watch, returnpath.WatchTable},
	})
	var group sync.WaitGroup
	for _, k := range []interface{ Run(context.Context) error }{
		vlan.New(vlan.Config{Expected: published, Kernel: system, Prober: arp.NewProber(), Watch: netstate.Watch,
			Record: func(e vlan.Event) { t.Logf("the agent says: %s %s", e.Reason, e.Message) }}), path,
	} {
		group.Go(func() {
			if err := k.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		group.Wait()
		must(t, "clean up the return path", path.Cleanup(context.Background()))
		_, err := vlan.Cleanup(context.Background(), system)
		must(t, "clean up the interface", err)
	})
}

// ours lists what the agent made: the interface with its address, routes, rules.
func ours(t *testing.T) []string {
	t.Helper()
	var lines []string
	link, err := netlink.LinkByName("bond0.100")
	if err != nil {
		return nil
	}
	// Not whether it runs: the carrier comes a moment after the agent's work.
	lines = append(lines, "link "+link.Attrs().Name+" "+(link.Attrs().Flags&^net.FlagRunning).String())
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	must(t, "list addresses", err)
	for _, a := range addresses {
		lines = append(lines, "address "+a.IPNet.String())
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: ownership.Protocol},
		netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	must(t, "list routes", err)
	for _, r := range routes {
		lines = append(lines, "route "+r.String())
	}
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	must(t, "list rules", err)
	for _, r := range rules {
		if r.Protocol == ownership.Protocol {
			lines = append(lines, "rule "+r.String())
		}
	}
	slices.Sort(lines)
	return lines
}

// complete reports whether there is something of each kind, and rules and routes for both gateways.
func complete(lines []string) bool {
	count := map[string]int{}
	for _, line := range lines {
		kind, _, _ := strings.Cut(line, " ")
		count[kind]++
	}
	return count["link"] == 1 && count["address"] == 1 && count["route"] == 6 && count["rule"] == 6
}

// patience is how long a test waits for what has to come. It is long, because systemd-networkd calls a link configured
// only 12 s after it began to solicit routers that are not there, and begins again with each change.
const patience = 5 * time.Minute

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for begun := time.Now(); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("%s: not within %s; there is %q", what, patience, ours(t))
		}
	}
}

// settled checks that nothing changes for a while.
func settled(t *testing.T, want []string) {
	t.Helper()
	await(t, "rest", func() bool { return slices.Equal(ours(t), want) })
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		if got := ours(t); !slices.Equal(got, want) {
			t.Fatalf("there is %q, want %q", got, want)
		}
	}
}

// begins reports whether each of some kinds is the beginning of a line.
func begins(lines, kinds []string) bool {
	return !slices.ContainsFunc(kinds, func(kind string) bool {
		return !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, kind) })
	})
}

// disturbance looks on until something of each kind was missing and has been there for a while again: what of want was
// missing at any moment, and how long anything was, without the time that this machine stood still.
func disturbance(t *testing.T, want, kinds []string, began time.Time) (lost []string, took time.Duration) {
	t.Helper()
	const look = 50 * time.Millisecond // more than a look takes
	const rest = 4 * time.Second
	var missing, sound time.Duration
	for last := began; sound < rest || !begins(lost, kinds) && time.Since(began) < limits.Wait; {
		before := len(lost)
		got := ours(t)
		whole := true
		for _, line := range want {
			if slices.Contains(got, line) {
				continue
			}
			whole = false
			if !slices.Contains(lost, line) {
				lost = append(lost, line)
			}
		}
		passed := min(look, time.Since(last))
		last = time.Now()
		switch {
		case !whole && before == 0: // it begins here
			sound = 0
		case !whole:
			missing, sound = missing+sound+passed, 0
		default:
			sound += passed
		}
		if missing > limits.Wait {
			t.Fatalf("after %s there is %q, want %q", missing, got, want)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return lost, missing
}
