//go:build linux

package announcer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim/dataplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/tools"
)

const (
	vlan        = 56
	publicLink  = "bond0.56"
	privateLink = "bond0.4"
	gatewayLink = "eth0.56"
	apiServer   = "10.0.0.1"
	nodeGateway = "203.0.113.1"
	networkID   = "60473c2509268bc77fd06d29"
)

// keyFlag gives an agent the key of the heartbeats.
var keyFlag = "--announcer-key-file=" + lab.Path("key")

// Blocks of the public network: that of the nodes and that of the Services.
var (
	nodeBlock    = netip.MustParsePrefix("203.0.113.0/28")
	serviceBlock = netip.MustParsePrefix("203.0.113.128/25")
)

// rig is a control plane and servers, each with the shipped agent. What the controller would publish is published by hand.
type rig struct {
	t       *testing.T
	lab     *lab.Lab
	cp      *controlplane.ControlPlane
	kube    kubernetes.Interface
	servers []lab.Server
	dir     string
	next    byte              // the last byte of the next Service's address
	agents  map[string]int    // the processes by server
	macs    map[string]string // of the VLAN interfaces by server
}

// feed serves one state of the data plane, as the simulated API would; it never changes.
type feed dataplane.DataPlane

// ServeHTTP answers at once who does not know the state.
func (f feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	known, err := strconv.ParseInt(r.URL.Query().Get("revision"), 10, 64)
	if err != nil || r.URL.Path != dataplane.Path {
		http.Error(w, "ask for "+dataplane.Path+"?revision=<number>", http.StatusBadRequest)
		return
	}
	if known >= f.Revision {
		select {
		case <-time.After(5 * time.Second):
		case <-r.Context().Done():
			return
		}
	}
	_ = json.NewEncoder(w).Encode(f) // who asked has gone then
}

// newRig starts everything but the agents.
func newRig(t *testing.T, servers int) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), next: 130, agents: map[string]int{}, macs: map[string]string{}}
	for i := range servers {
		r.servers = append(r.servers, lab.Server{
			Name: fmt.Sprintf("srv-%c", 'a'+i), ID: fmt.Sprintf("66a1f0c2b5d3e4f5a6b7c8%02d", i),
			Private: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(11 + i)}), 24),
			Pods:    netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(1 + i), 0}), 24),
		})
	}
	var err error
	r.cp, err = controlplane.Start(t.Context(), controlplane.Options{Names: []string{apiServer}})
	r.must("start the control plane", err)
	t.Cleanup(func() { _ = r.cp.Stop() })
	r.kube, err = kubernetes.NewForConfig(r.cp.Config())
	r.must("client", err)
	root, err := tools.ModuleRoot()
	r.must("find the source tree", err)
	r.must("apply the manifests", r.cp.ApplyFiles(t.Context(), filepath.Join(root, "deploy/overlays/kubeadm-agent")))
	r.startLab()
	for i, s := range r.servers {
		r.join(s, netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(2 + i)}), nodeBlock.Bits()))
	}
	return r
}

func (r *rig) startLab() {
	r.t.Helper()
	server := httptest.NewServer(feed(r.state()))
	r.t.Cleanup(server.Close)
	var err error
	r.lab, err = lab.Start(r.t.Context(), lab.Config{
		Servers: r.servers, HostPorts: []uint16{uint16(r.cp.Port()), portOf(r.t, server.URL)}, //nolint:gosec // TCP ports
		FeedURL: server.URL, Files: r.files(), Programs: []string{"ip", "nft", "setpriv"}, MemoryMiB: 2048, TimeLimit: 15 * time.Minute,
	})
	r.must("start the lab", err)
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.printLogs()
		}
		if err := r.lab.Stop(); err != nil {
			r.t.Error(err)
		}
	})
}

// state opens the VLAN on all servers' ports.
func (r *rig) state() dataplane.DataPlane {
	network := dataplane.Network{ID: "public", VLAN: vlan}
	for _, s := range r.servers {
		network.Members = append(network.Members, s.ID)
	}
	for _, b := range []netip.Prefix{nodeBlock, serviceBlock} {
		network.Blocks = append(network.Blocks, dataplane.Block{ID: b.String(), CIDR: b.String(), Gateway: b.Addr().Next().String()})
	}
	return dataplane.DataPlane{Revision: 1, Networks: []dataplane.Network{network}}
}

// files are the programs of the servers: name in the lab → path on this machine.
func (r *rig) files() map[string]string {
	r.t.Helper()
	files := map[string]string{}
	path, err := tools.Product(r.t.Context(), "./agent")
	r.must("build the agent", err)
	files["phoenixnap-agent"] = path
	key := filepath.Join(r.dir, "key")
	r.must("key", os.WriteFile(key, []byte(contract.FormatAnnouncerKey(contract.AnnouncerKey{7})), 0o600))
	files["key"] = key
	for _, s := range r.servers {
		config, err := r.cp.ServiceAccountOn(r.t.Context(), metav1.NamespaceSystem, "phoenixnap-agent", s.Name)
		r.must("token of the agent on "+s.Name, err)
		files[agentConfig(s.Name)] = r.kubeconfig(s.Name, config)
	}
	return files
}

