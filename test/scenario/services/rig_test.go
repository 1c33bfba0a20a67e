//go:build linux

package services

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
)

// The account besides what every cluster of the lab has: a block that its owner brings, and another cluster with a
// server of its own and its own client of the API.
const (
	ownBlockID   = "60473a6115e34466c9f8f0aa"
	ownBlock     = "192.0.2.0/29"
	neighbour    = "srv-x"
	neighbourID  = "66a1f0c2b5d3e4f5a6b7c8f1"
	neighbourIP  = "203.0.113.6"
	neighbourCCM = "ccm-of-the-neighbour"
	// neighbourSecret belongs to neighbourCCM.
	neighbourSecret = "another-secret-that-must-not-leak"
)

// Addresses of the client beyond the gateway. The first is the one that it uses by itself.
const (
	client      = "198.51.100.10"
	otherClient = "198.51.100.11"
	thirdClient = "198.51.100.12"
)

// scale is how many seconds of the account's time pass in a second.
const scale = 10

// mode is the program that announces addresses.
type mode struct {
	name string
	// options changes what the cluster is made of, where not nil.
	options func(*cluster.Options)
	// announce begins to announce addresses.
	announce func(context.Context, *cluster.Cluster) error
	// announces reports whether the server may announce addresses, as far as the mode's own programs are concerned.
	announces func(c *cluster.Cluster, server string) bool
	// names reports that the controller names the announcer of its address on a Service.
	names bool
	// remedy is what the documentation asks users to do when the address of a living Service has changed and is silent;
	// nil for nothing.
	remedy func(context.Context, *cluster.Cluster) error
}

// modes are all of them.
func modes() []mode {
	return []mode{{
		name: "kube-vip",
		options: func(o *cluster.Options) {
			o.KubeVIP = "v1.0.0"
			// The timers that newer kube-vip has by default: an emulated machine on a busy computer may be late by
			// seconds.
			o.KubeVIPSettings = map[string]string{"vip_leaseduration": "15", "vip_renewdeadline": "10",
				"vip_retryperiod": "2"}
		},
		announce:  func(ctx context.Context, c *cluster.Cluster) error { return c.SuperviseKubeVIP(ctx) },
		announces: (*cluster.Cluster).KubeVIPRunsOn,
		remedy:    restartKubeVIP,
	}, {
		name: "agent",
		options: func(o *cluster.Options) {
			o.Announcer = contract.AnnouncerAgent
			o.AgentFlags = []string{"--announcer-key-file=" + lab.Path(cluster.AnnouncerKeyFile)}
		},
		announce:  func(ctx context.Context, c *cluster.Cluster) error { return c.HandOverKey(ctx) },
		announces: func(*cluster.Cluster, string) bool { return true },
		names:     true,
	}}
}

