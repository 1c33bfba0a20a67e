//go:build linux

package lab

import (
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

func TestFaultsOfTheVLANInterface(t *testing.T) {
	n := publicNetwork{vlan: 105, base: 40}
	n.publish(true, "id-b")
	n.configure(t, "srv-b", 2)
	for _, fault := range []Fault{LinkDown, LinkDeleted, WrongVLAN} {
		t.Run(string(fault), func(t *testing.T) {
			eventually(t, "the client reaches the server", func() bool { return pings(t, Client, n.ip(2), 1) })
			if err := shared.Break(t.Context(), "srv-b", fault); err != nil {
				t.Fatal(err)
			}
			if pings(t, Client, n.ip(2), 1) {
				t.Error("the server is reached all the same")
			}
			if err := shared.Repair(t.Context(), "srv-b"); err != nil {
				t.Fatal(err)
			}
		})
	}
	eventually(t, "the client reaches the server", func() bool { return pings(t, Client, n.ip(2), 1) })
}

// TestAFaultOfOneVLAN leaves the other VLANs of the server as they are.
func TestAFaultOfOneVLAN(t *testing.T) {
	broken := publicNetwork{vlan: 108, base: 80}
	whole := publicNetwork{vlan: 109, base: 88}
	for _, n := range []publicNetwork{broken, whole} {
		n.publish(true, "id-b")
		n.configure(t, "srv-b", 2)
		eventually(t, "the gateway reaches the server", func() bool { return pings(t, Gateway, n.ip(2), 1) })
	}
	if err := shared.BreakVLAN(t.Context(), "srv-b", broken.vlan, LinkDown); err != nil {
		t.Fatal(err)
	}
	if pings(t, Gateway, broken.ip(2), 1) {
		t.Errorf("the server is reached by VLAN %d all the same", broken.vlan)
	}
	eventually(t, "the gateway reaches it by the other VLAN", func() bool { return pings(t, Gateway, whole.ip(2), 1) })
	if err := shared.BreakVLAN(t.Context(), "srv-b", 4000, LinkDown); err == nil {
		t.Error("a VLAN that the server does not have breaks without an error")
	}
	if err := shared.Repair(t.Context(), "srv-b"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the gateway reaches it by both", func() bool { return pings(t, Gateway, broken.ip(2), 1) })
}

// TestServerOfAHypervisor: its VLAN interfaces are on a bridge over the bond, and the network of a second bond has the
// same VLAN ID.
func TestServerOfAHypervisor(t *testing.T) {
	n := publicNetwork{vlan: 107, base: 64}
	n.publish(true, "id-c")
	n.configure(t, "srv-c", 2)
	eventually(t, "the client reaches the server", func() bool { return pings(t, Client, n.ip(2), 1) })
	for name, parent := range map[string]string{"vmbr0.107": "vmbr0.107@vmbr0:", "bond1.107": "bond1.107@bond1:"} {
		if out := execute(t, "srv-c", "ip", "link", "show", name); !strings.Contains(out, parent) {
			t.Errorf("%s is %q, want it to be %s", name, out, parent)
		}
	}
}

func TestProgramsRunAndEndOnRequest(t *testing.T) {
	out, err := shared.ExecProgram(t.Context(), Program{
		Host: "srv-a", Args: []string{"sh", "-c", "cat; echo $WORD >&2; exit 3"}, Env: []string{"WORD=hello"},
		Stdin: []byte("in"),
	})
	if err != nil || string(out.Stdout) != "in" || string(out.Stderr) != "hello\n" || out.Code != 3 {
		t.Errorf("Exec = %+v, %v", out, err)
	}
	if _, err := shared.ExecProgram(t.Context(), Program{Host: "srv-a", Args: []string{"sleep", "600"},
		Timeout: time.Second}); err == nil {
		t.Error("a program that runs into its time limit is no error")
	}
	id, err := shared.StartProcess(t.Context(), Program{Host: "srv-a", Name: "sleeper",
		Args: []string{"sh", "-c", "echo started; exec sleep 600"}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its first words are in the log", func() bool {
		log, err := shared.Log(t.Context(), "sleeper")
		return err == nil && string(log) == "started\n"
	})
	if p, err := shared.Await(t.Context(), id, 0); p.Exited || err != nil {
		t.Errorf("Await = %+v, %v while it sleeps", p, err)
	}
	if err := shared.Signal(t.Context(), id, 15); err != nil {
		t.Fatal(err)
	}
	p, err := shared.Await(t.Context(), id, time.Minute)
	if err != nil || !p.Exited || p.Code != 128+15 {
		t.Errorf("Await = %+v, %v, want the end by SIGTERM just now", p, err)
	}
}

func TestFilesWrittenLater(t *testing.T) {
	if err := shared.WriteFile(t.Context(), "later/script", []byte("#!/bin/sh\necho from a file\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	if got := execute(t, "srv-b", Path("later/script")); got != "from a file\n" {
		t.Errorf("output %q", got)
	}
	if err := shared.WriteHostFile(t.Context(), "srv-a", "/run/home/own", []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.ReadFile(t.Context(), "srv-b", "/run/home/own"); err == nil {
		t.Error("srv-b sees a file in the home of srv-a")
	}
}

func TestKilledServerIsGoneAndComesBackEmpty(t *testing.T) {
	n := publicNetwork{vlan: 106, base: 48}
	n.publish(true, "id-b")
	n.configure(t, "srv-b", 2)
	serve := Program{Host: "srv-b", Name: "web", Args: []string{"sh", "-c",
		"cd /run/home && echo answer > index.html && busybox httpd -f -p 80"}}
	id, err := shared.StartProcess(t.Context(), serve)
	if err != nil {
		t.Fatal(err)
	}
	probe, err := shared.StartProbe(t.Context(), Probe{URL: "http://" + n.ip(2).String() + "/",
		Interval: 50 * time.Millisecond, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the client gets answers", func() bool { return lastAnswered(t, probe) })
	killed := time.Now()
	if err := shared.KillServer(t.Context(), "srv-b"); err != nil {
		t.Fatal(err)
	}
	if p, err := shared.Await(t.Context(), id, time.Minute); err != nil || p.Code != 128+9 {
		t.Errorf("the web server after the kill: %+v, %v", p, err)
	}
	if pings(t, "srv-a", netip.MustParseAddr("10.0.0.12"), 1) {
		t.Error("the killed server answers on the private network")
	}
	eventually(t, "the client gets no answers", func() bool { return !lastAnswered(t, probe) })
	if err := shared.ReviveServer(t.Context(), "srv-b"); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.StartProcess(t.Context(), serve); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the client gets answers again", func() bool { return lastAnswered(t, probe) })
	attempts, err := shared.StopProbe(t.Context(), probe)
	if err != nil {
		t.Fatal(err)
	}
	outages := Outages(attempts)
	last := outages[len(outages)-1]
	if last.Duration() <= 0 || last.From.After(killed.Add(limits.Wait)) || last.To.Before(killed) {
		t.Errorf("outage %+v, want one around the kill at %v", last, killed)
	}
	t.Logf("outage of %v, %d attempts failed", last.Duration(), last.Failed)
}

// lastAnswered reports whether the newest attempt of a probe succeeded.
func lastAnswered(t *testing.T, probe int) bool {
	t.Helper()
	attempts, err := shared.ProbeResults(t.Context(), probe)
	if err != nil {
		t.Fatal(err)
	}
	return len(attempts) > 0 && attempts[len(attempts)-1].OK
}

func TestStopLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	l, err := Start(t.Context(), Config{Servers: testServers()[:1], Log: io.Discard, TimeLimit: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.StartProcess(t.Context(), Program{Host: "srv-a", Name: "stubborn",
		Args: []string{"sh", "-c", "trap '' TERM; sleep 600"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
	if _, err := l.Exec(t.Context(), "srv-a", "true"); err == nil {
		t.Error("a lab that was stopped still runs programs")
	}
}

// kubeProxyRules has one of each kind of rule that kube-proxy writes in nftables mode, so that the kernel has to have
// every module for them.
const kubeProxyRules = `
table ip kube {
	map services { type ipv4_addr . inet_proto . inet_service : verdict; }
	set affinity { type ipv4_addr; flags dynamic, timeout; timeout 1h; }
	chain prerouting {
		type nat hook prerouting priority -100;
		ip daddr . meta l4proto . th dport vmap @services
		fib daddr type local ip daddr != 127.0.0.0/8 drop
		ip daddr 203.0.113.250 tcp dport 80 numgen random mod 2 vmap { 0 : goto one, 1 : goto two }
	}
	chain one { update @affinity { ip saddr } meta l4proto tcp dnat to 10.244.1.10:80; }
	chain two { meta l4proto tcp dnat to 10.244.2.10:80; }
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict;
		elements = { 10.96.0.1 . tcp . 443 : goto one, 10.96.0.10 . udp . 53 : goto two, 10.96.0.11 . sctp . 36412 : goto two }
	}
	chain postrouting {
		type nat hook postrouting priority 100;
		mark & 0x4000 != 0 mark set mark ^ 0x4000 masquerade fully-random
	}
	chain forward {
		type filter hook forward priority 0;
		ct state invalid drop
		ct state new ip daddr 203.0.113.251 reject
		ct mark set meta mark
		limit rate 1/second log
	}
}
`

func TestKernelTakesTheRulesOfKubeProxy(t *testing.T) {
	out, err := shared.ExecProgram(t.Context(), Program{Host: "srv-a", Args: []string{"nft", "-f", "-"},
		Stdin: []byte(kubeProxyRules)})
	if err != nil || out.Code != 0 {
		t.Fatalf("nft: %v, exit code %d\n%s", err, out.Code, out.Stderr)
	}
	defer execute(t, "srv-a", "nft", "delete", "table", "ip", "kube")
	if rules := execute(t, "srv-a", "nft", "list", "ruleset"); !strings.Contains(rules, "numgen random mod 2") {
		t.Errorf("the rules are not there:\n%s", rules)
	}
	if rules := execute(t, "srv-b", "nft", "list", "ruleset"); rules != "" {
		t.Errorf("srv-b has rules of srv-a:\n%s", rules)
	}
	// In every full sync after its first, as when the zone of its Node changes, kube-proxy compares the names of
	// protocols with these, and deletes what differs: each Service would be gone.
	elements := execute(t, "srv-a", "nft", "--json", "list", "map", "ip", "kube", "service-ips")
	for _, want := range []string{`["10.96.0.1", "tcp", 443]`, `["10.96.0.10", "udp", 53]`,
		`["10.96.0.11", "sctp", 36412]`} {
		if !strings.Contains(elements, want) {
			t.Errorf("nft lists %s without %s: does the server have /etc/protocols?", elements, want)
		}
	}
}
