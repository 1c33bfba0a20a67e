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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// The account besides what every cluster of the lab has: a block that its owner brings, and another cluster with a
// server of its own and its own client of the API.
const (
	ownBlockID   = "60473a6115e34466c9f8f0aa"
	ownObject    = "own" // its IPBlock
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

// cniVariable is the environment variable that names the network plugin, see cluster.Options.
const cniVariable = "PNAP_CNI"

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
	// version is that of the program, to be logged; nil where it is the agent, which is built here.
	version func(context.Context) (string, error)
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
			// The timers that newer kube-vip has by default: an emulated machine on a busy computer may be late by
			// seconds.
			o.KubeVIPSettings = map[string]string{"vip_leaseduration": "15", "vip_renewdeadline": "10",
				"vip_retryperiod": "2"}
		},
		announce:  func(ctx context.Context, c *cluster.Cluster) error { return c.SuperviseKubeVIP(ctx) },
		announces: (*cluster.Cluster).KubeVIPRunsOn,
		version:   versionOfKubeVIP,
		remedy:    restartKubeVIP,
	}, {
		name: "agent",
		options: func(o *cluster.Options) {
			o.Announcer = contract.AnnouncerAgent
		},
		announce:  func(context.Context, *cluster.Cluster) error { return nil },
		announces: func(*cluster.Cluster, string) bool { return true },
		names:     true,
	}}
}

// versionOfKubeVIP is the version that the cluster runs: the newest, or that of the program that the environment names.
func versionOfKubeVIP(ctx context.Context) (string, error) {
	versions, err := tools.KubeVIPs(ctx)
	if err != nil {
		return "", err
	}
	return "kube-vip " + versions[0], nil
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

// harness is a running cluster, as one test uses it.
type harness struct {
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

// with is the harness for a subtest.
func (h *harness) with(t *testing.T) *harness {
	sub := *h
	sub.T = t
	return &sub
}

// newHarness starts everything; the last server of the account has not joined the cluster yet.
func newHarness(t *testing.T, m mode) *harness {
	t.Helper()
	h := &harness{T: t, mode: m, dir: t.TempDir()}
	options := cluster.Options{
		Dir: h.dir, Scale: scale, Servers: 3, MemoryMiB: 1536, Programs: []string{"ip"}, Account: populate,
		CNI: os.Getenv(cniVariable),
		// That of the manifest: a later agent of a server learns by it that there is an earlier one.
		AgentFlags: []string{"--metrics-bind-address=127.0.0.1:10298"},
	}
	m.options(&options)
	if m.version != nil {
		version, err := m.version(t.Context())
		h.must("find out the version of what announces", err)
		h.Log(version)
	}
	var err error
	h.Cluster, err = cluster.New(options)
	h.must("prepare the cluster", err)
	t.Cleanup(h.stop)
	h.must("start the account", h.StartAccount(t.Context()))
	h.must("start the control plane", h.StartControlPlane(t.Context()))
	system, err := h.Kube.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	h.must("read the namespace kube-system", err)
	h.uid = string(system.UID)
	_, err = h.ControlPlane.IPBlocks().Create(t.Context(), &v1beta1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: ownObject},
		Spec: v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeShared, Source: v1beta1.SourceBrought,
			BlockID: ownBlockID},
	}, metav1.CreateOptions{})
	h.must("let the cluster use the owner's block", err)
	h.must("start the servers", h.StartServers(t.Context()))
	for _, address := range []string{otherClient, thirdClient} {
		h.execute(lab.Client, "ip", "address", "add", address+"/24", "dev", "eth0")
	}
	h.must("start the controller", h.StartController(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h.must("begin to announce", m.announce(ctx, h.Cluster))
	for _, s := range h.members() {
		h.join(s)
	}
	h.create(loadBalancer(controlService))
	for _, s := range h.members() {
		h.joined(s)
	}
	h.control = tcp(h.published(controlService), 80)
	h.answered(h.control)
	return h
}

// populate adds to the account what only this package needs.
func populate(a *pnapsim.AccountSeed) {
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
func (h *harness) members() []cluster.Server { return h.Servers[:2] }
func (h *harness) late() cluster.Server      { return h.Servers[2] }

// join makes a server a Node with all its programs.
func (h *harness) join(s cluster.Server) {
	h.Helper()
	h.must("register "+s.Name, h.RegisterNode(h.Context(), s))
	h.must("start the programs of "+s.Name, h.StartPrograms(h.Context(), s))
	h.must("start the agent of "+s.Name, h.StartAgent(h.Context(), s))
}

// joined waits until a server may announce addresses.
func (h *harness) joined(s cluster.Server) {
	h.Helper()
	h.until(answerLimit, s.Name+" may announce addresses", func() (bool, string) {
		node, err := h.Kube.CoreV1().Nodes().Get(h.Context(), s.Name, metav1.GetOptions{})
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
				h.mode.announces(h.Cluster, s.Name),
			fmt.Sprintf("provider ID %q, label %q, condition %v", node.Spec.ProviderID, label,
				contract.FindNodeCondition(node, contract.ConditionVLANReady))
	})
}

// stop ends everything, after the evidence where the test has failed.
func (h *harness) stop() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.Context()), time.Minute)
	defer cancel()
	if h.Failed() {
		h.evidence(ctx)
	}
	if err := h.Stop(); err != nil {
		h.Error(err)
	}
}

