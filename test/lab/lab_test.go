package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim/dataplane"
)

// Every test has a VLAN and a block of its own in one lab, which takes a while to start.
var (
	shared  *Lab
	feed    = newFeed()
	service *httptest.Server // something that servers reach through the management address
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	feedServer := httptest.NewServer(feed)
	defer feedServer.Close()
	service = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the caller's service") }))
	defer service.Close()
	var err error
	shared, err = Start(ctx, Config{
		Servers: testServers(), FeedURL: feedServer.URL, HostPorts: []uint16{portNumber(service.URL)},
		Files: map[string]string{"note.txt": "lab_test.go"}, Programs: []string{"ip", "nft"}, Log: os.Stderr, TimeLimit: 10 * time.Minute,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	defer feed.close()
	code := m.Run()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	return code
}

func testServers() []Server {
	return []Server{
		{Name: "srv-a", ID: "id-a", Private: netip.MustParsePrefix("10.0.0.11/24"), Pods: netip.MustParsePrefix("10.244.1.0/24")},
		{Name: "srv-b", ID: "id-b", Private: netip.MustParsePrefix("10.0.0.12/24"), Pods: netip.MustParsePrefix("10.244.2.0/24")},
	}
}

func portNumber(address string) uint16 {
	u, err := url.Parse(address)
	if err != nil {
		return 0
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return 0
	}
	return uint16(port)
}

// feedServer serves the data plane as the simulator does, with what the tests have put into it.
type feedServer struct {
	mu      sync.Mutex
	state   dataplane.DataPlane
	changed chan struct{}
	closed  chan struct{}
}

func newFeed() *feedServer {
	return &feedServer{changed: make(chan struct{}), closed: make(chan struct{})}
}

func (f *feedServer) close() { close(f.closed) }

// ServeHTTP waits until there is a newer revision than the one the caller knows.
func (f *feedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	known, err := strconv.ParseInt(r.URL.Query().Get("revision"), 10, 64)
	if err != nil || r.URL.Path != dataplane.Path {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	for {
		f.mu.Lock()
		state, changed := f.state, f.changed
		f.mu.Unlock()
		if state.Revision > known {
			_ = json.NewEncoder(w).Encode(state)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-f.closed:
			return
		}
	}
}

// put replaces the network of that ID.
func (f *feedServer) put(n dataplane.Network) {
	f.mu.Lock()
	defer f.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(f.state.Networks), func(o dataplane.Network) bool { return o.ID == n.ID })
	f.state.Networks = append(others, n)
	f.state.Revision++
	close(f.changed)
	f.changed = make(chan struct{})
}

// publicNetwork is the network of one test: the block 203.0.113.<base>/29 on a VLAN.
type publicNetwork struct {
	vlan, base int
	// more are the bases of further blocks.
	more []int
}

func (p publicNetwork) ip(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113, byte(p.base + n)})
}

// publish puts the network into the feed.
func (p publicNetwork) publish(assigned bool, members ...string) {
	n := dataplane.Network{ID: fmt.Sprint("net-", p.vlan), VLAN: p.vlan, Members: members}
	if assigned {
		for _, base := range append([]int{p.base}, p.more...) {
			b := publicNetwork{base: base}
			n.Blocks = append(n.Blocks, dataplane.Block{ID: fmt.Sprint("block-", base), CIDR: b.ip(0).String() + "/29", Gateway: b.ip(1).String()})
		}
	}
	feed.put(n)
}

// configure gives a server the n-th address of the block.
func (p publicNetwork) configure(t *testing.T, server string, n int) {
	t.Helper()
	err := shared.ConfigureVLAN(t.Context(), VLAN{Server: server, ID: p.vlan, Address: netip.PrefixFrom(p.ip(n), 29), Gateway: p.ip(1)})
	if err != nil {
		t.Fatal(err)
	}
}

func (p publicNetwork) link() string { return fmt.Sprint("bond0.", p.vlan) }

