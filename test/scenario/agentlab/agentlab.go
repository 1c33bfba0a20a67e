//go:build linux

// Package agentlab is a control plane and a lab whose servers are its Nodes, for a test of the shipped agent. What the
// controller would publish is published by the test.
package agentlab

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/labtest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

const (
	// VLAN of the public network.
	VLAN = 56
	// Link is its interface on the servers.
	Link = "bond0.56"
	// NetworkID is the public network's.
	NetworkID = "60473c2509268bc77fd06d29"
	apiServer = "10.0.0.1"
)

// Blocks of the public network: that of the nodes and that of the Services.
var (
	NodeBlock    = netip.MustParsePrefix("203.0.113.0/28")
	ServiceBlock = netip.MustParsePrefix("203.0.113.128/25")
)

// object is the IPBlock of ServiceBlock.
const object = "default-shared-1"

// Cluster holds the parts. Its methods end the test when they fail.
type Cluster struct {
	labtest.Harness
	ControlPlane *controlplane.ControlPlane
	Kube         kubernetes.Interface
	Servers      []lab.Server
	// Tags are build tags of the agent.
	Tags []string

	dir      string
	services byte // how many there are
}

// New starts a control plane with manifests, paths below the root of the source tree.
func New(t *testing.T, servers []lab.Server, manifests ...string) *Cluster {
	t.Helper()
	c := &Cluster{Harness: labtest.Harness{T: t}, Servers: servers, dir: t.TempDir()}
	var err error
	c.ControlPlane, err = controlplane.Start(t.Context(), controlplane.Options{Names: []string{apiServer}})
	c.Must("start the control plane", err)
	t.Cleanup(func() { _ = c.ControlPlane.Stop() })
	c.Kube, err = kubernetes.NewForConfig(c.ControlPlane.Config())
	c.Must("client", err)
	root, err := tools.ModuleRoot()
	c.Must("find the source tree", err)
	for _, path := range manifests {
		c.Must("apply "+path, c.ControlPlane.ApplyFiles(t.Context(), filepath.Join(root, path)))
	}
	return c
}

// File is a file's path in a directory of the test.
func (c *Cluster) File(name string) string { return filepath.Join(c.dir, name) }

// Kubeconfig writes credentials for use inside the lab, and returns their file.
func (c *Cluster) Kubeconfig(name string, config *rest.Config, err error) string {
	c.T.Helper()
	c.Must("credentials of "+name, err)
	path := c.File(name + ".kubeconfig")
	c.Must("kubeconfig of "+name, controlplane.WriteKubeconfig(path, config,
		fmt.Sprintf("https://%s:%d", apiServer, c.ControlPlane.Port())))
	return path
}

// AgentKubeconfig is the file of the credentials of a server's agent.
func (c *Cluster) AgentKubeconfig(server string) string {
	c.T.Helper()
	config, err := c.ControlPlane.ServiceAccountOn(c.T.Context(), metav1.NamespaceSystem, "phoenixnap-agent", server)
	return c.Kubeconfig("agent-"+server, config, err)
}

// StartLab starts servers with the agent, further files and programs, and makes each a Node in the public network.
func (c *Cluster) StartLab(announcer string, files map[string]string, programs ...string) {
	c.T.Helper()
	agent, err := tools.TaggedProduct(c.T.Context(), "./agent", c.Tags...)
	c.Must("build the agent", err)
	all := map[string]string{"phoenixnap-agent": agent}
	maps.Copy(all, files)
	for _, s := range c.Servers {
		all["agent-"+s.Name+".kubeconfig"] = c.AgentKubeconfig(s.Name)
	}
	c.Begin(lab.Config{
		Servers: c.Servers, HostPorts: []uint16{uint16(c.ControlPlane.Port())}, Files: all, Programs: programs,
		MemoryMiB: 2048, TimeLimit: 15 * time.Minute,
	}, labtest.PublicNetwork(VLAN, c.Servers, NodeBlock, ServiceBlock), func() {
		c.PrintNodes(c.Kube)
		c.PrintLogs(labtest.Names(c.Servers), []string{"ip", "-4", "address", "show", "dev", Link})
	})
	for i, s := range c.Servers {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(2 + i)}), NodeBlock.Bits())
		c.Must("configure the VLAN", c.Lab.ConfigureVLAN(c.T.Context(), lab.VLAN{
			Server: s.Name, ID: VLAN, Address: address, Gateway: NodeBlock.Addr().Next(),
		}))
		c.CreateNode(s, contract.NodeNetwork{ID: NetworkID, VLAN: VLAN, IPs: []netip.Addr{address.Addr()},
			Announcer: announcer}, NodeBlock)
	}
	c.CreateBlock(object, ServiceBlock)
}

