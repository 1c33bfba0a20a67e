//go:build linux

package returnpath

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/agentlab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/dataplane"
)

// The public network of the Services is VLAN 100; the servers' default route leads through another network, VLAN 200.
// Both routers drop sources that are not reached through the interface by which they come (BCP 38).
const (
	serviceVLAN = 100
	defaultVLAN = 200
	publicLink  = "bond0.100"
	holder      = "srv-a"
	other       = "srv-b"
	backendPort = 8080
	hostPort    = 9090
	clientIP    = "198.51.100.10"
)

// Blocks of the public network: the servers' own and two of Services. The holder's addresses are one of each.
var (
	nodeBlock = "203.0.113.0/29"
	blockOne  = "203.0.113.8/29"
	blockTwo  = "203.0.113.16/29"
	nodeIP    = "203.0.113.2"
	vipOne    = "203.0.113.10"
	vipTwo    = "203.0.113.18"
)

// harness is the network with its programs.
type harness struct {
	*agentlab.Cluster
	proxy map[string]int // process of kube-proxy by server
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{Cluster: agentlab.New(t, servers(), "deploy/base/agent.yaml", "deploy/base/agent-policy.yaml"),
		proxy: map[string]int{}}
	h.Begin(lab.Config{
		Servers: servers(), HostPorts: []uint16{uint16(h.ControlPlane.Port())}, Files: h.files(),
		Programs: []string{"ip", "nft", "setpriv", "iptables", "iptables-save", "iptables-restore"}, Log: os.Stderr,
		TimeLimit: 10 * time.Minute,
	}, state(), func() {
		h.PrintLogs([]string{holder, other}, []string{"ip", "rule"}, []string{"ip", "route", "show", "table", "all"})
	})
	h.configure()
	return h
}

func servers() []lab.Server {
	return []lab.Server{
		{Name: holder, ID: "id-a", Private: netip.MustParsePrefix("10.0.0.11/24"),
			Pods: netip.MustParsePrefix("10.244.1.0/24")},
		{Name: other, ID: "id-b", Private: netip.MustParsePrefix("10.0.0.12/24"),
			Pods: netip.MustParsePrefix("10.244.2.0/24")},
	}
}

func state() dataplane.DataPlane {
	members := []string{"id-a", "id-b"}
	block := func(cidr string) dataplane.Block {
		return dataplane.Block{ID: cidr, CIDR: cidr, Gateway: netip.MustParsePrefix(cidr).Addr().Next().String()}
	}
	return dataplane.DataPlane{Revision: 1, Networks: []dataplane.Network{
		{ID: "default", VLAN: defaultVLAN, Members: members, Blocks: []dataplane.Block{block("192.0.2.0/28")}},
		{ID: "services", VLAN: serviceVLAN, Members: members,
			Blocks: []dataplane.Block{block(nodeBlock), block(blockOne), block(blockTwo)}},
	}}
}

// files are the programs of the servers: name in the lab → path on this machine.
func (h *harness) files() map[string]string {
	h.T.Helper()
	extensions, err := tools.IPTablesExtensions(h.T.Context())
	h.Must("modules of iptables", err)
	files := map[string]string{"xtables": extensions}
	for name, build := range map[string]func() (string, error){
		"kube-proxy": func() (string, error) { return tools.Binary(h.T.Context(), "kube-proxy") },
		"backend":    func() (string, error) { return tools.Product(h.T.Context(), "./test/env/cluster/cmd/backend") },
		"agent":      func() (string, error) { return tools.Product(h.T.Context(), "./agent") },
	} {
		path, err := build()
		h.Must("build "+name, err)
		files[name] = path
	}
	config, err := h.ControlPlane.User("system:kube-proxy")
	files["kube-proxy.kubeconfig"] = h.Kubeconfig("kube-proxy", config, err)
	files["agent.kubeconfig"] = h.AgentKubeconfig(holder)
	return files
}

