//go:build linux

package agent

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

// modeVariable sets what a process of this test binary does: "run" or "cleanup".
const modeVariable = "PNAP_TEST_RETURN_PATH"

// TestReturnPathProcess is the reconciler of the other tests, in a process of its own that may do nothing but
// administer the network. It reads what to expect from its standard input, a line at a time, and prints its notices.
// Without its variable there is nothing to do.
func TestReturnPathProcess(t *testing.T) {
	mode, ordered := os.LookupEnv(modeVariable)
	if !ordered {
		return
	}
	var current atomic.Pointer[check.Expected]
	lines := bufio.NewScanner(os.Stdin)
	next := func() bool {
		var e check.Expected
		if !lines.Scan() {
			return false
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Error(err)
			return false
		}
		current.Store(&e)
		return true
	}
	if !next() {
		t.Fatal("no expectation on standard input")
	}
	k := returnpath.New(returnpath.Config{
		Expected: func() []check.Expected { return []check.Expected{*current.Load()} },
		Watches:  []func(context.Context, func()) error{netstate.Watch, returnpath.WatchTable},
		Record:   func(n returnpath.Notice) { fmt.Fprintf(os.Stdout, "notice %s %s\n", n.Reason, n.Message) },
	})
	if mode == "cleanup" {
		if err := k.Cleanup(t.Context()); err != nil {
			t.Error(err)
		}
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	for next() {
		k.Wake()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// reconcilerProcess is a running reconciler.
type reconcilerProcess struct {
	n       *network
	cmd     *exec.Cmd
	stdin   *json.Encoder
	close   func() error
	notices chan string
}

// startReconciler starts the reconciler on the node, as a user without rights but CAP_NET_ADMIN.
func (n *network) startReconciler(mode string, e check.Expected) *reconcilerProcess {
	n.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestReturnPathProcess$", "-test.v=false")
	cmd.Env = append(os.Environ(), modeVariable+"="+mode)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, AmbientCaps: []uintptr{unix.CAP_NET_ADMIN},
		Pdeathsig: syscall.SIGKILL,
	}
	in, err := cmd.StdinPipe()
	n.must("standard input", err)
	out, err := cmd.StdoutPipe()
	n.must("standard output", err)
	// The test's thread is in the node's namespace, and so is what it starts.
	n.must("start the reconciler", cmd.Start())
	p := &reconcilerProcess{n: n, cmd: cmd, stdin: json.NewEncoder(in), close: in.Close,
		notices: make(chan string, 100)}
	go func() {
		defer close(p.notices)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.notices <- lines.Text()
		}
	}()
	p.expect(e)
	return p
}

func (p *reconcilerProcess) expect(e check.Expected) {
	p.n.t.Helper()
	p.n.must("send what to expect", p.stdin.Encode(e))
}

// stop ends the reconciler and returns its notices.
func (p *reconcilerProcess) stop() []string {
	p.n.t.Helper()
	p.n.must("end of standard input", p.close())
	var all []string
	for line := range p.notices {
		if notice, is := strings.CutPrefix(line, "notice "); is {
			all = append(all, notice)
		} else if line != "PASS" {
			p.n.t.Log(line)
		}
	}
	p.n.must("the reconciler's end", p.cmd.Wait())
	return all
}

// waitFor waits for a notice with that reason.
func (p *reconcilerProcess) waitFor(reason string) string {
	p.n.t.Helper()
	deadline := time.After(limits.Wait)
	for {
		select {
		case line, open := <-p.notices:
			if !open {
				p.n.t.Fatalf("the reconciler ended before it reported %s", reason)
			}
			if strings.HasPrefix(line, "notice "+reason+" ") {
				return line
			}
		case <-deadline:
			p.n.t.Fatalf("no notice %s within %s", reason, limits.Wait)
		}
	}
}

// protectSettings makes /proc/sys read-only for what this thread starts, as container runtimes do.
func (n *network) protectSettings() {
	n.t.Helper()
	n.must("new mount namespace", unix.Unshare(unix.CLONE_NEWNS))
	n.must("private mounts", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	n.must("bind /proc/sys", unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""))
	n.must("read-only /proc/sys", unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err == nil {
		n.t.Fatal("/proc/sys can be written")
	}
}

// routing lists everything that a reconciler may change. With ours, only what carries the agent's mark, without
// indices.
func (n *network) routing(ours bool) []string {
	n.t.Helper()
	var all []string
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	n.must("list rules", err)
	for _, r := range rules {
		if !ours || r.Protocol == ownership.Protocol {
			mask := uint32(0)
			if r.Mask != nil {
				mask = *r.Mask
			}
			all = append(all, fmt.Sprintf("rule %v mark %#x/%#x suppress %d protocol %d", r, r.Mark, mask,
				r.SuppressPrefixlen, r.Protocol))
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
		netlink.RT_FILTER_TABLE)
	n.must("list routes", err)
	for _, r := range routes {
		if !ours || r.Protocol == ownership.Protocol {
			all = append(all, fmt.Sprintf("route %v via %v table %d protocol %d", r.Dst, r.Gw, r.Table, r.Protocol))
		}
	}
	all = append(all, n.marking(ours)...)
	if l, err := netlink.LinkByName(nodeVIF); err == nil {
		settings, err := ownership.ReadSettings(l.Attrs().Index)
		n.must("read settings", err)
		all = append(all, fmt.Sprintf("rp_filter %d", settings[ownership.RPFilter]))
		if !ours {
			all = append(all, "alias "+l.Attrs().Alias)
		}
	}
	slices.Sort(all)
	return all
}

// marking lists nftables: with ours, only the agent's table.
func (n *network) marking(ours bool) []string {
	n.t.Helper()
	var all []string
	conn, err := nftables.New()
	n.must("nftables", err)
	chains, err := conn.ListChains()
	n.must("list chains", err)
	for _, c := range chains {
		if ours && c.Table.Name != "phoenixnap" {
			continue
		}
		all = append(all, fmt.Sprintf("chain %s %s", c.Table.Name, c.Name))
		rules, err := conn.GetRules(c.Table, c)
		n.must("list rules of "+c.Name, err)
		for i, r := range rules {
			comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
			all = append(all, fmt.Sprintf("chain %s %s rule %d %s, %d expressions", c.Table.Name, c.Name, i, comment,
				len(r.Exprs)))
		}
	}
	return all
}

// waitForRouting waits until what is the agent's is as wanted, and returns how long it took.
func (n *network) waitForRouting(what string, want []string) time.Duration {
	n.t.Helper()
	start := time.Now()
	for {
		got := n.routing(true)
		if slices.Equal(got, want) {
			return time.Since(start)
		}
		if time.Since(start) > limits.Wait {
			n.t.Fatalf("%s: not repaired within %s:\n%s\nwant:\n%s", what, limits.Wait,
				strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// waysOut asks the kernel by which gateway it would send replies of each block: host listeners by their source,
// Services by their mark.
func (n *network) waysOut(sources map[string]string) {
	n.t.Helper()
	client := net.IPv4(198, 51, 100, 1)
	for source, gateway := range sources {
		got, err := netlink.RouteGetWithOptions(client, &netlink.RouteGetOptions{SrcAddr: net.ParseIP(source)})
		n.must("look up the way from "+source, err)
		if got[0].Gw.String() != gateway || got[0].LinkIndex != n.link(nodeVIF).Attrs().Index {
			n.t.Errorf("replies from %s leave by %v, want by %s", source, got[0], gateway)
		}
	}
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	n.must("list rules", err)
	marked := map[string]bool{}
	for _, r := range rules {
		if r.Protocol == ownership.Protocol && r.Mark != 0 {
			got, err := netlink.RouteGetWithOptions(client, &netlink.RouteGetOptions{Mark: r.Mark})
			n.must("look up the way of a mark", err)
			marked[got[0].Gw.String()] = true
		}
	}
	for _, gateway := range sources {
		if !marked[gateway] {
			n.t.Errorf("no mark leads to %s: %v", gateway, marked)
		}
	}
}

// elsewhere gives the node a default route that is not the VLAN's, as phoenixNAP's images have.
func (n *network) elsewhere() {
	n.t.Helper()
	n.must("no default route", netlink.RouteDel(&netlink.Route{Gw: net.IPv4(192, 0, 2, 1)}))
	n.must("another network", netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eno9"},
		PeerName: "port9"}))
	n.must("up", netlink.LinkSetUp(n.link("eno9")))
	n.must("up", netlink.LinkSetUp(n.link("port9")))
	n.addAddress("eno9", "10.66.0.2/24")
	n.must("default route", netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(10, 66, 0, 1)}))
}

// addForeign adds what belongs to others and must stay.
func (n *network) addForeign() {
	n.t.Helper()
	n.must("foreign route", netlink.RouteAdd(&netlink.Route{LinkIndex: n.link("eno9").Attrs().Index,
		Gw: net.IPv4(10, 66, 0, 9), Table: 1100}))
	r := netlink.NewRule()
	r.Family = netlink.FAMILY_V4
	r.Priority = 1057
	r.Table = 1100
	r.Src = &net.IPNet{IP: net.IPv4(192, 0, 2, 0), Mask: net.CIDRMask(28, 32)}
	r.IifName = "eno9"
	n.must("foreign rule", netlink.RuleAdd(r))
	conn, err := nftables.New()
	n.must("nftables", err)
	table := conn.AddTable(&nftables.Table{Name: "phoenixnap", Family: nftables.TableFamilyINet})
	conn.AddChain(&nftables.Chain{Name: "prerouting", Table: table})
	n.must("foreign table", conn.Flush())
}

var bothWays = map[string]string{"192.0.2.2": "192.0.2.1", serviceVIP: "203.0.113.1"}

// TestReturnPathReconciler disturbs what a reconciler made, in every way that is known to happen; each is repaired. In
// the end nothing of it is left, and what was not the agent's is as before.
func TestReturnPathReconciler(t *testing.T) {
	n := newNetwork(t)
	n.elsewhere()
	n.addForeign()
	n.addAddress(nodeVIF, serviceVIP+"/32")
	n.sysctl("net/ipv4/conf/"+nodeVIF+"/rp_filter", "1")
	before := n.routing(false)
	n.protectSettings()
	k := n.startReconciler("run", expected())
	k.waitFor(returnpath.ReasonManaged)
	n.waysOut(bothWays)
	whole := n.routing(true)
	if !slices.Contains(whole, "rp_filter 2") {
		t.Errorf("rp_filter is not loose: %v", whole)
	}
	var worst time.Duration
	for _, d := range n.disturbances() {
		d.do()
		took := n.waitForRouting(d.name, whole)
		for again := 0; limits.Late(took, seenWithin) && again < 2; again++ {
			d.do()
			took = min(took, n.waitForRouting(d.name, whole))
		}
		t.Logf("%-45s repaired after %v", d.name, took.Round(time.Millisecond))
		worst = max(worst, took)
	}
	n.waysOut(bothWays)
	// Handles of rules would not show it: a table that is made again gives the same ones.
	n.rests("nftables table", returnpath.WatchTable)
	n.rests("network", netstate.Watch)
	if limits.Late(worst, seenWithin) {
		t.Errorf("a repair took %v, want at most %v", worst, seenWithin)
	}
	t.Logf("figure return_path_kernel_repaired_max %.3f s", worst.Seconds())
	notices := k.stop()
	if !slices.ContainsFunc(notices, func(s string) bool {
		return strings.HasPrefix(s,
			returnpath.ReasonRepaired+" ")
	}) {
		t.Errorf("no repair was reported: %q", notices)
	}
	if got := n.routing(true); !slices.Equal(got, whole) {
		t.Errorf("the end of the agent took something away:\n%s", strings.Join(got, "\n"))
	}
	n.startReconciler("cleanup", expected()).stop()
	if after := n.routing(false); !slices.Equal(before, after) {
		t.Errorf("after cleanup:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}

type disturbance struct {
	name string
	do   func()
}

func (n *network) disturbances() []disturbance {
	ourRule := func(priority int) func() {
		return func() {
			rules, err := netlink.RuleList(netlink.FAMILY_V4)
			n.must("list rules", err)
			for _, r := range rules {
				if r.Priority == priority && r.Protocol == ownership.Protocol {
					n.must("delete a rule", netlink.RuleDel(&r))
				}
			}
		}
	}
	ourRoutes := func(do func(netlink.Route)) func() {
		return func() {
			routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4,
				&netlink.Route{Table: unix.RT_TABLE_UNSPEC, Protocol: ownership.Protocol},
				netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
			n.must("list routes", err)
			for _, r := range routes {
				do(r)
			}
		}
	}
	nft := func(change func(*nftables.Conn, *nftables.Table)) func() {
		return func() {
			conn, err := nftables.New()
			n.must("nftables", err)
			change(conn, &nftables.Table{Name: "phoenixnap", Family: nftables.TableFamilyIPv4})
			n.must("change nftables", conn.Flush())
		}
	}
	return []disturbance{
		{"rules by mark deleted", ourRule(1055)},
		{"rules for other networks deleted", ourRule(1056)},
		{"rules by source deleted", ourRule(1057)},
		{"routing tables flushed", ourRoutes(func(r netlink.Route) { n.must("delete a route", netlink.RouteDel(&r)) })},
		{"default routes by another gateway", ourRoutes(func(r netlink.Route) {
			if r.Gw != nil {
				r.Gw = net.IPv4(192, 0, 2, 14)
				n.must("replace a route", netlink.RouteReplace(&r))
			}
		})},
		{"interface down and up, which flushes silently", func() {
			n.must("down", netlink.LinkSetDown(n.link(nodeVIF)))
			n.must("up", netlink.LinkSetUp(n.link(nodeVIF)))
		}},
		{"last address away and back", func() {
			for _, a := range []string{serviceVIP + "/32", "192.0.2.2/28"} {
				n.delAddress(nodeVIF, a)
			}
			for _, a := range []string{"192.0.2.2/28", serviceVIP + "/32"} {
				n.addAddress(nodeVIF, a)
			}
		}},
		{"interface deleted and made again", func() {
			n.must("delete", netlink.LinkDel(n.link(nodeVIF)))
			n.addVLAN("bond0", nodeVIF, vlanID, "192.0.2.2/28", serviceVIP+"/32")
			n.must("strict", ownership.WriteSettings(n.link(nodeVIF).Attrs().Index,
				ownership.Settings{ownership.RPFilter: 1}))
		}},
		{"reverse path filter strict again", func() {
			// The kernel reports it to subscribers of net configuration; a link event goes with it in practice.
			n.must("strict", ownership.WriteSettings(n.link(nodeVIF).Attrs().Index,
				ownership.Settings{ownership.RPFilter: 1}))
		}},
		{"nftables table deleted", nft(func(c *nftables.Conn, t *nftables.Table) { c.DelTable(t) })},
		{"nftables table flushed", nft(func(c *nftables.Conn, t *nftables.Table) { c.FlushTable(t) })},
		{"a chain of it flushed", nft(func(c *nftables.Conn,
			t *nftables.Table) {
			c.FlushChain(&nftables.Chain{Table: t, Name: "replied"})
		})},
		{"a foreign chain in it", nft(func(c *nftables.Conn,
			t *nftables.Table) {
			c.AddChain(&nftables.Chain{Table: t, Name: "mine"})
		})},
		{"all at once", func() {
			ourRule(1055)()
			ourRule(1057)()
			n.must("down", netlink.LinkSetDown(n.link(nodeVIF)))
			nft(func(c *nftables.Conn, t *nftables.Table) { c.DelTable(t) })()
			n.must("up", netlink.LinkSetUp(n.link(nodeVIF)))
		}},
	}
}

// TestReturnPathFollowsBlocks: blocks come and go; the others keep their tables and marks.
func TestReturnPathFollowsBlocks(t *testing.T) {
	n := newNetwork(t)
	n.elsewhere()
	n.addAddress(nodeVIF, serviceVIP+"/32")
	before := n.routing(false)
	e := expected()
	one := e
	one.Network.Blocks = e.Network.Blocks[1:]
	k := n.startReconciler("run", one)
	k.waitFor(returnpath.ReasonManaged)
	n.waysOut(map[string]string{serviceVIP: "203.0.113.1"})
	first := n.routing(true)
	k.expect(e)
	k.waitFor(returnpath.ReasonManaged)
	n.waysOut(bothWays)
	k.expect(one)
	k.waitFor(returnpath.ReasonManaged)
	if got := n.routing(true); !slices.Equal(got, first) {
		t.Errorf("after a block came and went:\n%s\nwas:\n%s", strings.Join(got, "\n"), strings.Join(first, "\n"))
	}
	k.expect(check.Expected{})
	one.Network.Blocks = nil
	k.expect(one)
	k.waitFor(returnpath.ReasonRemoved)
	k.stop()
	n.startReconciler("cleanup", check.Expected{}).stop()
	if after := n.routing(false); !slices.Equal(before, after) {
		t.Errorf("after cleanup:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}

// TestReturnPathMarkClash: another program's mark blocks the reconciler, which reports it.
func TestReturnPathMarkClash(t *testing.T) {
	n := newNetwork(t)
	mask := uint32(0xff)
	r := netlink.NewRule()
	r.Family = netlink.FAMILY_V4
	r.Priority = 500
	r.Table = 500
	r.Mark = 0x20
	r.Mask = &mask
	n.must("foreign rule", netlink.RuleAdd(r))
	before := n.routing(false)
	k := n.startReconciler("run", expected())
	if line := k.waitFor(returnpath.ReasonMarkClash); !strings.Contains(line,
		"the rule 500: from all fwmark 0x20/0xff") {
		t.Errorf("the clash is reported as %q", line)
	}
	if after := n.routing(false); !slices.Equal(before, after) {
		t.Errorf("in spite of a clash something was changed:\n%s\nbefore:\n%s", strings.Join(after, "\n"),
			strings.Join(before, "\n"))
	}
	n.must("delete the foreign rule", netlink.RuleDel(r))
	k.waitFor(returnpath.ReasonManaged)
	k.stop()
	n.startReconciler("cleanup", expected()).stop()
	for _, family := range []nftables.TableFamily{nftables.TableFamilyINet, nftables.TableFamilyIPv4} {
		n.markForeign(family)
	}
}

// markForeign: packets that another program marks with our bits would follow our rules, so that nothing is changed
// before its table is gone.
func (n *network) markForeign(family nftables.TableFamily) {
	n.t.Helper()
	conn, err := nftables.New()
	n.must("nftables", err)
	table := conn.AddTable(&nftables.Table{Name: "proxy", Family: family})
	chain := conn.AddChain(&nftables.Chain{Name: "divert", Table: table})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Immediate{Register: 1, Data: binary.NativeEndian.AppendUint32(nil, 0x30)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
	}})
	n.must("foreign marks", conn.Flush())
	before := n.routing(false)
	k := n.startReconciler("run", expected())
	if line := k.waitFor(returnpath.ReasonMarkClash); !strings.Contains(line,
		"chain divert in the nftables table proxy") {
		n.t.Errorf("the clash is reported as %q", line)
	}
	if after := n.routing(false); !slices.Equal(before, after) {
		n.t.Errorf("in spite of foreign marks something was changed:\n%s", strings.Join(after, "\n"))
	}
	conn.DelTable(table)
	n.must("no foreign marks", conn.Flush())
	k.expect(expected())
	k.waitFor(returnpath.ReasonManaged)
	k.stop()
	n.startReconciler("cleanup", expected()).stop()
}