// evidence shows what there is to see.
func (h *harness) evidence(ctx context.Context) {
	if h.Kube != nil {
		if events, err := h.Kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}); err == nil {
			for _, e := range events.Items {
				h.Logf("%s %s/%s: %s: %s", e.LastTimestamp.Format(time.TimeOnly), e.InvolvedObject.Kind,
					e.InvolvedObject.Name, e.Reason, e.Message)
			}
		}
		if all, err := h.Kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}); err == nil {
			for _, s := range all.Items {
				h.Logf("Service %s: %v, spec %+v, status %+v", s.Name, s.Annotations, s.Spec, s.Status)
			}
		}
	}
	if h.Lab != nil {
		if dir, err := h.CopyLogs(ctx); err == nil {
			h.showLogs(filepath.Join(dir, "*.log"))
		}
	}
	h.showLogs(filepath.Join(h.dir, "c*.log"))
}

func (h *harness) showLogs(pattern string) {
	const tail = 6000
	paths, err := filepath.Glob(pattern)
	if err != nil {
		h.Log(err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		h.Logf("end of %s (%v):\n%s", filepath.Base(path), err, raw[max(0, len(raw)-tail):])
	}
}

func (h *harness) must(what string, err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("%s: %v", what, err)
	}
}

// execute runs a program that must succeed.
func (h *harness) execute(host string, args ...string) string {
	h.Helper()
	out, err := h.Lab.Exec(h.Context(), host, args...)
	h.must(host+": "+args[0], err)
	if out.Code != 0 {
		h.Fatalf("%s: %v: exit code %d\n%s%s", host, args, out.Code, out.Stdout, out.Stderr)
	}
	return string(out.Stdout)
}

// until polls until look reports true, and returns how long that took.
func (h *harness) until(limit time.Duration, what string, look func() (ok bool, seen string)) time.Duration {
	h.Helper()
	begun := time.Now()
	for {
		ok, seen := look()
		if ok {
			return time.Since(begun)
		}
		if time.Since(begun) > limit {
			h.Fatalf("%s: not within %s; last seen: %s", what, limit, seen)
		}
		select {
		case <-h.Context().Done():
			h.Fatalf("%s: %v", what, context.Cause(h.Context()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// figure prints something that was measured.
func (h *harness) figure(name string, value any, unit string) {
	if d, ok := value.(time.Duration); ok {
		value = fmt.Sprintf("%.2f", d.Seconds())
	}
	fmt.Fprintf(h.Output(), "figure services_%s_%s %v %s\n", h.mode.word(), name, value, unit)
}

// word is the name of the mode inside of names of figures.
func (m mode) word() string {
	if m.name == "kube-vip" {
		return "kubevip"
	}
	return m.name
}

// node reads a Node.
func (h *harness) node(name string) *corev1.Node {
	h.Helper()
	node, err := h.Kube.CoreV1().Nodes().Get(h.Context(), name, metav1.GetOptions{})
	h.must("read Node "+name, err)
	return node
}