// restartKubeVIP ends kube-vip everywhere; the supervisor starts it again.
func restartKubeVIP(ctx context.Context, c *cluster.Cluster) error {
	all, err := c.Lab.Processes(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range all {
		if strings.HasPrefix(p.Name, "kube-vip-") && !p.Exited {
			if err := c.Lab.Signal(ctx, p.ID, syscall.SIGTERM); err != nil {
				return fmt.Errorf("end %s: %w", p.Name, err)
			}
		}
	}
	return nil
}

// rig is a running cluster, as one test uses it.
type rig struct {
	*testing.T
	*cluster.Cluster
	mode mode
	uid  string // of the namespace kube-system: the identity of the cluster
	dir  string
	// control is a Service that is never changed.
	control target
}

// controlService is its name.
const controlService = "steady"

// with is the rig for a subtest.
func (r *rig) with(t *testing.T) *rig {
	sub := *r
	sub.T = t
	return &sub
}

// newRig starts everything; the last server of the account has not joined the cluster yet.
func newRig(t *testing.T, m mode) *rig {
	t.Helper()
	r := &rig{T: t, mode: m, dir: t.TempDir()}
	options := cluster.Options{
		Dir: r.dir, Scale: scale, Servers: 3, MemoryMiB: 1536, Programs: []string{"ip"}, Account: furnish,
	}
	m.options(&options)
	var err error
	r.Cluster, err = cluster.New(options)
	r.must("prepare the cluster", err)
	t.Cleanup(r.stop)
	r.must("start the account", r.StartAccount(t.Context()))
	r.must("start the control plane", r.StartControlPlane(t.Context()))
	system, err := r.Kube.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	r.must("read the namespace kube-system", err)
	r.uid = string(system.UID)
	r.must("let the cluster use the owner's block", r.Sim.Edit(t.Context(), pnapsim.Edit{
		Kind: pnapsim.EditRetagBlock, Block: ownBlockID, Tags: map[string]string{contract.TagCluster: r.uid},
	}))
	r.must("start the servers", r.StartServers(t.Context()))
	for _, address := range []string{otherClient, thirdClient} {
		r.execute(lab.Client, "ip", "address", "add", address+"/24", "dev", "eth0")
	}
	r.must("start the controller", r.StartController(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.must("begin to announce", m.announce(ctx, r.Cluster))
	for _, s := range r.members() {
		r.join(s)
	}
	r.create(loadBalancer(controlService))
	for _, s := range r.members() {
		r.joined(s)
	}
	r.control = tcp(r.published(controlService), 80)
	r.answered(r.control)
	return r
}

// furnish adds to the account what only this package needs.
func furnish(a *pnapsim.AccountSeed) {
	a.Blocks = append(a.Blocks, pnapsim.BlockSeed{
		ID: ownBlockID, Name: "the owner's own", Location: cluster.Location, CIDR: ownBlock,
		Grants: []string{pnapsim.GrantAssign, pnapsim.GrantUnassign},
	})
	a.Servers = append(a.Servers, pnapsim.ServerSeed{
		ID: neighbourID, Hostname: neighbour, Location: cluster.Location, Type: "s1.c1.small",
		NetworkType: "PRIVATE_ONLY",
		PrivateIPs:  []string{"10.0.0.99"}, Gateway: cluster.Gateway().String(),
		Networks: []pnapsim.MembershipSeed{{Network: cluster.NetworkID, IPs: []string{neighbourIP}}},
	})
	a.Clients = append(a.Clients, pnapsim.ClientSeed{ID: neighbourCCM, Secret: neighbourSecret, Judged: true,
		RequestsPerMinute: 600})
}

// members are the servers that belong to the cluster from the start; late joins it later.
func (r *rig) members() []cluster.Server { return r.Servers[:2] }
func (r *rig) late() cluster.Server      { return r.Servers[2] }

// join makes a server a Node with all its programs.
func (r *rig) join(s cluster.Server) {
	r.Helper()
	r.must("register "+s.Name, r.RegisterNode(r.Context(), s))
	r.must("start the programs of "+s.Name, r.StartPrograms(r.Context(), s))
	r.must("start the agent of "+s.Name, r.StartAgent(r.Context(), s))
}

// joined waits until a server may announce addresses.
func (r *rig) joined(s cluster.Server) {
	r.Helper()
	r.until(answerLimit, s.Name+" may announce addresses", func() (bool, string) {
		node, err := r.Kube.CoreV1().Nodes().Get(r.Context(), s.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == cloudproviderapi.TaintExternalCloudProvider {
				return false, "tainted as uninitialised"
			}
		}
		label := node.Labels[contract.NodeVLANReady]
		return node.Spec.ProviderID == contract.ProviderID(s.ID) && label == "true" &&
				r.mode.announces(r.Cluster, s.Name),
			fmt.Sprintf("provider ID %q, label %q, condition %v", node.Spec.ProviderID, label,
				contract.FindNodeCondition(node, contract.ConditionVLANReady))
	})
}

// stop ends everything, after the evidence where the test has failed.
func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
	defer cancel()
	if r.Failed() {
		r.evidence(ctx)
	}
	if err := r.Stop(); err != nil {
		r.Error(err)
	}
}

// evidence shows what there is to see.
func (r *rig) evidence(ctx context.Context) {
	if r.Kube != nil {
		if events, err := r.Kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}); err == nil {
			for _, e := range events.Items {
				r.Logf("%s %s/%s: %s: %s", e.LastTimestamp.Format(time.TimeOnly), e.InvolvedObject.Kind,
					e.InvolvedObject.Name, e.Reason, e.Message)
			}
		}
		if all, err := r.Kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}); err == nil {
			for _, s := range all.Items {
				r.Logf("Service %s: %v, spec %+v, status %+v", s.Name, s.Annotations, s.Spec, s.Status)
			}
		}
	}
	if r.Lab != nil {
		if dir, err := r.CopyLogs(ctx); err == nil {
			r.showLogs(filepath.Join(dir, "*.log"))
		}
	}
	r.showLogs(filepath.Join(r.dir, "c*.log"))
}

func (r *rig) showLogs(pattern string) {
	const tail = 6000
	paths, err := filepath.Glob(pattern)
	if err != nil {
		r.Log(err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		r.Logf("end of %s (%v):\n%s", filepath.Base(path), err, raw[max(0, len(raw)-tail):])
	}
}

func (r *rig) must(what string, err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

// execute runs a program that must succeed.
func (r *rig) execute(host string, args ...string) string {
	r.Helper()
	out, err := r.Lab.Exec(r.Context(), host, args...)
	r.must(host+": "+args[0], err)
	if out.Code != 0 {
		r.Fatalf("%s: %v: exit code %d\n%s%s", host, args, out.Code, out.Stdout, out.Stderr)
	}
	return string(out.Stdout)
}

// until polls until look reports true, and returns how long that took.
func (r *rig) until(limit time.Duration, what string, look func() (ok bool, seen string)) time.Duration {
	r.Helper()
	begun := time.Now()
	for {
		ok, seen := look()
		if ok {
			return time.Since(begun)
		}
		if time.Since(begun) > limit {
			r.Fatalf("%s: not within %s; last seen: %s", what, limit, seen)
		}
		select {
		case <-r.Context().Done():
			r.Fatalf("%s: %v", what, context.Cause(r.Context()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// figure prints something that was measured.
func (r *rig) figure(name string, value any, unit string) {
	if d, ok := value.(time.Duration); ok {
		value = fmt.Sprintf("%.2f", d.Seconds())
	}
	fmt.Fprintf(r.Output(), "figure services_%s_%s %v %s\n", r.mode.word(), name, value, unit)
}

// word is the name of the mode inside of names of figures.
func (m mode) word() string {
	if m.name == "kube-vip" {
		return "kubevip"
	}
	return m.name
}

// node reads a Node.
func (r *rig) node(name string) *corev1.Node {
	r.Helper()
	node, err := r.Kube.CoreV1().Nodes().Get(r.Context(), name, metav1.GetOptions{})
	r.must("read Node "+name, err)
	return node
}