// execute runs a program that must succeed.
func execute(t *testing.T, host string, args ...string) string {
	t.Helper()
	out, err := shared.Exec(t.Context(), host, args...)
	if err != nil {
		t.Fatal(err)
	}
	if out.Code != 0 {
		t.Fatalf("%s: %s: exit code %d\n%s%s", host, strings.Join(args, " "), out.Code, out.Stdout, out.Stderr)
	}
	return string(out.Stdout)
}

// pings tells whether one of n requests, a second apart, is answered.
func pings(t *testing.T, host string, to netip.Addr, n int) bool {
	t.Helper()
	out, err := shared.Exec(t.Context(), host, "busybox", "ping", "-c", strconv.Itoa(n), "-W", "1", to.String())
	if err != nil {
		t.Fatal(err)
	}
	return out.Code == 0
}

// eventually tries until a condition holds, for ten seconds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func TestServersReachEachOtherAndTheCaller(t *testing.T) {
	t.Logf("in a virtual machine: %v, uplink: %s, built in %v", shared.InMachine, shared.Uplink, shared.Built)
	if shared.InMachine && shared.Uplink != "bonding" {
		t.Errorf("uplink %q: the kernel of the virtual machine has bonding", shared.Uplink)
	}
	if !pings(t, "srv-a", netip.MustParseAddr("10.0.0.12"), 2) {
		t.Error("srv-a does not reach srv-b on the private network")
	}
	if !pings(t, PodOf("srv-a"), netip.MustParseAddr("10.244.2.10"), 2) {
		t.Error("the pod of srv-a does not reach the pod of srv-b")
	}
	target := net.JoinHostPort("10.0.0.1", strconv.Itoa(int(portNumber(service.URL))))
	if got := execute(t, "srv-a", "busybox", "wget", "-q", "-O", "-", "http://"+target); got != "the caller's service" {
		t.Errorf("through the management address: %q", got)
	}
	if got := execute(t, "srv-b", "hostname"); got != "srv-b\n" {
		t.Errorf("host name %q", got)
	}
	if got := execute(t, "srv-a", "ls", "/sys/class/net"); !strings.Contains(got, "bond0.4") {
		t.Errorf("/sys does not show the interfaces of the server: %q", got)
	}
	if got := execute(t, "srv-b", "cat", Path("note.txt")); !strings.Contains(got, "TestServersReach") {
		t.Errorf("the file that was handed over holds %d bytes of something else", len(got))
	}
}

func TestVLANIsOpenOnlyForMembers(t *testing.T) {
	n := publicNetwork{vlan: 100, base: 0}
	n.publish(true)
	n.configure(t, "srv-a", 2)
	if pings(t, "srv-a", n.ip(1), 2) {
		t.Fatal("the gateway answers a server that is no member")
	}
	n.publish(true, "id-a")
	eventually(t, "the gateway answers a member", func() bool { return pings(t, "srv-a", n.ip(1), 1) })
	n.publish(true, "id-b")
	eventually(t, "the gateway is silent again", func() bool { return !pings(t, "srv-a", n.ip(1), 1) })
}

func TestGatewayServesABlockOnlyWhileItIsAssigned(t *testing.T) {
	n := publicNetwork{vlan: 101, base: 8}
	n.publish(false, "id-a")
	n.configure(t, "srv-a", 2)
	if pings(t, "srv-a", n.ip(1), 2) {
		t.Fatal("there is a gateway for a block that is not assigned")
	}
	n.publish(true, "id-a")
	eventually(t, "the client reaches the server", func() bool { return pings(t, Client, n.ip(2), 1) })
	n.publish(false, "id-a")
	eventually(t, "the client does not reach the server any more", func() bool { return !pings(t, Client, n.ip(2), 1) })
	entries, err := shared.Neighbours(t.Context(), Gateway)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IP == n.ip(2) {
			t.Errorf("the gateway still knows %+v", e)
		}
	}
}