// CreateBlock makes the IPBlock of an assigned block, as the controller does.
func (c *Cluster) CreateBlock(name string, cidr netip.Prefix) {
	c.T.Helper()
	made, err := c.ControlPlane.IPBlocks().Create(c.T.Context(), &v1beta1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeShared},
	}, metav1.CreateOptions{})
	c.Must("create IPBlock "+name, err)
	made.Status = v1beta1.IPBlockStatus{CIDR: cidr.String(), Gateway: cidr.Addr().Next().String(),
		Allocations: &[]v1beta1.Allocation{},
		Conditions: []metav1.Condition{{Type: v1beta1.ConditionAssigned, Status: metav1.ConditionTrue,
			Reason: "BlockAssigned", LastTransitionTime: metav1.Now()}}}
	_, err = c.ControlPlane.IPBlocks().UpdateStatus(c.T.Context(), made, metav1.UpdateOptions{})
	c.Must("assign IPBlock "+name, err)
}

// Allocate gives a Service an address of ServiceBlock that no Service of the test has.
func (c *Cluster) Allocate(service *corev1.Service) netip.Addr {
	c.T.Helper()
	address := c.NextAddress()
	block, err := c.ControlPlane.IPBlocks().Get(c.T.Context(), object, metav1.GetOptions{})
	c.Must("read IPBlock "+object, err)
	*block.Status.Allocations = append(*block.Status.Allocations, v1beta1.Allocation{Address: address.String(),
		Since: metav1.Now(), Services: []v1beta1.ServiceReference{{Namespace: service.Namespace, Name: service.Name,
			UID: service.UID}}})
	_, err = c.ControlPlane.IPBlocks().UpdateStatus(c.T.Context(), block, metav1.UpdateOptions{})
	c.Must("allocate "+address.String(), err)
	return address
}

// CreateNode makes the Node of a member of a network with an address of a block, as its kubelet and the controller
// would.
func (c *Cluster) CreateNode(s lab.Server, network contract.NodeNetwork, block netip.Prefix) {
	c.T.Helper()
	network.ServerID = s.ID
	network.Member = true
	network.Blocks = []contract.NetworkBlock{{CIDR: block, Gateway: block.Addr().Next()}}
	_, err := c.Kube.CoreV1().Nodes().Create(c.T.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Annotations: nodenet.On(network)},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
			Address: s.Private.Addr().String()}}},
	}, metav1.CreateOptions{})
	c.Must("create Node "+s.Name, err)
}

// StartAgent starts an agent on a server by the name of a Node, which may be another's, with further flags.
func (c *Cluster) StartAgent(server, node string, flags ...string) int {
	c.T.Helper()
	return c.Start(lab.Program{Host: server, Name: "agent-" + node, Args: append([]string{
		"setpriv", "--bounding-set", "-all,+net_raw", "--inh-caps", "-all", "--no-new-privs",
		lab.Path("phoenixnap-agent"), "run", "--node-name", node, "--kubeconfig",
		lab.Path("agent-" + node + ".kubeconfig"), "--v", "2",
	}, flags...)})
}

// NextAddress is an address of ServiceBlock that no Service of the test has.
func (c *Cluster) NextAddress() netip.Addr {
	c.services++
	return netip.AddrFrom4([4]byte{203, 0, 113, 130 + c.services})
}
