//go:build linux

package kubevip

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
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
	apiServer   = "10.0.0.1"
	nodeGateway = "203.0.113.1"
)

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
	next    byte // the last byte of the next Service's address
}

// newRig starts everything but kube-vip.
func newRig(t *testing.T, versions []string, servers int) *rig {
	t.Helper()
	r := &rig{Harness: labtest.Harness{T: t}, dir: t.TempDir(), next: 130}
	r.servers = labtest.Servers(servers)
	var err error
	r.cp, err = controlplane.Start(t.Context(), controlplane.Options{Names: []string{apiServer}})
	r.Must("start the control plane", err)
	t.Cleanup(func() { _ = r.cp.Stop() })
	r.kube, err = kubernetes.NewForConfig(r.cp.Config())
	r.Must("client", err)
	root, err := tools.ModuleRoot()
	r.Must("find the source tree", err)
	r.Must("apply the manifests", r.cp.ApplyFiles(t.Context(), filepath.Join(root, "deploy/overlays/kubeadm"),
		filepath.Join(root, "deploy/kube-vip/kube-vip.yaml")))
	r.startLab(versions)
	for i, s := range r.servers {
		r.join(s, netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(2 + i)}), nodeBlock.Bits()))
	}
	return r
}

func (r *rig) startLab(versions []string) {
	r.T.Helper()
	r.Begin(lab.Config{
		Servers: r.servers, HostPorts: []uint16{uint16(r.cp.Port())}, Files: r.files(versions),
		Programs:  []string{"ip", "setpriv"},
		MemoryMiB: 2048, TimeLimit: 15 * time.Minute,
	}, labtest.PublicNetwork(vlan, r.servers, nodeBlock, serviceBlock), func() {
		r.PrintNodes(r.kube)
		r.PrintLogs(labtest.Names(r.servers), []string{"ip", "-4", "address", "show", "dev", publicLink})
	})
}

// files are the programs of the servers: name in the lab → path on this machine.
func (r *rig) files(versions []string) map[string]string {
	r.T.Helper()
	files := map[string]string{}
	for _, version := range versions {
		path, err := tools.Binary(r.T.Context(), "kube-vip-"+version)
		r.Must("build kube-vip "+version, err)
		files["kube-vip-"+version] = path
	}
	path, err := tools.Product(r.T.Context(), "./agent")
	r.Must("build the agent", err)
	files["phoenixnap-agent"] = path
	config, err := r.cp.ServiceAccount(r.T.Context(), metav1.NamespaceSystem, "kube-vip")
	r.Must("token of kube-vip", err)
	files["home/.kube/config"] = r.kubeconfig("kube-vip", config)
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

// join configures a server's VLAN, makes its Node as kubelet and controller would, and starts its agent.
func (r *rig) join(s lab.Server, address netip.Prefix) {
	r.T.Helper()
	r.Must("configure the VLAN", r.Lab.ConfigureVLAN(r.T.Context(), lab.VLAN{
		Server: s.Name, ID: vlan, Address: address, Gateway: netip.MustParseAddr(nodeGateway),
	}))
	annotations, err := contract.NodeNetwork{
		ServerID: s.ID, NetworkID: "60473c2509268bc77fd06d29", VLAN: vlan, IPs: []netip.Addr{address.Addr()},
		Member: true, Announcer: contract.AnnouncerKubeVIP,
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
	r.Start(lab.Program{Host: s.Name, Name: "agent-" + s.Name, Args: []string{
		"setpriv", "--bounding-set", "-all,+net_raw", "--inh-caps", "-all", "--no-new-privs",
		lab.Path("phoenixnap-agent"), "run", "--node-name", s.Name, "--kubeconfig", lab.Path(agentConfig(s.Name)),
		"--v", "2",
	}})
}

// kubeVIP starts kube-vip for the Services of one namespace, as the shipped manifest sets it.
func (r *rig) kubeVIP(version, server, namespace string) int {
	return r.Start(lab.Program{
		Host: server, Name: "kube-vip-" + server + "-" + namespace,
		Args: []string{lab.Path("kube-vip-" + version), "manager"},
		Env: []string{
			"HOME=" + lab.Path("home"), "vip_arp=true", "vip_interface=" + publicLink, "vip_subnet=32",
			"svc_enable=true", "svc_election=true",
			"cp_enable=false", "cp_namespace=kube-system", "vip_leaseduration=5", "vip_renewdeadline=3",
			"vip_retryperiod=1",
			"vip_nodename=" + server, "svc_namespace=" + namespace, "prometheus_server=127.0.0.1:0",
		},
	})
}

// serve creates a Service with a published address, as the controller leaves it.
func (r *rig) serve(namespace, name string, annotations map[string]string) netip.Addr {
	r.T.Helper()
	_, err := r.kube.CoreV1().Namespaces().Create(r.T.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		r.T.Fatal(err)
	}
	r.next++
	address := netip.AddrFrom4([4]byte{203, 0, 113, r.next})
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{
			contract.ServiceIPAddress: address.String(), contract.KubeVIPAddresses: address.String(),
		}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	for key, value := range annotations {
		service.Annotations[key] = value
	}
	_, err = r.kube.CoreV1().Services(namespace).Create(r.T.Context(), service, metav1.CreateOptions{})
	r.Must("create Service "+name, err)
	return address
}

func (r *rig) deleteService(namespace, name string) {
	r.T.Helper()
	r.Must("delete Service "+name, r.kube.CoreV1().Services(namespace).Delete(r.T.Context(), name,
		metav1.DeleteOptions{}))
}

// claim makes a host carry an address and say so, as any announcer does.
func (r *rig) claim(host, link string, address netip.Addr) {
	r.T.Helper()
	r.IP(host, "address", "add", address.String()+"/32", "dev", link)
	r.Sh(host, fmt.Sprintf("busybox arping -U -c 1 -I %s %s", link, address))
}
