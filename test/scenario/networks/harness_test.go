//go:build linux

package networks

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

const (
	// west is the PublicNetwork of the other location, second the second one of the servers' own.
	west   = "west"
	second = "second"
	// limit is how long anything may take on a busy machine.
	limit = 5 * time.Minute
	// pace is the time from one request of a client to the next, and patience how long it waits for the answer.
	pace     = 200 * time.Millisecond
	patience = 3 * time.Second
)

// harness is a cluster with a further PublicNetwork.
type harness struct {
	*testing.T
	*cluster.Cluster
	dir string
	// macs are the names of the servers by hardware address, see serverOf.
	macs map[string]string
	// control are requests that show when the machine stands still, see standstills.
	control int
}

// newHarness starts everything, and creates the further PublicNetwork. No address moves only to make the loads even, or
// because an emulated machine that shares its processor stands still for longer than three usual heartbeats take.
func newHarness(t *testing.T, o cluster.Options, name string, spec v1beta1.PublicNetworkSpec) *harness {
	t.Helper()
	h := &harness{T: t, dir: t.TempDir()}
	o.Dir = h.dir
	o.Scale = 10
	o.MemoryMiB = 1536
	o.AgentTags = []string{"slowheartbeats"}
	o.AgentFlags = append(o.AgentFlags, "--announcer-rebalance=0")
	spec.Announcer = v1beta1.AnnouncerKubeVIP
	if o.Announcer == contract.AnnouncerAgent {
		spec.Announcer = v1beta1.AnnouncerAgent
	}
	var err error
	h.Cluster, err = cluster.New(o)
	h.must("prepare the cluster", err)
	t.Cleanup(h.stop)
	h.must("start the account", h.StartAccount(t.Context()))
	h.must("start the control plane", h.StartControlPlane(t.Context()))
	h.must("start the servers", h.StartServers(t.Context()))
	h.must("start the controller", h.StartController(t.Context()))
	_, err = h.ControlPlane.PublicNetworks().Create(t.Context(), &v1beta1.PublicNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}, metav1.CreateOptions{})
	h.must("create PublicNetwork "+name, err)
	h.must("register the nodes", h.JoinServers(t.Context()))
	h.must("start the agents", h.StartAgents(t.Context()))
	h.startControl()
	return h
}

func (h *harness) here() []cluster.Server  { return h.Servers[:2] }
func (h *harness) there() []cluster.Server { return h.Servers[2:] }

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
		if nodes, err := h.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
			for _, n := range nodes.Items {
				h.Logf("Node %s: %v, %v", n.Name, n.Annotations,
					contract.FindNodeCondition(&n, contract.ConditionVLANReady))
			}
		}
		if all, err := h.Kube.CoreV1().Services(cluster.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
			for _, s := range all.Items {
				h.Logf("Service %s: %v, %+v", s.Name, s.Annotations, s.Status)
			}
		}
	}
	if h.Lab != nil {
		if control, err := h.Lab.ProbeResults(ctx, h.control); err == nil {
			h.Logf("the machine stood still at %v", standstills(control))
		}
		if dir, err := h.CopyLogs(ctx); err == nil {
			h.showLogs(filepath.Join(dir, "agent-*.log"))
			h.showLogs(filepath.Join(dir, "kube-proxy-*.log"))
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

// until polls until look reports true.
func (h *harness) until(what string, look func() (ok bool, seen string)) {
	h.Helper()
	begun := time.Now()
	for {
		ok, seen := look()
		if ok {
			h.Logf("after %s: %s", time.Since(begun).Round(time.Second/10), what)
			return
		}
		if time.Since(begun) > limit {
			h.Fatalf("%s: not within %s; last seen: %s", what, limit, seen)
		}
		select {
		case <-h.Context().Done():
			h.Fatalf("%s: %v", what, context.Cause(h.Context()))
		case <-time.After(pace):
		}
	}
}

func (h *harness) figure(name string, value int, unit string) {
	_, _ = fmt.Fprintf(h.Output(), "figure %s %d %s\n", name, value, unit)
}

// create creates a Service with the backends of servers as its endpoints.
func (h *harness) create(name string, servers []cluster.Server, annotations map[string]string) {
	h.Helper()
	h.must("create Service "+name, h.CreateServiceOn(h.Context(), name, servers, annotations))
}

func (h *harness) node(name string) *corev1.Node {
	h.Helper()
	n, err := h.Kube.CoreV1().Nodes().Get(h.Context(), name, metav1.GetOptions{})
	h.must("get Node "+name, err)
	return n
}

func (h *harness) get(name string) *corev1.Service {
	h.Helper()
	s, err := h.Kube.CoreV1().Services(cluster.Namespace).Get(h.Context(), name, metav1.GetOptions{})
	h.must("get Service "+name, err)
	return s
}

// published waits for the address of a Service.
func (h *harness) published(name string) netip.Addr {
	h.Helper()
	var address netip.Addr
	h.until("Service "+name+" has its address", func() (bool, string) {
		s := h.get(name)
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			address, _ = netip.ParseAddr(s.Status.LoadBalancer.Ingress[0].IP)
		}
		return address.IsValid(), fmt.Sprintf("%v", s.Status)
	})
	return address
}

// ask begins to send requests to an address.
func (h *harness) ask(address netip.Addr, every time.Duration) int {
	h.Helper()
	const port = 80
	return h.probe(netip.AddrPortFrom(address, port), every, patience)
}

func (h *harness) probe(to netip.AddrPort, every, timeout time.Duration) int {
	h.Helper()
	id, err := h.Lab.StartProbe(h.Context(), lab.Probe{URL: fmt.Sprintf("http://%s/", to), Interval: every,
		Timeout: timeout})
	h.must("send requests to "+to.String(), err)
	return id
}

func (h *harness) attempts(probe int) []lab.Attempt {
	h.Helper()
	all, err := h.Lab.ProbeResults(h.Context(), probe)
	h.must("what the client was answered", err)
	return all
}

// lost are the requests of a client that had no answer since a time.
func (h *harness) lost(probe int, since time.Time) []span {
	h.Helper()
	var lost []span
	for _, a := range h.attempts(probe) {
		if !a.OK && !a.At.Before(since) {
			h.Logf("no answer: %+v", a)
			lost = append(lost, spanOf(a))
		}
	}
	return lost
}

// row waits until the last requests of a client had answers, or none had.
func (h *harness) row(probe int, what string, answered bool) {
	h.Helper()
	const row = 5
	h.until(what, func() (bool, string) {
		all := h.attempts(probe)
		last := all[max(0, len(all)-row):]
		return len(last) == row && !slices.ContainsFunc(last, func(a lab.Attempt) bool { return a.OK != answered }),
			fmt.Sprintf("%+v", last)
	})
}
