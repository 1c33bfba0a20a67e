//go:build linux

package networkd

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/docs/reference"
)

// Files of a user, below /etc/systemd/network: of the bond, of the VLAN interface, and of one in which all is wrong.
var (
	uplinkFiles = map[string]string{
		"10-bond0.netdev": "[NetDev]\nName=bond0\nKind=bond\n[Bond]\nMode=active-backup\nMIIMonitorSec=50ms\n",
		"10-ports.network": "[Match]\nName=eno1 eno2\n[Link]\nMTUBytes=9000\n" +
			"[Network]\nBond=bond0\nLinkLocalAddressing=no\n",
		"20-uplink.network": "[Match]\nName=bond0\n[Link]\nMTUBytes=9000\n[Network]\nAddress=10.0.0.2/24\n" +
			"LinkLocalAddressing=no\n[Route]\nDestination=10.1.0.0/16\nGateway=10.0.0.1\n",
	}
	publicFiles = map[string]string{
		"20-uplink.network.d/vlan.conf": "[Network]\nVLAN=bond0.100\n",
		"30-public.netdev":              "[NetDev]\nName=bond0.100\nKind=vlan\nMTUBytes=1500\n[VLAN]\nId=100\n",
		"30-public.network": "[Match]\nName=bond0.100\n[Network]\nAddress=192.0.2.2/28\nGateway=192.0.2.1\n" +
			"LinkLocalAddressing=no\n",
	}
	wrongFiles = map[string]string{
		"20-uplink.network.d/vlan.conf": "[Network]\nVLAN=bond0.100\n",
		"30-public.netdev":              "[NetDev]\nName=bond0.100\nKind=vlan\n[VLAN]\nId=101\n",
		"30-public.network": "[Match]\nName=bond0.100\n[Network]\nLinkLocalAddressing=no\n" +
			"[Link]\nMTUBytes=9000\n",
	}
)

// hardware is what a machine has before its network is configured, and a network of pods.
const hardware = `
ip link delete bond0 2>/dev/null || true # the kernel's module makes one in each namespace
ip -batch - <<END
link set lo up
link add eno1 type veth peer name port1 mtu 9000
link add eno2 type veth peer name port2 mtu 9000
link set port1 up
link set port2 up
link add cni0 type bridge
link add pod0 type dummy
link set pod0 master cni0 up
address add 10.244.1.1/24 dev cni0
link set cni0 up
END
sysctl -q -w net/ipv4/ip_forward=1
for port in port1 port2; do
	[ -z "$` + switchVariable + `" ] || ip link set $port netns $` + switchVariable + `
done
`

// serve starts systemd-networkd on a machine with the files of a user, beside which it configures the bond.
func serve(t *testing.T, files map[string]string) *service {
	t.Helper()
	s := newServer(t)
	all := maps.Clone(uplinkFiles)
	maps.Copy(all, files)
	for name, content := range all {
		must(t, "make the directory", os.MkdirAll(filepath.Dir(filepath.Join("/etc/systemd/network", name)), 0o755))
		s.configure(name, content)
	}
	s.boot("")
	return s
}

