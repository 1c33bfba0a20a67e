//go:build linux

package networkd

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// tidy takes away what a fault or its fix has left.
const tidy = `
for link in kube-ipvs0 eno1.100 bond0.100 cni0 pod0 bond0 eno1 eno2; do ip link delete $link 2>/dev/null || true; done
for pref in 1055 1056 1057; do while ip rule delete pref $pref 2>/dev/null; do :; done; done
sysctl -q -w net/ipv4/conf/all/arp_ignore=0 net/ipv4/conf/all/arp_filter=0 net/ipv4/conf/all/proxy_arp=0
`

// bondByHand makes a bond of the two ports with the server's address.
const bondByHand = `
ip -batch - <<END
link add bond0 type bond mode 802.3ad miimon 50
link set eno1 mtu 9000 master bond0
link set eno2 mtu 9000 master bond0
link set eno1 up
link set eno2 up
link set bond0 mtu 9000 up
address add 10.0.0.2/24 dev bond0
route add 10.1.0.0/16 via 10.0.0.1
END
`

// vlanByHand makes the VLAN interface with the default route.
const vlanByHand = `
ip -batch - <<END
link add link bond0 name bond0.100 type vlan id 100
link set bond0.100 mtu 1500 up
address add 192.0.2.2/28 dev bond0.100
route add default via 192.0.2.1
END
`

// looks are commands that show something and change nothing.
var looks = regexp.MustCompile(`^(ip (-br |-s )?(link|address|route|rule) (show|get)|ethtool |cat |tcpdump |arping )`)

// enter begins a network namespace for the rest of the test, and for the programs that it starts.
func enter(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and the namespace with it
	must(t, "enter a network namespace", unix.Unshare(unix.CLONE_NEWNET|unix.CLONE_NEWNS))
	must(t, "keep mounts here", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, "show its interfaces", unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
}

func shell(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "dash", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// published is what the controller published about the server.
func published() check.Expected {
	return check.Expected{Published: true, Network: contract.NodeNetwork{
		ServerID: "0123456789abcdef01234567", ID: "6104105e6b7c9a0012345678", VLAN: 100, Member: true,
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		Blocks: []contract.NetworkBlock{
			{CIDR: netip.MustParsePrefix("192.0.2.0/28"), Gateway: netip.MustParseAddr("192.0.2.1")},
			{CIDR: netip.MustParsePrefix("203.0.113.0/29"), Gateway: netip.MustParseAddr("203.0.113.1")},
		},
	}, NodeAddresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}
}

// findings lets the agent's checks judge the kernel's state. Without a switch at the ports, the gateways answer.
func findings(t *testing.T) check.Report {
	t.Helper()
	reader := netstate.NewReader()
	snapshot, err := reader.Read(context.Background())
	must(t, "read the kernel's state", err)
	expected := published()
	link, asks, routes := check.Questions(expected, snapshot)
	snapshot.Routes = reader.Routes(snapshot, routes)
	snapshot.ARP = answers(t, link, asks)
	return check.Evaluate(expected, snapshot)
}

func bad(r check.Report) []string {
	var list []string
	for _, f := range r.Findings {
		if f.Status != check.OK && f.Status != check.Skip {
			list = append(list, fmt.Sprintf("%s %s (%s)", f.ID, f.Reason, f.Observed))
		}
	}
	return list
}

// TestPrintedCommands makes each fault on a healthy server and runs the commands that the finding prints for a server
// whose network no tool configures: then the finding is gone.
func TestPrintedCommands(t *testing.T) {
	connectSwitch(t)
	enter(t)
	shell(t, "ip link delete bond0 2>/dev/null || true")
	repaired := 0
	for _, f := range kernelFaults() {
		heal(t)
		shell(t, f.script)
		for _, fix := range f.found(t).Fixes {
			if fix.Tool == check.IPRoute2 || fix.Tool == check.AnyTool {
				follow(t, []check.Fix{runnable(fix)})
			}
		}
		for begun := time.Now(); !gone(findings(t).Finding(f.id)); time.Sleep(20 * time.Millisecond) {
			if time.Since(begun) > patience {
				t.Fatalf("%s: after the printed commands there is %q", f.name, bad(findings(t)))
			}
		}
		repaired++
	}
	t.Logf("figure printed_commands_repair %d faults", repaired)
}

// heal makes the server again where something is left of the fault before, or may be in the way of the next.
func heal(t *testing.T) {
	t.Helper()
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	must(t, "list rules", err)
	if _, err := netlink.LinkByName("bond0"); err == nil && len(rules) == 3 && len(bad(findings(t))) == 0 {
		return
	}
	shell(t, tidy+hardware+bondByHand+vlanByHand)
	healthy(t)
}

// healthy waits until no check finds anything.
func healthy(t *testing.T) {
	t.Helper()
	for begun := time.Now(); len(bad(findings(t))) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("the server is not healthy: %q", bad(findings(t)))
		}
	}
}

func gone(f check.Finding) bool {
	return f.Status == check.OK || f.Status == check.Skip && !strings.HasPrefix(f.Because, "because of ")
}

// runnable leaves out what only shows something, and services of systemd.
func runnable(fix check.Fix) check.Fix {
	fix.Commands = slices.DeleteFunc(slices.Clone(fix.Commands), func(command string) bool {
		return looks.MatchString(command) || strings.HasPrefix(command, "systemctl enable ")
	})
	return fix
}