// configure gives the servers the networks of a phoenixNAP server with a default network besides the cluster's public
// one.
func (h *harness) configure() {
	h.T.Helper()
	for i, s := range servers() {
		host := byte(2 + i)
		h.Must("default network", h.Lab.ConfigureVLAN(h.T.Context(), lab.VLAN{Server: s.Name, ID: defaultVLAN,
			Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, host}), 28),
			Gateway: netip.MustParseAddr("192.0.2.1")}))
		h.Must("public network", h.Lab.ConfigureVLAN(h.T.Context(), lab.VLAN{Server: s.Name, ID: serviceVLAN,
			Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, host}), 29)}))
		h.CreateNode(s, contract.NodeNetwork{ID: "services", VLAN: serviceVLAN,
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, host})}, Announcer: contract.AnnouncerNone},
			netip.MustParsePrefix(nodeBlock))
		// As a network plugin that routes does.
		h.Run(s.Name, "ip", "route", "add", podOf(s.Name).String()+"/32", "dev", "pod0")
		h.Start(lab.Program{Host: lab.PodOf(s.Name), Name: "backend-" + s.Name,
			Args: []string{lab.Path("backend"), "--listen", ":" + strconv.Itoa(backendPort), "--name", s.Name}})
	}
	h.CreateBlock("one", netip.MustParsePrefix(blockOne))
	h.CreateBlock("two", netip.MustParsePrefix(blockTwo))
	for _, vip := range []string{vipOne, vipTwo} {
		h.Run(holder, "ip", "address", "add", vip+"/32", "dev", publicLink)
		h.Run(holder, "busybox", "arping", "-U", "-c", "1", "-I", publicLink, vip)
	}
	// A program of the node itself, as an ingress controller with hostNetwork is.
	h.Start(lab.Program{Host: holder, Name: "listener",
		Args: []string{lab.Path("backend"), "--listen", ":" + strconv.Itoa(hostPort), "--name", "the node"}})
}

// fetch asks from a host of the cluster; empty without an answer in time.
func (h *harness) fetch(ctx context.Context, host, address string) string {
	// busybox' own time limit (-T) ends it by a fault when it is linked statically.
	out, err := h.Lab.ExecProgram(ctx, lab.Program{Host: host, Timeout: 10 * attempt,
		Args: []string{"busybox", "wget", "-q", "-O", "-", address}})
	if err != nil {
		return ""
	}
	return string(out.Stdout)
}

// proxyCommand is kube-proxy in one of its modes.
func proxyCommand(server, mode string) []string {
	return []string{
		lab.Path("kube-proxy"), "--kubeconfig=" + lab.Path("kube-proxy.kubeconfig"), "--hostname-override=" + server,
		"--proxy-mode=" + mode, "--cluster-cidr=10.244.0.0/16",
		// The kernel's limits are not the namespace's to change.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
		"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
	}
}

var proxyEnvironment = []string{"XTABLES_LIBDIR=" + lab.Path("xtables")}

// proxyMode runs kube-proxy on all servers in one mode, and takes away what another mode has left.
func (h *harness) proxyMode(mode string) {
	h.T.Helper()
	for _, s := range servers() {
		if id, running := h.proxy[s.Name]; running {
			h.Must("end kube-proxy", h.Lab.Signal(h.T.Context(), id, syscall.SIGKILL))
			_, err := h.Lab.Await(h.T.Context(), id, limits.Wait)
			h.Must("wait for its end", err)
			out, err := h.Lab.ExecProgram(h.T.Context(),
				lab.Program{Host: s.Name, Env: proxyEnvironment, Args: append(proxyCommand(s.Name, mode), "--cleanup")})
			h.Must("clean up kube-proxy", err)
			if strings.Contains(h.Run(s.Name, "nft", "list", "tables"), "kube-proxy") {
				h.T.Fatalf("kube-proxy --cleanup left its table on %s: %s", s.Name, out.Stderr)
			}
		}
		// Makes the kernel load nf_tables: two kube-proxies that ask for it at the same instant may be refused.
		h.Run(s.Name, "nft", "list", "tables")
		h.proxy[s.Name] = h.Start(lab.Program{Host: s.Name, Name: "kube-proxy-" + mode + "-" + s.Name,
			Env: proxyEnvironment, Args: proxyCommand(s.Name, mode)})
	}
}

// asPod leaves a program the capabilities that the managing agent's container has, as a container runtime does.
var asPod = []string{"setpriv", "--bounding-set", "-all,+net_raw,+net_admin", "--inh-caps", "-all", "--no-new-privs"}

func agentRun() []string {
	return append(slices.Clone(asPod), lab.Path("agent"), "run", "--node-name", holder, "--kubeconfig",
		lab.Path("agent.kubeconfig"), "--manage=return-path", "--v=2")
}

func agentCleanup() []string { return append(slices.Clone(asPod), lab.Path("agent"), "cleanup") }

// within waits until a condition holds.
func (h *harness) within(limit time.Duration, what string, holds func(context.Context) bool) {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(h.T.Context(), limit)
	defer cancel()
	for !holds(ctx) {
		select {
		case <-ctx.Done():
			h.T.Fatalf("not within %s: %s", limit, what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
