//go:build linux

// Package demo shows the main job of the project as a story: from two bare servers to a public address that
// answers, survives a broken VLAN and a dead server, and costs nothing once it is deleted.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/demo/terminal"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// Options of a story.
type Options struct {
	// Out is where the story is written.
	Out io.Writer
	// Dir keeps logs and kubeconfigs.
	Dir string
	// KubeVIP is the version of kube-vip, one of tools.KubeVIPs; empty for the newest.
	KubeVIP string
	// Class is the spec.loadBalancerClass of the Service; empty for none.
	Class string
	// Scale is how many seconds of the account's time pass in a second.
	Scale float64
	// Auto leaves the public network of the servers to controller and agents.
	Auto bool
	// CNI is the network plugin that connects the pods, see cluster.Options.
	CNI string
	// Networks is how many public networks the story is about: 1, which an empty one means, or TwoNetworks.
	Networks string
	// PNAPCTL is the path of phoenixNAP's pnapctl, which shows at the end what the account holds; empty for none.
	PNAPCTL string
	// Record, where not nil, gets the commands of the recordings, in their order.
	Record func(recording string, command terminal.Command)
}

// story is a story in progress.
type story struct {
	*presenter
	*cluster.Cluster
	options Options

	address  netip.Addr // of the Service, once published
	created  time.Time  // when its creation was asked for
	probe    int        // the client's requests, once they have begun
	broken   string     // the server whose VLAN interface was broken
	brokenAt time.Time
}

// Run runs the whole story. KeepRunning, where not nil, is called at the end of a story that succeeded, before
// everything is ended. An error names the failed step; the evidence has been printed by then.
func Run(ctx context.Context, o Options, keepRunning func(context.Context, *cluster.Cluster) error) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	if o.KubeVIP == "" && o.Networks != TwoNetworks {
		versions, err := tools.KubeVIPs(ctx)
		if err != nil {
			return err
		}
		o.KubeVIP = versions[0]
	}
	c, err := cluster.New(o.cluster())
	if err != nil {
		return fmt.Errorf("prepare the cluster: %w", err)
	}
	s := &story{presenter: newPresenter(o.Out), Cluster: c, options: o}
	defer func() { err = errors.Join(err, c.Stop()) }()
	steps := s.steps
	if o.Networks == TwoNetworks {
		steps = newLocations(s).steps
	}
	if err := s.play(ctx, steps(keepRunning != nil)); err != nil {
		if ctx.Err() == nil { // who interrupts knows why
			s.evidence(context.WithoutCancel(ctx))
		}
		s.summary()
		return err
	}
	s.summary()
	if keepRunning != nil {
		return keepRunning(ctx, c)
	}
	return nil
}

// check reports what no story can be made of, before anything is built.
func (o Options) check() error { return errors.Join(o.checkNetworks(), o.checkPNAPCTL()) }

// cluster are the options of the story's cluster.
func (o Options) cluster() cluster.Options {
	c := cluster.Options{Dir: o.Dir, KubeVIP: o.KubeVIP, Class: o.Class, Scale: o.Scale, Auto: o.Auto, CNI: o.CNI,
		Programs: o.programs(), Account: o.addOwner}
	if o.Networks == TwoNetworks {
		c.Announcer = contract.AnnouncerAgent
		c.AwayServers = 1
		c.AgentTags = o.agentTags()
	}
	return c
}

// agentTags are the build tags of the agents: those that announce have slow heartbeats, because servers that share
// processors with each other, and with what else runs there, stand still for longer than three usual ones take.
func (o Options) agentTags() []string {
	if o.Networks != TwoNetworks {
		return nil
	}
	return []string{"slowheartbeats"}
}

// act is one step of the story.
type act struct {
	title string
	run   func(context.Context) error
}

// steps are the acts in order. A story that is kept running leaves the Service and the account in place.
func (s *story) steps(keep bool) []act {
	acts := []act{
		{"A simulated phoenixNAP account: a public network and two servers", s.account},
		{"A real Kubernetes control plane: etcd and kube-apiserver, RBAC on", s.controlPlane},
		{"Two servers on a VLAN-aware switch, a gateway, and a client beyond it", s.servers},
		{"The servers join as Nodes, tainted until a cloud provider knows them", s.join},
		{"The controller initialises the Nodes", s.initialise},
		{"The agents find the VLAN in order; kube-vip may run", s.vlanReady},
		{"A Service of type LoadBalancer: a block is bought, tagged, assigned; its third address published", s.publish},
		{"A client beyond the gateway gets an answer", s.firstAnswer},
	}
	acts = append(acts, s.disturbance()...)
	acts = append(acts, act{"The server that announces now dies, with all its processes and its port", s.killServer})
	acts = append(acts, s.look("pnapctl, phoenixNAP's own program, shows the blocks and networks of the account")...)
	if keep {
		return acts
	}
	acts = append(acts, act{"The Service is deleted; the account holds no block any more", s.deleteService})
	return append(acts, s.look("pnapctl shows what is left of them")...)
}

