//go:build linux

package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kernel/listing"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// listed is everything that the node's network consists of: addresses, routes of all tables, rules, nftables, and the
// settings of the VLAN interface and of "all".
func (n *network) listed() []string {
	n.t.Helper()
	var all []string
	for _, command := range listing.Commands(nodeVIF) {
		out, err := exec.CommandContext(n.t.Context(), command[0], command[1:]...).Output()
		n.must(strings.Join(command, " "), err)
		all = append(all, listing.Lines(command, string(out), nodeVIF)...)
	}
	return append(all, n.settings()...)
}

// settings lists what can be read: stable_secret cannot.
func (n *network) settings() []string {
	n.t.Helper()
	var all []string
	for _, pattern := range []string{"ipv4/conf/all/*", "ipv6/conf/all/*", "ipv4/conf/" + nodeVIF + "/*",
		"ipv6/conf/" + nodeVIF + "/*"} {
		files, err := filepath.Glob("/proc/sys/net/" + pattern)
		n.must("list settings", err)
		for _, file := range files {
			if value, err := os.ReadFile(file); err == nil {
				all = append(all, file+" = "+strings.TrimSpace(string(value)))
			}
		}
	}
	return all
}

// settled returns what is listed when the kernel has finished what it does by itself.
func (n *network) settled() []string {
	n.t.Helper()
	return listing.Settled(n.t, n.listed)
}

// waitForListed waits until everything is listed as before; ours is what the agent makes, which is listed faster.
func (n *network) waitForListed(what string, before, ours []string) {
	n.t.Helper()
	for late := time.Now().Add(limits.Wait); !slices.Equal(ours, n.routing(true)) && time.Now().Before(late); {
		time.Sleep(20 * time.Millisecond)
	}
	listing.AsBefore(n.t, what, before, n.listed)
}

// TestKernelForgetsWithAnInterface shows what a VLAN interface loses when it is set down and up and no program restores
// it: routes that were added, in every table, and IPv6 addresses (net.ipv6.conf.*.keep_addr_on_down is 0). The kernel
// adds the routes of IPv4 addresses again, and makes a new link-local address. All else stays.
func TestKernelForgetsWithAnInterface(t *testing.T) {
	n := newNetwork(t)
	n.elsewhere()
	n.addAddress(nodeVIF, serviceVIP+"/32")
	for _, arguments := range []string{
		"-6 address add 2001:db8::2/64 dev " + nodeVIF + " nodad",
		"route add 198.51.100.0/24 via 192.0.2.1 dev " + nodeVIF,
		"route add default via 192.0.2.1 dev " + nodeVIF + " table 1100",
		"rule add pref 1057 from 192.0.2.0/28 lookup 1100",
	} {
		out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(arguments)...).CombinedOutput()
		n.must("ip "+arguments+": "+string(out), err)
	}
	before := n.settled()
	n.must("down", netlink.LinkSetDown(n.link(nodeVIF)))
	n.must("up", netlink.LinkSetUp(n.link(nodeVIF)))
	after := n.settled()
	lost := slices.DeleteFunc(slices.Clone(before), func(line string) bool { return slices.Contains(after, line) })
	want := []string{
		"    inet6 2001:db8::2/64 scope global nodad",
		"unicast default via 192.0.2.1 dev bond0.100 table 1100 proto boot scope global",
		"unicast 198.51.100.0/24 via 192.0.2.1 dev bond0.100 table main proto boot scope global",
		"local 2001:db8::2 dev bond0.100 table local proto kernel scope global metric 0 pref medium",
		"unicast 2001:db8::/64 dev bond0.100 table main proto kernel scope global metric 256 pref medium",
	}
	if diff := cmp.Diff(want, lost); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
	made := slices.DeleteFunc(after, func(line string) bool { return slices.Contains(before, line) })
	if len(made) > 0 {
		t.Errorf("new:\n%s", strings.Join(made, "\n"))
	}
}

// drain forgets the notices so far: a reconciler whose notices are not read would wait for their reader.
func (p *reconcilerProcess) drain() {
	p.n.t.Helper()
	for {
		select {
		case _, open := <-p.notices:
			if !open {
				p.n.t.Fatal("the reconciler ended")
			}
		default:
			return
		}
	}
}

// TestEverythingIsListedAsBefore disturbs the return path in every way, round after round, and expects after each that
// every address, route, rule, setting and nftables rule of the node is listed as before.
func TestEverythingIsListedAsBefore(t *testing.T) {
	n := newNetwork(t)
	n.elsewhere()
	n.addForeign()
	n.addAddress(nodeVIF, serviceVIP+"/32")
	n.sysctl("net/ipv4/conf/"+nodeVIF+"/rp_filter", "1")
	n.protectSettings()
	k := n.startReconciler("run", expected())
	k.waitFor(returnpath.ReasonManaged)
	before := n.settled()
	ours := n.routing(true)
	rounds := seeds.Count(t, 1)
	checks := 0
	slowest := time.Duration(0)
	for round := range rounds {
		for _, d := range n.disturbances() {
			start := time.Now()
			d.do()
			n.waitForListed(fmt.Sprintf("%s, round %d", d.name, round+1), before, ours)
			slowest = max(slowest, time.Since(start))
			checks++
			k.drain()
		}
		if (round+1)%5 == 0 {
			t.Logf("restored in %d of %d runs, after %.2f s at most", round+1, rounds, slowest.Seconds())
		}
	}
	t.Logf("figure returnpath_restored_runs %d runs", rounds)
	t.Logf("figure returnpath_restored_checks %d checks", checks)
	t.Logf("figure returnpath_restored_max %.2f s", slowest.Seconds())
	n.waysOut(bothWays)
	k.stop()
}