// newServer is a server of its own, with a bus and without any configuration.
func newServer(t *testing.T) *service {
	t.Helper()
	enter(t)
	s := prepare(t)
	// The service makes its identifier of DHCPv6 of it.
	overlay(t, "/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
	bus(t)
	return s
}

// boot lets the service configure the hardware, as at the start of the machine. prepare are commands that run before.
func (s *service) boot(prepare string) {
	s.t.Helper()
	s.again = func(t *testing.T) {
		t.Helper()
		s.stop()
		shell(t, tidy)
		s.boot(prepare)
	}
	shell(s.t, hardware+prepare)
	s.start()
	s.initialiseNext()
	await(s.t, "the bond", func() bool { return s.lacks(s.t) == "" && len(pending(s.t)) == 0 })
}

// uplinkLacks is what the server's own uplink lacks.
func uplinkLacks(t *testing.T) string {
	t.Helper()
	bond, err := netlink.LinkByName("bond0")
	if err != nil {
		return "bond0"
	}
	for _, name := range []string{"eno1", "eno2"} {
		if l := find(t, name).Attrs(); l.MasterIndex != bond.Attrs().Index || l.RawFlags&unix.IFF_UP == 0 {
			return name
		}
	}
	switch {
	case bond.Attrs().MTU != 9000:
		return "the MTU of bond0"
	case !has(t, "bond0", "10.0.0.2/24"):
		return "the address of bond0"
	case !leads(t, netlink.Route{Table: unix.RT_TABLE_MAIN}, "10.0.0.1"):
		return "the route by bond0"
	}
	return ""
}

// pending are the links that systemd-networkd works on, with what it says of each.
func pending(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("/run/systemd/netif/links/*")
	must(t, "list the states of links", err)
	var links []string
	for _, path := range paths {
		text, err := os.ReadFile(path) // it may be replaced just now
		state := adminState.FindString(string(text))
		if err != nil || state != "ADMIN_STATE=configured" && state != "ADMIN_STATE=unmanaged" {
			links = append(links, fmt.Sprintf("link %s: %s", filepath.Base(path), state))
		}
	}
	return links
}

var adminState = regexp.MustCompile(`(?m)^ADMIN_STATE=.*$`)

// repair follows what a finding prints for the server's tool. There is no systemd, so the test restarts the service, or
// sets up the whole network again.
func (s *service) repair(f check.Finding) {
	s.t.Helper()
	for _, fix := range f.Fixes {
		if fix.Tool != s.tool && fix.Tool != check.AnyTool {
			continue
		}
		steps := []check.Fix{{File: fix.File, Content: fix.Content}}
		for _, command := range runnable(fix).Commands {
			steps = append(steps, check.Fix{Commands: []string{command}})
		}
		for _, step := range steps {
			switch {
			case slices.ContainsFunc(step.Commands, restarts.MatchString):
				s.restart()
			case slices.ContainsFunc(step.Commands, restartsAll.MatchString):
				s.again(s.t)
			default:
				if err := followed(s.t.Context(), []check.Fix{step}); err != nil {
					s.t.Errorf("%s %s: %v", f.ID, f.Reason, err)
				}
			}
		}
	}
}

// restart waits until the service has its name on the bus: with systemd, a command for it would wait.
func (s *service) restart() {
	s.t.Helper()
	s.stop()
	s.start()
	s.initialiseNext()
	await(s.t, program+" on the bus", func() bool {
		return exec.CommandContext(s.t.Context(), "networkctl", "reload").Run() == nil
	})
}

// restarts are the commands in whose place the test restarts the service.
var restarts = regexp.MustCompile(`^systemctl (try-)?restart ` + program + `$`)

// restartsAll are the commands in whose place the test sets up the whole network again.
var restartsAll = regexp.MustCompile(`^systemctl (reboot|restart networking)$`)

// remains waits until systemd-networkd is done, and returns which findings are there nevertheless.
func (s *service) remains(ids []check.ID) []string {
	t := s.t
	t.Helper()
	begun := time.Now()
	for calm := 0; calm < 2; time.Sleep(50 * time.Millisecond) {
		var lacks []string
		report := findings(t)
		for _, id := range ids {
			if f := report.Finding(id); !gone(f) {
				lacks = append(lacks, fmt.Sprintf("%s %s %s", id, f.Reason, f.Because))
			}
		}
		if what := s.lacks(t); what != "" {
			lacks = append(lacks, "the server lost "+what)
		}
		if calm++; len(lacks) > 0 || len(pending(t)) > 0 {
			calm = 0
		}
		if time.Since(begun) > patience {
			return append(append(lacks, pending(t)...), bad(report)...)
		}
	}
	return nil
}

// walked are the faults that are made one after the other, in both orders: each course that fixes take once.
var walked = []string{"wrong VLAN ID", "address missing", "jumbo frames", "foreign hardware address",
	"VLAN interface down", "ARP off", "no default route", "block on a bridge", "table empty", "replies elsewhere",
	"replies of pods elsewhere", "VLAN interface missing", "in a bridge"}

// single are the faults that are made once: their fixes take the same course as that of one that is walked, with the
// same files or with commands of ip, except for the mode of the bond, which comes first: it is that of the server's
// configuration.
var single = []string{"wrong parent", "wrong protocol", "frames taken", "frames taken by interfaces that are down",
	"VLAN interface twice", "address on wrong interface", "wrong prefix length", "block taken by a bridge",
	"gateway's address here", "gateway pinned", "table without default", "uplink down"}

// TestEveryFixIsWalked: no finding with a fix for systemd-networkd, netplan or ifupdown is forgotten.
func TestEveryFixIsWalked(t *testing.T) {
	examples, err := reference.Examples(root())
	must(t, "read the findings", err)
	var reasons []string
	for _, f := range kernelFaults() {
		if slices.Contains(slices.Concat(walked, single, []string{wrongMode}), f.name) {
			reasons = append(reasons, f.reason)
		}
	}
	for _, tool := range []check.Tool{check.Networkd, check.Netplan, check.NetworkManager, check.Ifupdown} {
		seen := map[string]bool{}
		for _, f := range slices.Concat(slices.Collect(maps.Values(examples))...) {
			ofTool := func(fix check.Fix) bool { return fix.Tool == tool }
			if seen[f.Reason] || !slices.ContainsFunc(f.Fixes, ofTool) {
				continue
			}
			seen[f.Reason] = true
			if !slices.Contains(reasons, f.Reason) {
				t.Errorf("the fix of %s %s with %s is not walked", f.ID, f.Reason, tool)
			}
		}
		t.Logf("figure fixes_walked_%s %d findings", tool, len(seen))
	}
}

// walk makes faults one after the other and follows what each finding prints. After each step all findings that were
// fixed so far have to be gone. It returns how many pairs of a fix and an earlier one were tried, and how many broke.
// It ends with the first, for each look that is not satisfied takes minutes.
func (s *service) walk(names []string) (tried, broken int) {
	t := s.t
	t.Helper()
	var fixed []check.ID
	for _, name := range names {
		f := faultNamed(name)
		shell(t, s.renamed(f.script))
		s.repair(f.found(t))
		tried += len(fixed)
		fixed = append(fixed, f.id)
		if lacks := s.remains(fixed); len(lacks) > 0 {
			t.Errorf("after %s was fixed there is %q", name, lacks)
			return tried, 1
		}
	}
	return tried, 0
}

func faultNamed(name string) fault {
	return kernelFaults()[slices.IndexFunc(kernelFaults(), func(f fault) bool { return f.name == name })]
}

// found waits for the finding of the fault.
func (f fault) found(t *testing.T) check.Finding {
	t.Helper()
	var found check.Finding
	for begun := time.Now(); found.Reason != f.reason; time.Sleep(20 * time.Millisecond) {
		report := findings(t)
		found = report.Finding(f.id)
		if time.Since(begun) > patience {
			t.Errorf("%s: there is no finding %s, but %q", f.name, f.reason, bad(report))
			return check.Finding{}
		}
	}
	return found
}

// startAgain: with all files of all fixes, the network is right from the start, too.
func (s *service) startAgain() {
	s.t.Helper()
	if !s.endsAgain {
		return
	}
	s.again(s.t)
	var ids []check.ID
	for _, f := range kernelFaults() {
		if slices.Contains(walked, f.name) {
			ids = append(ids, f.id)
		}
	}
	if lacks := s.remains(ids); len(lacks) > 0 {
		s.t.Errorf("after all fixes and a new start there is %q", lacks)
	}
}

// inTurn fixes one finding after the other: in one order on a server whose VLAN interface a tool configures, and in the
// reverse order on one where a person made it by hand. So of each two fixes both come first. A long run has both orders
// on both; the usual one takes as many of the four as usual says, 1 or 2, by lot. figures is how the figures end.
func inTurn(t *testing.T, figures string, usual int, configured, bare func(*testing.T) *service) {
	t.Helper()
	tried := 0
	broken := 0
	backward := slices.Clone(walked)
	slices.Reverse(backward)
	cases := []struct {
		name   string
		byHand bool
		order  []string
	}{
		{"configured, forward", false, walked}, {"by hand, backward", true, backward},
		{"configured, backward", false, backward}, {"by hand, forward", true, walked},
	}
	first := rand.IntN(len(cases)) / usual * usual // of two, one is forward and one backward
	for i := range min(seeds.Count(t, usual), len(cases)) {
		tc := cases[(first+i)%len(cases)]
		t.Run(tc.name, func(t *testing.T) {
			serve := configured
			if tc.byHand {
				serve = bare
			}
			s := serve(t)
			if tc.byHand {
				shell(t, s.renamed(vlanByHand))
			}
			healthy(t)
			pairs, failed := s.walk(tc.order)
			if failed == 0 {
				s.startAgain()
			}
			tried += pairs
			broken += failed
		})
	}
	t.Logf("figure fix_pairs_tried_%s %d pairs", figures, tried)
	t.Logf("figure fix_pairs_broken_%s %d pairs", figures, broken)
}

// TestFixesInTurn follows what findings print for systemd-networkd.
func TestFixesInTurn(t *testing.T) {
	inTurn(t, string(check.Networkd), 2,
		func(t *testing.T) *service { return serve(t, publicFiles) },
		func(t *testing.T) *service { return serve(t, nil) })
}

// TestFixesOfOwnFiles: a user's own files are wrong in several ways.
func TestFixesOfOwnFiles(t *testing.T) { serve(t, wrongFiles).repairAll("WrongVLANID", "UnusualMTU") }

// repairAll follows what the first cause prints until nothing is left. Some reasons have to be among the causes.
func (s *service) repairAll(expected ...string) {
	t := s.t
	t.Helper()
	var fixed []check.ID
	var reasons []string
	for range 2 * len(wrongFiles) {
		first, found := findings(t).FirstCause()
		if !found {
			break
		}
		s.repair(first)
		fixed = append(fixed, first.ID)
		reasons = append(reasons, first.Reason)
		if lacks := s.remains(fixed); len(lacks) > 0 {
			t.Fatalf("after %q were fixed there is %q", reasons, lacks)
		}
	}
	if rest := bad(findings(t)); len(rest) > 0 {
		t.Errorf("after %q were fixed there is %q", reasons, rest)
	}
	if slices.ContainsFunc(expected, func(reason string) bool { return !slices.Contains(reasons, reason) }) {
		t.Errorf("only %q were found: the test shows nothing", reasons)
	}
}