// disturbance are the acts that disturb the network of the announcing server.
func (s *story) disturbance() []act {
	if s.options.Auto {
		return []act{
			{"A user sets the VLAN interface of the announcing server down; its agent repairs it", s.disturbVLAN},
			{"A user deletes the marks of the return path; the agent makes them again", s.disturbReturnPath},
		}
	}
	return []act{
		{"The VLAN interface of the announcing server breaks; its agent reports why", s.breakVLAN},
		{"The label goes, kube-vip is ended there, the other server answers", s.moveByLabel},
		{"The interface is repaired; condition and label return", s.repair},
	}
}

func (s *story) play(ctx context.Context, acts []act) error {
	for _, a := range acts {
		if err := s.step(ctx, a.title, a.run); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) account(ctx context.Context) error {
	if err := s.StartAccount(ctx); err != nil {
		return err
	}
	s.say("API at %s; its time runs %g times as fast as ours", s.Sim.URL, s.options.Scale)
	s.say("network public (%s) in %s, VLAN %d, with the user's block for the nodes' own addresses", cluster.NetworkID,
		cluster.Location, cluster.VLAN)
	if s.options.Networks == TwoNetworks {
		s.say("network public elsewhere (%s) in %s, also VLAN %d, with a block like that",
			cluster.AwayNetworkID, cluster.AwayLocation, cluster.VLAN)
	}
	for _, server := range s.Servers {
		public := "address " + server.Public.Addr().String() + " in the public network"
		if s.options.Auto {
			public = "no member of the public network"
		}
		s.say("server %s (%s) in %s, private %s, %s", server.Name, server.ID, server.Location, server.Private.Addr(),
			public)
	}
	return nil
}

func (s *story) controlPlane(ctx context.Context) error {
	if err := s.StartControlPlane(ctx); err != nil {
		return err
	}
	version, err := s.Kube.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	s.say("kube-apiserver %s at %s; manifests of deploy/ applied", version.GitVersion, s.ControlPlane.URL())
	return nil
}

func (s *story) servers(ctx context.Context) error {
	if err := s.StartServers(ctx); err != nil {
		return err
	}
	where := "network namespaces of this machine"
	if s.Lab.InMachine {
		where = "a virtual machine under software emulation, because this kernel has no 802.1Q"
	}
	s.say("the lab runs in %s; built in %.1f s", where, s.Lab.Built.Seconds())
	for _, server := range s.Servers {
		if s.options.Auto {
			s.say("%s: bond0 (%s), and nothing of the public network", server.Name, s.Lab.Uplink)
			continue
		}
		s.say("%s: %s on bond0 (%s), address %s", server.Name, cluster.PublicInterface, s.Lab.Uplink, server.Public)
	}
	return nil
}

func (s *story) join(ctx context.Context) error {
	if err := s.JoinServers(ctx); err != nil {
		return err
	}
	if err := s.connected(ctx); err != nil {
		return err
	}
	nodes, err := s.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, node := range nodes.Items {
		if !uninitialised(&node) {
			return fmt.Errorf("node %s came without the taint of an uninitialised node", node.Name)
		}
		s.say("node %s: taint %s", node.Name, node.Spec.Taints[0].Key)
	}
	return nil
}

// connected expects of a network plugin that each pod reaches those of the other servers.
func (s *story) connected(ctx context.Context) error {
	if s.options.CNI == "" {
		return nil
	}
	for _, from := range s.Servers {
		for _, to := range s.Servers {
			out, err := s.Lab.Exec(ctx, lab.PodOf(from.Name), "busybox", "wget", "-q", "-O", "-",
				"http://"+netip.AddrPortFrom(to.PodAddress(), cluster.BackendPort).String()+"/")
			if err != nil || out.Code != 0 {
				return fmt.Errorf("the pod of %s does not reach that of %s: exit code %d, %s: %w", from.Name, to.Name,
					out.Code, out.Stderr, err)
			}
		}
	}
	s.say("%s connects the pods of all servers over the private network", s.options.CNI)
	return nil
}

// locationOf is where the server of a name is.
func (s *story) locationOf(server string) string {
	i := slices.IndexFunc(s.Servers, func(c cluster.Server) bool { return c.Name == server })
	if i < 0 {
		return ""
	}
	return s.Servers[i].Location
}

func (s *story) initialise(ctx context.Context) error {
	if err := s.StartController(ctx); err != nil {
		return err
	}
	if _, err := s.awaitNodes(ctx, patience, "nodes initialised", func(n *corev1.Node) (bool, string) {
		done := !uninitialised(n) && n.Spec.ProviderID != "" && len(n.Status.Addresses) > 1 &&
			n.Labels[corev1.LabelTopologyRegion] == s.locationOf(n.Name) &&
			n.Labels[corev1.LabelInstanceTypeStable] != ""
		return done, fmt.Sprintf("taints %v, provider ID %q, labels %v", n.Spec.Taints, n.Spec.ProviderID,
			n.Labels)
	}); err != nil {
		return err
	}
	return s.kubectl(ctx, "get", "nodes", "-o", "custom-columns=NAME:.metadata.name,PROVIDER-ID:.spec.providerID,"+
		`TYPE:.metadata.labels.node\.kubernetes\.io/instance-type,REGION:.metadata.labels.topology\.kubernetes\.io/region,`+
		"ADDRESSES:.status.addresses[*].address,TAINTS:.spec.taints[*].key")
}
