//go:build linux

package returnpath

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/labtest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim/dataplane"
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

// rig is the network with its programs.
type rig struct {
	labtest.Harness
	cp    *controlplane.ControlPlane
	kube  kubernetes.Interface
	dir   string
	proxy map[string]int // process of kube-proxy by server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Harness: labtest.Harness{T: t}, dir: t.TempDir(), proxy: map[string]int{}}
	var err error
	r.cp, err = controlplane.Start(t.Context(), controlplane.Options{Names: []string{"10.0.0.1"}})
	r.Must("start the control plane", err)
	t.Cleanup(func() { _ = r.cp.Stop() })
	r.kube, err = kubernetes.NewForConfig(r.cp.Config())
	r.Must("client", err)
	root, err := tools.ModuleRoot()
	r.Must("find the source tree", err)
	r.Must("apply the agent's manifest", r.cp.ApplyFiles(t.Context(), filepath.Join(root, "deploy/base/agent.yaml"),
		filepath.Join(root, "deploy/base/agent-policy.yaml")))
	r.Begin(lab.Config{
		Servers: servers(), HostPorts: []uint16{uint16(r.cp.Port())}, Files: r.files(),
		Programs: []string{"ip", "nft", "setpriv", "iptables", "iptables-save", "iptables-restore"}, Log: os.Stderr,
		TimeLimit: 10 * time.Minute,
	}, state(), func() {
		r.PrintLogs([]string{holder, other}, []string{"ip", "rule"}, []string{"ip", "route", "show", "table", "all"})
	})
	r.configure()
	return r
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
func (r *rig) files() map[string]string {
	r.T.Helper()
	files := map[string]string{"xtables": extensions(r.T)}
	for name, build := range map[string]func() (string, error){
		"kube-proxy": func() (string, error) { return tools.Binary(r.T.Context(), "kube-proxy") },
		"backend":    func() (string, error) { return tools.Product(r.T.Context(), "./test/env/cluster/cmd/backend") },
		"agent":      func() (string, error) { return tools.Product(r.T.Context(), "./agent") },
	} {
		path, err := build()
		r.Must("build "+name, err)
		files[name] = path
	}
	for name, user := range map[string]func() (*rest.Config, error){
		"kube-proxy.kubeconfig": func() (*rest.Config, error) { return r.cp.User("system:kube-proxy") },
		"agent.kubeconfig": func() (*rest.Config, error) {
			return r.cp.ServiceAccountOn(r.T.Context(), metav1.NamespaceSystem, "phoenixnap-agent", holder)
		},
	} {
		config, err := user()
		r.Must("credentials "+name, err)
		files[name] = filepath.Join(r.dir, name)
		r.Must("write "+name, controlplane.WriteKubeconfig(files[name], config,
			fmt.Sprintf("https://10.0.0.1:%d", r.cp.Port())))
	}
	return files
}

// extensions is where iptables has its modules.
func extensions(t *testing.T) string {
	t.Helper()
	if err := tools.Packages(t.Context(), "iptables"); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"/usr/lib/*/xtables", "/usr/lib/xtables", "/lib/xtables"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	t.Fatal("iptables is installed, but its directory xtables is not found below /usr/lib")
	return ""
}

// configure gives the servers the networks of a phoenixNAP server with a default network besides the cluster's public
// one.
func (r *rig) configure() {
	r.T.Helper()
	for i, s := range servers() {
		host := byte(2 + i)
		r.Must("default network", r.Lab.ConfigureVLAN(r.T.Context(), lab.VLAN{Server: s.Name, ID: defaultVLAN,
			Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, host}), 28),
			Gateway: netip.MustParseAddr("192.0.2.1")}))
		r.Must("public network", r.Lab.ConfigureVLAN(r.T.Context(), lab.VLAN{Server: s.Name, ID: serviceVLAN,
			Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, host}), 29)}))
		r.publish(s, netip.AddrFrom4([4]byte{203, 0, 113, host}))
		// As a network plugin that routes does.
		r.Run(s.Name, "ip", "route", "add", podOf(s.Name).String()+"/32", "dev", "pod0")
		r.Start(lab.Program{Host: lab.PodOf(s.Name), Name: "backend-" + s.Name,
			Args: []string{lab.Path("backend"), "--listen", ":" + strconv.Itoa(backendPort), "--name", s.Name}})
	}
	for _, vip := range []string{vipOne, vipTwo} {
		r.Run(holder, "ip", "address", "add", vip+"/32", "dev", publicLink)
		r.Run(holder, "busybox", "arping", "-U", "-c", "1", "-I", publicLink, vip)
	}
	// A program of the node itself, as an ingress controller with hostNetwork is.
	r.Start(lab.Program{Host: holder, Name: "listener",
		Args: []string{lab.Path("backend"), "--listen", ":" + strconv.Itoa(hostPort), "--name", "the node"}})
}

// publish makes the Node of a server, as its kubelet and the controller would.
func (r *rig) publish(s lab.Server, public netip.Addr) {
	r.T.Helper()
	network := contract.NodeNetwork{ServerID: s.ID, NetworkID: "services", VLAN: serviceVLAN, IPs: []netip.Addr{public},
		Member: true, Announcer: contract.AnnouncerNone}
	for _, raw := range []string{nodeBlock, blockOne, blockTwo} {
		cidr := netip.MustParsePrefix(raw)
		network.Blocks = append(network.Blocks, contract.NetworkBlock{CIDR: cidr, Gateway: cidr.Addr().Next()})
	}
	annotations, err := network.Annotations()
	r.Must("annotations", err)
	_, err = r.kube.CoreV1().Nodes().Create(r.T.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Annotations: annotations},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
			Address: s.Private.Addr().String()}}},
	}, metav1.CreateOptions{})
	r.Must("create a node", err)
}

// fetch asks from a host of the cluster; empty without an answer in time.
func (r *rig) fetch(ctx context.Context, host, address string) string {
	// busybox' own time limit (-T) ends it by a fault when it is linked statically.
	out, err := r.Lab.ExecProgram(ctx, lab.Program{Host: host, Timeout: 2 * attempt,
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
func (r *rig) proxyMode(mode string) {
	r.T.Helper()
	for _, s := range servers() {
		if id, running := r.proxy[s.Name]; running {
			r.Must("end kube-proxy", r.Lab.Signal(r.T.Context(), id, syscall.SIGKILL))
			_, err := r.Lab.Await(r.T.Context(), id, 10*time.Second)
			r.Must("wait for its end", err)
			out, err := r.Lab.ExecProgram(r.T.Context(),
				lab.Program{Host: s.Name, Env: proxyEnvironment, Args: append(proxyCommand(s.Name, mode), "--cleanup")})
			r.Must("clean up kube-proxy", err)
			if strings.Contains(r.Run(s.Name, "nft", "list", "tables"), "kube-proxy") {
				r.T.Fatalf("kube-proxy --cleanup left its table on %s: %s", s.Name, out.Stderr)
			}
		}
		// Makes the kernel load nf_tables: two kube-proxies that ask for it at the same instant may be refused.
		r.Run(s.Name, "nft", "list", "tables")
		r.proxy[s.Name] = r.Start(lab.Program{Host: s.Name, Name: "kube-proxy-" + mode + "-" + s.Name,
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
func (r *rig) within(limit time.Duration, what string, holds func(context.Context) bool) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), limit)
	defer cancel()
	for !holds(ctx) {
		select {
		case <-ctx.Done():
			r.T.Fatalf("not within %s: %s", limit, what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