func TestGatewayDropsForeignSources(t *testing.T) {
	n := publicNetwork{vlan: 102, base: 16}
	n.publish(true, "id-a")
	n.configure(t, "srv-a", 2)
	eventually(t, "the client answers", func() bool { return pings(t, "srv-a", netip.MustParseAddr("198.51.100.10"), 1) })
	execute(t, "srv-a", "ip", "address", "add", "192.0.2.55/32", "dev", "lo")
	before := echoesAtClient(t)
	if _, err := shared.Exec(t.Context(), "srv-a", "busybox", "ping", "-c", "2", "-W", "1", "-I", "192.0.2.55", "198.51.100.10"); err != nil {
		t.Fatal(err)
	}
	if got := echoesAtClient(t) - before; got != 0 {
		t.Errorf("%d packets with a foreign source reached the client", got)
	}
	before = echoesAtClient(t)
	if _, err := shared.Exec(t.Context(), "srv-a", "busybox", "ping", "-c", "2", "-W", "1", "-I", n.ip(2).String(), "198.51.100.10"); err != nil {
		t.Fatal(err)
	}
	if got := echoesAtClient(t) - before; got != 2 {
		t.Errorf("%d of 2 packets with the server's own source reached the client", got)
	}
}

// echoesAtClient counts the echo requests that the client has received (RFC 2011, icmpInEchos).
func echoesAtClient(t *testing.T) int {
	t.Helper()
	names, values, _ := strings.Cut(execute(t, Client, "grep", "^Icmp:", "/proc/net/snmp"), "\n")
	i := slices.Index(strings.Fields(names), "InEchos")
	count, err := strconv.Atoi(strings.Fields(values)[i])
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func TestOnlyAnAnnouncementMovesAnAddress(t *testing.T) {
	// The address lies in a block of its own, as a Service's does: a server with an address of the same block would
	// forward what it still gets to the new holder.
	n, service := publicNetwork{vlan: 103, base: 24, more: []int{56}}, publicNetwork{base: 56}
	n.publish(true, "id-a", "id-b")
	n.configure(t, "srv-a", 2)
	n.configure(t, "srv-b", 3)
	vip := service.ip(2)
	execute(t, "srv-a", "ip", "address", "add", vip.String()+"/32", "dev", n.link())
	eventually(t, "the client reaches the address on srv-a", func() bool { return pings(t, Client, vip, 1) })
	execute(t, "srv-a", "ip", "address", "del", vip.String()+"/32", "dev", n.link())
	execute(t, "srv-b", "ip", "address", "add", vip.String()+"/32", "dev", n.link())
	if pings(t, Client, vip, 8) { // longer than the kernel would wait before it asks again by itself
		t.Fatal("the gateway found the new holder without an announcement")
	}
	moved := time.Now()
	announce(t, "srv-b", n.link(), vip)
	if !pings(t, Client, vip, 2) {
		t.Error("the address is dead after it was announced by its new holder")
	}
	claims, err := shared.ARPClaims(t.Context(), moved.Add(-100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(claims.Claims, func(c Claim) bool {
		return c.IP == vip && c.VLAN == n.vlan && c.Gratuitous && time.Since(c.At) < time.Minute
	}) {
		t.Errorf("the announcement of %s is not among the claims: %+v", vip, claims.Claims)
	}
}

// announce sends gratuitous ARP as a new holder does.
func announce(t *testing.T, server, link string, ip netip.Addr) {
	t.Helper()
	execute(t, server, "busybox", "arping", "-U", "-c", "2", "-I", link, ip.String())
}

func TestTwoClaimantsAreAConflict(t *testing.T) {
	n := publicNetwork{vlan: 104, base: 32}
	n.publish(true, "id-a", "id-b")
	n.configure(t, "srv-a", 2)
	n.configure(t, "srv-b", 3)
	start := time.Now()
	for _, server := range []string{"srv-a", "srv-b"} {
		execute(t, server, "ip", "address", "add", n.ip(4).String()+"/32", "dev", n.link())
	}
	eventually(t, "both answer the gateway", func() bool {
		pings(t, Client, n.ip(4), 1)
		claims, err := shared.ARPClaims(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		return len(claims.Conflicts) > 0 && claims.Conflicts[0].IP == n.ip(4)
	})
}

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
			if err := shared.Mend(t.Context(), "srv-b"); err != nil {
				t.Fatal(err)
			}
		})
	}
	eventually(t, "the client reaches the server", func() bool { return pings(t, Client, n.ip(2), 1) })
}

