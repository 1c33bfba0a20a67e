//go:build linux

// Package cluster is a small Kubernetes cluster on simulated phoenixNAP servers: a real control plane, the
// shipped controller and agents, real kube-vip and kube-proxy, and a simulated account behind the API.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// kubeSystem is where the ServiceAccounts are.
const kubeSystem = "kube-system"

// ServiceAccounts of the manifests, and the manifest of kube-vip.
const (
	agentAccount    = "phoenixnap-agent"
	kubeVIPAccount  = "kube-vip"
	kubeVIPManifest = "deploy/kube-vip/kube-vip.yaml"
)

// Options define what the cluster is made of.
type Options struct {
	// Dir keeps logs and kubeconfigs.
	Dir string
	// Announcer is the program that announces addresses: contract.AnnouncerAgent, or kube-vip where it is empty.
	Announcer string
	// KubeVIP is the version of kube-vip, one of tools.KubeVIPs; empty for the newest.
	KubeVIP string
	// KubeVIPSettings replace settings of the shipped manifest of kube-vip: name of the variable → value.
	KubeVIPSettings map[string]string
	// Class is the spec.loadBalancerClass of the Service; empty for none.
	Class string
	// Scale is how many seconds of the account's time pass in a second; 0 means 1.
	Scale float64
	// Servers is how many servers the account has, at most as many as the block of the nodes has room for; 0 means 2.
	Servers int
	// AwayServers is how many more there are in another location, whose public network has an object of its own: the
	// controller gets no option location.
	AwayServers int
	// AwayVLAN is the VLAN ID of that network; 0 means VLAN.
	AwayVLAN int
	// SecondNetwork puts the servers at home into a second public network of their location as well, which has a VLAN
	// of its own. Their default route leads by the first one, so the agents need --manage=return-path.
	SecondNetwork bool
	// Account, where not nil, changes what the account holds before it is simulated.
	Account func(*pnapsim.AccountSeed)
	// Client is the API client of the controller, one of the account's; the zero value is the one that every account
	// has.
	Client pnapsim.ClientSeed
	// MemoryMiB is the memory of the virtual machine where the lab is in one; 0 leaves it to the lab.
	MemoryMiB int
	// ClientPrivate is lab.Config.ClientPrivate.
	ClientPrivate netip.Prefix
	// CNI is the network plugin that connects the pods: Flannel, or empty for routes that the lab makes itself.
	CNI string
	// Files are more files for the servers: name below lab.Path → path on this machine.
	Files map[string]string
	// Programs are more programs of this machine that the servers find in their PATH.
	Programs []string
	// Kubelets leaves all that the manifests say to kubelets and to whoever applies them: the API server is left as it
	// starts, and the servers get Files and only kube-proxy, and reach the account's API as the controller's pod has
	// to.
	Kubelets bool
	// ControllerFlags are added to the command line of the controller.
	ControllerFlags []string
	// AgentFlags are added to the command line of every agent.
	AgentFlags []string
	// AgentTags are build tags of the agent.
	AgentTags []string
	// Auto begins with servers as phoenixNAP delivers them, outside of the public network and without its VLAN: the
	// controller joins them, and the agents configure them. Their default route leads into the private network, from
	// which no way leads to clients. With Kubelets the user brings the block of the nodes after the definitions.
	Auto bool
}

// Cluster is what has been started so far. Its Start methods must be called in the order in which they
// stand here; Stop ends whatever was started.
type Cluster struct {
	// Sim is the simulated account.
	Sim *Simulator
	// ControlPlane is etcd and kube-apiserver.
	ControlPlane *controlplane.ControlPlane
	// Kube is a client with all rights.
	Kube kubernetes.Interface
	// Lab is the network with its servers.
	Lab *lab.Lab
	// Servers are the servers of the account.
	Servers []Server

	options    Options
	root       string
	guest      bool // the account is another cluster's
	controller *subprocess.Process
	managers   []*subprocess.Process
	supervisor *supervisor
	flannel    workload // of Options.CNI
	egress     *http.Server
	heartbeats map[string]context.CancelFunc
	beating    sync.WaitGroup
}

// New prepares a cluster; it starts nothing.
func New(o Options) (*Cluster, error) {
	root, err := tools.ModuleRoot()
	if err != nil {
		return nil, fmt.Errorf("find the source tree: %w", err)
	}
	o.Scale = cmp.Or(o.Scale, 1)
	o.Servers = cmp.Or(o.Servers, 2)
	if err := checkCNI(o.CNI); err != nil {
		return nil, err
	}
	if o.Client.ID == "" {
		o.Client = pnapsim.ClientSeed{ID: clientID, Secret: clientSecret}
	}
	all, err := servers(o.Servers, o.AwayServers, cmp.Or(o.AwayVLAN, VLAN))
	if err != nil {
		return nil, err
	}
	if o.SecondNetwork {
		if err := joinSecond(all[:o.Servers]); err != nil {
			return nil, err
		}
	}
	if o.Auto {
		bare(all)
	}
	return &Cluster{options: o, root: root, Servers: all, heartbeats: map[string]context.CancelFunc{}}, nil
}

// StartAccount starts the simulated phoenixNAP account: a public network and the servers in it.
func (c *Cluster) StartAccount(ctx context.Context) error {
	account := seed(c.Servers)
	if c.options.Account != nil {
		c.options.Account(&account.Accounts[0])
	}
	sim, err := startSimulator(ctx, c.root, c.options.Dir, account, c.options.Scale)
	c.Sim = sim
	return err
}

