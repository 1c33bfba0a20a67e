//go:build linux

package announce

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
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

// rig is a control plane and servers, each with the shipped agent. What the controller would publish is published by
// hand.
type rig struct {
	labtest.Harness
	cp      *controlplane.ControlPlane
	kube    kubernetes.Interface
	servers []lab.Server
	dir     string
	next    byte              // the last byte of the next Service's address
	agents  map[string]int    // the processes by server
	macs    map[string]string // of the VLAN interfaces by server
}

// newRig starts everything but the agents.
func newRig(t *testing.T, servers int) *rig {
	t.Helper()
	r := &rig{Harness: labtest.Harness{T: t}, dir: t.TempDir(), next: 130, agents: map[string]int{},
		macs: map[string]string{}}
	r.servers = labtest.Servers(servers)
	var err error
	r.cp, err = controlplane.Start(t.Context(), controlplane.Options{Names: []string{apiServer}})
	r.Must("start the control plane", err)
	t.Cleanup(func() { _ = r.cp.Stop() })
	r.kube, err = kubernetes.NewForConfig(r.cp.Config())
	r.Must("client", err)
	root, err := tools.ModuleRoot()
	r.Must("find the source tree", err)
	r.Must("apply the manifests", r.cp.ApplyFiles(t.Context(), filepath.Join(root, "deploy/overlays/kubeadm-agent")))
	r.startLab()
	for i, s := range r.servers {
		r.join(s, netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(2 + i)}), nodeBlock.Bits()))
	}
	return r
}

func (r *rig) startLab() {
	r.T.Helper()
	r.Begin(lab.Config{
		Servers: r.servers, HostPorts: []uint16{uint16(r.cp.Port())}, Files: r.files(),
		Programs:  []string{"ip", "nft", "setpriv"},
		MemoryMiB: 2048, TimeLimit: 15 * time.Minute,
	}, labtest.PublicNetwork(vlan, r.servers, nodeBlock, serviceBlock), func() {
		r.PrintNodes(r.kube)
		r.PrintLogs(labtest.Names(r.servers), []string{"ip", "-4", "address", "show", "dev", publicLink})
	})
}

// files are the programs of the servers: name in the lab → path on this machine.
func (r *rig) files() map[string]string {
	r.T.Helper()
	files := map[string]string{}
	path, err := tools.Product(r.T.Context(), "./agent")
	r.Must("build the agent", err)
	files["phoenixnap-agent"] = path
	key := filepath.Join(r.dir, "key")
	r.Must("key", os.WriteFile(key, []byte(contract.FormatAnnouncerKey(contract.AnnouncerKey{7})), 0o600))
	files["key"] = key
	for _, s := range r.servers {
		config, err := r.cp.ServiceAccountOn(r.T.Context(), metav1.NamespaceSystem, "phoenixnap-agent", s.Name)
		r.Must("token of the agent on "+s.Name, err)
		files[agentConfig(s.Name)] = r.kubeconfig(s.Name, config)
	}
	return files
}

// agentConfig is the name of the kubeconfig of a server's agent.
func agentConfig(server string) string { return "agent-" + server + ".kubeconfig" }

func (r *rig) kubeconfig(name string, config *rest.Config) string {
	r.T.Helper()
	path := filepath.Join(r.dir, name+".kubeconfig")
	r.Must("kubeconfig of "+name, controlplane.WriteKubeconfig(path, config,
		fmt.Sprintf("https://%s:%d", apiServer, r.cp.Port())))
	return path
}

// join configures a server's VLAN and makes its Node as kubelet and controller would.
func (r *rig) join(s lab.Server, address netip.Prefix) {
	r.T.Helper()
	r.Must("configure the VLAN", r.Lab.ConfigureVLAN(r.T.Context(), lab.VLAN{
		Server: s.Name, ID: vlan, Address: address, Gateway: netip.MustParseAddr(nodeGateway),
	}))
	annotations, err := contract.NodeNetwork{
		ServerID: s.ID, NetworkID: networkID, VLAN: vlan, IPs: []netip.Addr{address.Addr()}, Member: true,
		Announcer: contract.AnnouncerAgent,
		Blocks: []contract.NetworkBlock{
			{CIDR: nodeBlock, Gateway: nodeBlock.Addr().Next()},
			{CIDR: serviceBlock, Gateway: serviceBlock.Addr().Next()},
		},
	}.Annotations()
	r.Must("annotations", err)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Annotations: annotations},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
			Address: s.Private.Addr().String()}}},
	}
	_, err = r.kube.CoreV1().Nodes().Create(r.T.Context(), node, metav1.CreateOptions{})
	r.Must("create Node "+s.Name, err)
}

// agent starts the agent of a server, with further flags.
func (r *rig) agent(server string, flags ...string) {
	r.T.Helper()
	r.agents[server] = r.agentAs(server, server, flags...)
}

// agentAs starts an agent on a server by the name of a Node, which may be another's.
func (r *rig) agentAs(server, node string, flags ...string) int {
	r.T.Helper()
	return r.Start(lab.Program{Host: server, Name: "agent-" + node, Args: append([]string{
		"setpriv", "--bounding-set", "-all,+net_raw", "--inh-caps", "-all", "--no-new-privs",
		lab.Path("phoenixnap-agent"), "run", "--node-name", node, "--kubeconfig", lab.Path(agentConfig(node)), "--v",
		"2",
		// An emulated machine that shares its processor may stand still for longer than three usual heartbeats take.
		"--announcer-interval", "1s",
	}, flags...)})
}

// serve creates a Service with a published address, as the controller leaves it.
func (r *rig) serve(name string) netip.Addr {
	r.T.Helper()
	r.next++
	address := netip.AddrFrom4([4]byte{203, 0, 113, r.next})
	services := r.kube.CoreV1().Services(metav1.NamespaceDefault)
	made, err := services.Create(r.T.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	r.Must("create Service "+name, err)
	made.Annotations = map[string]string{
		contract.ServiceIPAddress: address.String(), contract.ServiceIPBlockAssigned: "true",
		contract.ServiceIPOwner: string(made.UID),
	}
	_, err = services.Update(r.T.Context(), made, metav1.UpdateOptions{})
	r.Must("publish an address for Service "+name, err)
	return address
}