func TestProgramsRunAndEndAsTold(t *testing.T) {
	out, err := shared.ExecProgram(t.Context(), Program{
		Host: "srv-a", Args: []string{"sh", "-c", "cat; echo $WORD >&2; exit 3"}, Env: []string{"WORD=hello"}, Stdin: []byte("in"),
	})
	if err != nil || string(out.Stdout) != "in" || string(out.Stderr) != "hello\n" || out.Code != 3 {
		t.Errorf("Exec = %+v, %v", out, err)
	}
	if _, err := shared.ExecProgram(t.Context(), Program{Host: "srv-a", Args: []string{"sleep", "600"}, Timeout: time.Second}); err == nil {
		t.Error("a program that runs into its time limit is no error")
	}
	id, err := shared.StartProcess(t.Context(), Program{Host: "srv-a", Name: "sleeper", Args: []string{"sh", "-c", "echo started; exec sleep 600"}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its first words are in the log", func() bool {
		log, err := shared.Log(t.Context(), "sleeper")
		return err == nil && string(log) == "started\n"
	})
	if exited, _, err := shared.ProcessExited(t.Context(), id); exited || err != nil {
		t.Errorf("ProcessExited = %v, %v while it sleeps", exited, err)
	}
	if err := shared.Signal(t.Context(), id, 15); err != nil {
		t.Fatal(err)
	}
	p, err := shared.Await(t.Context(), id, 10*time.Second)
	if err != nil || !p.Exited || p.Code != 128+15 || time.Since(p.End).Abs() > 20*time.Second {
		t.Errorf("Await = %+v, %v, want the end by SIGTERM just now", p, err)
	}
}

func TestFilesWrittenLater(t *testing.T) {
	if err := shared.WriteFile(t.Context(), "later/script", []byte("#!/bin/sh\necho from a file\n"), 0o755); err != nil {
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
	serve := Program{Host: "srv-b", Name: "web", Args: []string{"sh", "-c", "cd /run/home && echo answer > index.html && busybox httpd -f -p 80"}}
	id, err := shared.StartProcess(t.Context(), serve)
	if err != nil {
		t.Fatal(err)
	}
	probe, err := shared.StartProbe(t.Context(), Probe{URL: "http://" + n.ip(2).String() + "/", Interval: 50 * time.Millisecond, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the client gets answers", func() bool { return lastAnswered(t, probe) })
	killed := time.Now()
	if err := shared.KillServer(t.Context(), "srv-b"); err != nil {
		t.Fatal(err)
	}
	if p, err := shared.Await(t.Context(), id, 10*time.Second); err != nil || p.Code != 128+9 {
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
	if last.Duration() <= 0 || last.From.After(killed.Add(time.Second)) || last.To.Before(killed) {
		t.Errorf("outage %+v, want one around the kill at %v", last, killed)
	}
	t.Logf("outage of %v, %d attempts failed", last.Duration(), last.Failed)
}

// lastAnswered tells whether the newest attempt of a probe succeeded.
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
	if _, err := l.StartProcess(t.Context(), Program{Host: "srv-a", Name: "stubborn", Args: []string{"sh", "-c", "trap '' TERM; sleep 600"}}); err != nil {
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
