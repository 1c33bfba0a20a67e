//go:build linux

// Package labtest is a lab whose failures fail the test.
package labtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/dataplane"
)

// logEnd is how much of a program's log is shown, in bytes.
const logEnd = 3000

// Harness holds a lab. Its methods end the test when they fail.
type Harness struct {
	// T is the current test; a subtest may replace it.
	T   *testing.T
	Lab *lab.Lab
}

// Begin starts the lab, with a data plane that never changes, for as long as the test lasts. explain is called when the
// test has failed, before the lab goes.
func (h *Harness) Begin(c lab.Config, state dataplane.DataPlane, explain func()) {
	h.T.Helper()
	server := httptest.NewServer(feed(state))
	h.T.Cleanup(server.Close)
	// The address of a TCP listener can be parsed.
	c.HostPorts = append(c.HostPorts, netip.MustParseAddrPort(server.Listener.Addr().String()).Port())
	c.FeedURL = server.URL
	var err error
	h.Lab, err = lab.Start(h.T.Context(), c)
	h.Must("start the lab", err)
	h.T.Cleanup(func() {
		if h.T.Failed() {
			explain()
		}
		if err := h.Lab.Stop(); err != nil {
			h.T.Error(err)
		}
	})
}

// Must ends the test on an error.
func (h *Harness) Must(what string, err error) {
	h.T.Helper()
	if err != nil {
		h.T.Fatalf("%s: %v", what, err)
	}
}

// Start starts a program in the background, and returns its ID.
func (h *Harness) Start(p lab.Program) int {
	h.T.Helper()
	id, err := h.Lab.StartProcess(h.T.Context(), p)
	h.Must("start "+p.Name, err)
	return id
}

// Run runs a program that must succeed, and returns what it wrote.
func (h *Harness) Run(host string, args ...string) string {
	h.T.Helper()
	what := host + ": " + strings.Join(args, " ")
	out, err := h.Lab.Exec(h.T.Context(), host, args...)
	h.Must(what, err)
	if out.Code != 0 {
		h.T.Fatalf("%s: exit code %d\n%s%s", what, out.Code, out.Stdout, out.Stderr)
	}
	return string(out.Stdout)
}

// Sh runs a line of shell that must succeed.
func (h *Harness) Sh(host, line string) string {
	h.T.Helper()
	return h.Run(host, "busybox", "sh", "-c", line)
}

// IP runs ip, which must succeed.
func (h *Harness) IP(host string, args ...string) string {
	h.T.Helper()
	return h.Run(host, append([]string{"ip"}, args...)...)
}

// PrintLogs shows the ends of the logs of all programs, and what some commands say on some hosts. It is for a test that
// failed.
func (h *Harness) PrintLogs(hosts []string, commands ...[]string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.T.Context()), 30*time.Second)
	defer cancel()
	for _, host := range hosts {
		for _, args := range commands {
			out, err := h.Lab.Exec(ctx, host, args...)
			h.T.Logf("%s: %s: %s%s (%v)", host, strings.Join(args, " "), out.Stdout, out.Stderr, err)
		}
	}
	processes, err := h.Lab.Processes(ctx, "")
	if err != nil {
		h.T.Log(err)
	}
	for _, p := range processes {
		raw, err := h.Lab.Log(ctx, p.Name)
		h.T.Logf("%s on %s (ended %t): ... %s (%v)", p.Name, p.Host, p.Exited, raw[max(0, len(raw)-logEnd):], err)
	}
}

// PrintNodes prints the conditions of Nodes and their address reports. It is for a test that failed.
func (h *Harness) PrintNodes(kube kubernetes.Interface) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.T.Context()), 30*time.Second)
	defer cancel()
	nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		h.T.Log(err)
		return
	}
	for _, node := range nodes.Items {
		h.T.Logf("%s reports %s", node.Name, node.Annotations[contract.NodeReportedAddresses])
		for _, c := range node.Status.Conditions {
			h.T.Logf("%s: %s %s %s: %s", node.Name, c.Type, c.Status, c.Reason, c.Message)
		}
	}
}

// Servers are some servers, srv-a, srv-b and so on, each with addresses of its own for itself and for its pods.
func Servers(count int) []lab.Server {
	var all []lab.Server
	for i := range count {
		all = append(all, lab.Server{
			Name: fmt.Sprintf("srv-%c", 'a'+i), ID: fmt.Sprintf("66a1f0c2b5d3e4f5a6b7c8%02d", i),
			Private: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(11 + i)}), 24),
			Pods:    netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(1 + i), 0}), 24),
		})
	}
	return all
}

// Names are those of servers.
func Names(servers []lab.Server) (names []string) {
	for _, s := range servers {
		names = append(names, s.Name)
	}
	return names
}

// PublicNetwork is a data plane of one public network: its VLAN is open on the ports of all servers, and the first
// address of each block is the gateway's.
func PublicNetwork(vlan int, servers []lab.Server, blocks ...netip.Prefix) dataplane.DataPlane {
	network := dataplane.Network{ID: "public", VLAN: vlan}
	for _, s := range servers {
		network.Members = append(network.Members, s.ID)
	}
	for _, b := range blocks {
		network.Blocks = append(network.Blocks, dataplane.Block{ID: b.String(), CIDR: b.String(),
			Gateway: b.Addr().Next().String()})
	}
	return dataplane.DataPlane{Revision: 1, Networks: []dataplane.Network{network}}
}

// feed serves one state of the data plane, as the simulated API would; it never changes.
type feed dataplane.DataPlane

// ServeHTTP answers at once if the client does not know the state, else after some seconds.
func (f feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("revision") == strconv.FormatInt(f.Revision, 10) {
		loop.Sleep(r.Context(), 5*time.Second)
	}
	_ = json.NewEncoder(w).Encode(f) // who asked may have gone
}