// agentConfig is the name of the kubeconfig of a server's agent.
func agentConfig(server string) string { return "agent-" + server + ".kubeconfig" }

func (r *rig) kubeconfig(name string, config *rest.Config) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name+".kubeconfig")
	r.must("kubeconfig of "+name, controlplane.WriteKubeconfig(path, config, fmt.Sprintf("https://%s:%d", apiServer, r.cp.Port())))
	return path
}

// join configures a server's VLAN and makes its Node as kubelet and controller would.
func (r *rig) join(s lab.Server, address netip.Prefix) {
	r.t.Helper()
	r.must("configure the VLAN", r.lab.ConfigureVLAN(r.t.Context(), lab.VLAN{
		Server: s.Name, ID: vlan, Address: address, Gateway: netip.MustParseAddr(nodeGateway),
	}))
	annotations, err := contract.NodeNetwork{
		ServerID: s.ID, NetworkID: networkID, VLAN: vlan, IPs: []netip.Addr{address.Addr()}, Member: true, Announcer: contract.AnnouncerAgent,
		Blocks: []contract.NetworkBlock{
			{CIDR: nodeBlock, Gateway: nodeBlock.Addr().Next()}, {CIDR: serviceBlock, Gateway: serviceBlock.Addr().Next()},
		},
	}.Annotations()
	r.must("annotations", err)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Annotations: annotations},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: s.Private.Addr().String()}}},
	}
	_, err = r.kube.CoreV1().Nodes().Create(r.t.Context(), node, metav1.CreateOptions{})
	r.must("create Node "+s.Name, err)
}

// agent starts the agent of a server, with further flags.
func (r *rig) agent(server string, flags ...string) {
	r.t.Helper()
	r.agents[server] = r.start(lab.Program{Host: server, Name: "agent-" + server, Args: append([]string{
		"setpriv", "--bounding-set", "-all,+net_raw", "--inh-caps", "-all", "--no-new-privs",
		lab.Path("phoenixnap-agent"), "run", "--node-name", server, "--kubeconfig", lab.Path(agentConfig(server)), "--v", "2",
		// An emulated machine that shares its processor may stand still for longer than three usual heartbeats take.
		"--announcer-interval", "1s",
	}, flags...)})
}

// serve creates a Service with a published address, as the controller leaves it.
func (r *rig) serve(name string) netip.Addr {
	r.t.Helper()
	r.next++
	address := netip.AddrFrom4([4]byte{203, 0, 113, r.next})
	services := r.kube.CoreV1().Services(metav1.NamespaceDefault)
	made, err := services.Create(r.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	r.must("create Service "+name, err)
	made.Annotations = map[string]string{
		contract.ServiceIPAddress: address.String(), contract.ServiceIPBlockAssigned: "true", contract.ServiceIPOwner: string(made.UID),
	}
	_, err = services.Update(r.t.Context(), made, metav1.UpdateOptions{})
	r.must("publish an address for Service "+name, err)
	return address
}

func (r *rig) start(p lab.Program) int {
	r.t.Helper()
	id, err := r.lab.StartProcess(r.t.Context(), p)
	r.must("start "+p.Name, err)
	return id
}

// sh runs a line of shell that must succeed.
func (r *rig) sh(host, line string) string {
	r.t.Helper()
	out, err := r.lab.Exec(r.t.Context(), host, "busybox", "sh", "-c", line)
	r.must(host+": "+line, err)
	if out.Code != 0 {
		r.t.Fatalf("%s: %s: exit code %d\n%s%s", host, line, out.Code, out.Stdout, out.Stderr)
	}
	return string(out.Stdout)
}

func (r *rig) ip(host string, args ...string) string {
	r.t.Helper()
	out, err := r.lab.Exec(r.t.Context(), host, append([]string{"ip"}, args...)...)
	r.must(host+": ip", err)
	if out.Code != 0 {
		r.t.Fatalf("%s: ip %s: exit code %d\n%s%s", host, strings.Join(args, " "), out.Code, out.Stdout, out.Stderr)
	}
	return string(out.Stdout)
}

func (r *rig) must(what string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// printLogs shows the end of what the programs have written, and what the Nodes say.
func (r *rig) printLogs() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), 30*time.Second)
	defer cancel()
	for _, s := range r.servers {
		out, err := r.lab.Exec(ctx, s.Name, "ip", "-4", "address", "show", "dev", publicLink)
		r.t.Logf("%s: %s (%v)", s.Name, out.Stdout, err)
		if node, err := r.kube.CoreV1().Nodes().Get(ctx, s.Name, metav1.GetOptions{}); err == nil {
			r.t.Logf("%s reports %s", s.Name, node.Annotations[contract.NodeReportedAddresses])
			for _, c := range node.Status.Conditions {
				r.t.Logf("%s: %s %s %s: %s", s.Name, c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	processes, err := r.lab.Processes(ctx, "")
	if err != nil {
		r.t.Log(err)
	}
	for _, p := range processes {
		raw, err := r.lab.Log(ctx, p.Name)
		r.t.Logf("%s (ended %t): ... %s (%v)", p.Name, p.Exited, raw[max(0, len(raw)-3000):], err)
	}
}

func portOf(t *testing.T, address string) uint16 {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(port)
}
