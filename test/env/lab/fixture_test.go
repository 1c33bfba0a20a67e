//go:build linux

package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/dataplane"
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
	service = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "the caller's service")
	}))
	defer service.Close()
	var err error
	shared, err = Start(ctx, Config{
		Servers: testServers(), FeedURL: feedServer.URL, HostPorts: []uint16{portNumber(service.URL)},
		Files: map[string]string{"note.txt": "network_test.go"}, Programs: []string{"ip", "nft"}, Log: os.Stderr,
		TimeLimit: 10 * time.Minute, ClientPrivate: netip.MustParsePrefix("10.0.0.5/24"),
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
		{Name: "srv-a", ID: "id-a", Location: "ASH", Private: netip.MustParsePrefix("10.0.0.11/24"),
			Pods: netip.MustParsePrefix("10.244.1.0/24")},
		{Name: "srv-b", ID: "id-b", Location: "ASH", Private: netip.MustParsePrefix("10.0.0.12/24"),
			Pods: netip.MustParsePrefix("10.244.2.0/24")},
		{Name: "srv-c", ID: "id-c", Location: "ASH", Private: netip.MustParsePrefix("10.0.0.13/24"),
			Pods: netip.MustParsePrefix("10.244.3.0/24"), Bridge: "vmbr0",
			Storage: netip.MustParsePrefix("10.60.0.3/24")},
		{Name: "srv-d", ID: "id-d", Location: "PHX", Private: netip.MustParsePrefix("10.0.0.14/24"),
			Pods: netip.MustParsePrefix("10.244.4.0/24")},
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
	others = append(others, n)
	f.state.Networks = others
	f.state.Revision++
	close(f.changed)
	f.changed = make(chan struct{})
}

// publicNetwork is the network of one test: the block 203.0.113.<base>/29 on a VLAN.
type publicNetwork struct {
	vlan, base int
	// more are the bases of further blocks.
	more []int
	// location is that of the network; empty for the first one of the lab.
	location string
}

func (p publicNetwork) ip(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113, byte(p.base + n)})
}

// publish puts the network into the feed.
func (p publicNetwork) publish(assigned bool, members ...string) {
	n := dataplane.Network{ID: fmt.Sprint("net-", p.location, p.vlan), VLAN: p.vlan, Members: members,
		Location: cmp.Or(p.location, "ASH")}
	if assigned {
		for _, base := range append([]int{p.base}, p.more...) {
			b := publicNetwork{base: base}
			n.Blocks = append(n.Blocks, dataplane.Block{ID: fmt.Sprint("block-", base), CIDR: b.ip(0).String() + "/29",
				Gateway: b.ip(1).String()})
		}
	}
	feed.put(n)
}

// configure gives a server the n-th address of the block.
func (p publicNetwork) configure(t *testing.T, server string, n int) {
	t.Helper()
	err := shared.ConfigureVLAN(t.Context(), VLAN{Server: server, ID: p.vlan, Address: netip.PrefixFrom(p.ip(n), 29),
		Gateway: p.ip(1)})
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

// pings reports whether one of n requests, a second apart, is answered.
func pings(t *testing.T, host string, to netip.Addr, n int) bool {
	t.Helper()
	out, err := shared.Exec(t.Context(), host, "busybox", "ping", "-c", strconv.Itoa(n), "-W", "1", to.String())
	if err != nil {
		t.Fatal(err)
	}
	return out.Code == 0
}

// eventually tries until a condition holds, for a minute.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