// ShareAccount puts the cluster into the account of another one, which has to be stopped after it, in place of
// StartAccount.
func (c *Cluster) ShareAccount(of *Cluster) {
	c.Sim = of.Sim
	c.guest = true
}

// StartControlPlane starts etcd and kube-apiserver with what users install: the rights of the programs, and the
// policies that confine them. Nothing makes pods of the Deployment and the DaemonSet; the programs are started later.
func (c *Cluster) StartControlPlane(ctx context.Context) error {
	var manifests []string
	switch {
	case c.options.Kubelets:
	case c.options.Announcer == contract.AnnouncerAgent:
		manifests = []string{"deploy/overlays/kubeadm-agent"}
	default:
		manifests = []string{"deploy/overlays/kubeadm", kubeVIPManifest}
	}
	var flags []string
	if c.options.Kubelets {
		var err error
		if flags, err = c.egressFlags(); err != nil {
			return err
		}
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{
		LogDir: c.options.Dir, Names: []string{management.Addr().String()}, Manifests: manifests, APIServerArgs: flags,
	})
	if err != nil {
		return fmt.Errorf("start the control plane: %w", err)
	}
	c.ControlPlane = cp
	c.Kube = cp.Kube()
	if c.options.CNI == Flannel {
		if err := c.installFlannel(ctx); err != nil {
			return err
		}
	}
	if err := controlplane.WriteKubeconfig(c.AdminKubeconfig(), cp.Config(), ""); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	if c.options.Auto && !c.options.Kubelets {
		return c.bringNodeBlock(ctx)
	}
	return nil
}

// bringNodeBlock creates the IPBlock with which the user brings the block for the servers that the controller joins.
func (c *Cluster) bringNodeBlock(ctx context.Context) error {
	object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Spec: v1beta1.IPBlockSpec{
		Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeNodes, BlockID: NodeBlockID}}
	if _, err := c.ControlPlane.IPBlocks().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bring the block of the nodes: %w", err)
	}
	return nil
}

// AdminKubeconfig is the path of a kubeconfig with all rights.
func (c *Cluster) AdminKubeconfig() string { return filepath.Join(c.options.Dir, "admin.kubeconfig") }

// StartController starts the shipped controller as the ServiceAccount of its manifest.
func (c *Cluster) StartController(ctx context.Context) (err error) {
	flags := append([]string{"--leader-elect=false", "--authentication-skip-lookup=true"},
		c.options.ControllerFlags...)
	c.controller, err = c.ControlPlane.StartController(ctx, c.options.Dir, c.cloudConfig(c.Sim.URL), flags...)
	return err
}

// StopController ends the controller.
func (c *Cluster) StopController() error {
	if err := c.controller.Stop(10 * time.Second); err != nil {
		return fmt.Errorf("end the controller: %w", err)
	}
	return nil
}

// RestartController ends the controller and starts it again, with a new log.
func (c *Cluster) RestartController(ctx context.Context) error {
	if err := c.StopController(); err != nil {
		return err
	}
	return c.StartController(ctx)
}

// cloudConfig is the file cloud-sa.json of the secret pnap-cloud-config, for a client that reaches the API at a URL.
func (c *Cluster) cloudConfig(url string) []byte {
	membership := ""
	if c.options.Auto {
		membership = ",\n  \"manageMembership\": true"
	}
	location := Location
	if c.options.AwayServers > 0 {
		location = ""
	}
	return fmt.Appendf(nil, `{
  "clientID": %q,
  "clientSecret": %q,
  "location": %q,
  "base-url": %q,
  "loadbalancer": "%s://%s"%s
}
`, c.options.Client.ID, c.options.Client.Secret, location, url, cmp.Or(c.options.Announcer, contract.AnnouncerKubeVIP),
		NetworkID, membership)
}

// nodeConfig is the client of a server's kubelet.
func (c *Cluster) nodeConfig(name string) (*rest.Config, error) {
	config, err := c.ControlPlane.User("system:node:"+name, "system:nodes")
	if err != nil {
		return nil, fmt.Errorf("certificate of node %s: %w", name, err)
	}
	return config, nil
}

// beat keeps a Node ready until silence.
func (c *Cluster) beat(ctx context.Context, k *kubelet) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.heartbeats[k.name] = cancel
	c.beating.Go(func() {
		// A missed heartbeat is a late heartbeat; the next one repeats it.
		wait.UntilWithContext(ctx, func(ctx context.Context) { _ = k.report(ctx) }, heartbeat)
	})
}

// silence ends the heartbeat of a server's Node.
func (c *Cluster) silence(server string) {
	if cancel := c.heartbeats[server]; cancel != nil {
		cancel()
	}
}

// Stop ends everything that was started, the newest first.
func (c *Cluster) Stop() error {
	var errs []error
	if c.supervisor != nil {
		c.supervisor.stop()
	}
	for _, s := range c.Servers {
		c.silence(s.Name)
	}
	c.beating.Wait()
	if c.controller != nil {
		errs = append(errs, c.controller.Stop(10*time.Second))
	}
	for _, m := range c.managers {
		errs = append(errs, m.Stop(10*time.Second))
	}
	if c.egress != nil {
		errs = append(errs, c.egress.Close())
	}
	if c.Lab != nil {
		errs = append(errs, c.Lab.Stop())
	}
	if c.ControlPlane != nil {
		errs = append(errs, c.ControlPlane.Stop())
	}
	if c.Sim != nil && !c.guest {
		errs = append(errs, c.Sim.stop())
	}
	return errors.Join(errs...)
}
