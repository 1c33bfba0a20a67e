//go:build linux

package privilege

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

func TestMain(m *testing.M) {
	if program := os.Getenv(confinedVariable); program != "" {
		fmt.Fprintln(os.Stderr, become(program))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// site is a real API server that keeps an audit log, a Node, and the agent that runs for it.
type site struct {
	*testing.T
	admin      kubernetes.Interface
	agent      string
	kubeconfig string
	audit      string
	log        string
	cmd        *exec.Cmd
}

const (
	nodeName = "srv-a"
	wait     = time.Minute
)

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{T: t, audit: filepath.Join(dir, "audit.log"), log: filepath.Join(t.ArtifactDir(), "agent.log"),
		kubeconfig: filepath.Join(dir, "kubeconfig")}
	policy := filepath.Join(dir, "policy.json")
	s.must(os.WriteFile(policy, []byte(auditPolicy), 0o600))
	cp, err := controlplane.Start(t.Context(),
		controlplane.Options{APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + s.audit}})
	s.must(err)
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.must(cp.ApplyFiles(t.Context(), manifest, policies))
	account, err := cp.ServiceAccountOn(t.Context(), "kube-system", "phoenixnap-agent", nodeName)
	s.must(err)
	s.must(controlplane.WriteKubeconfig(s.kubeconfig, account, cp.URL()))
	s.admin, err = kubernetes.NewForConfig(cp.Config())
	s.must(err)
	s.awaitPolicies(cp)
	s.agent, err = tools.Product(t.Context(), "./agent")
	s.must(err)
	_, err = s.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		metav1.CreateOptions{})
	s.must(err)
	return s
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// awaitPolicies waits until the API server confines agents: to a token that names no Node it refuses everything.
func (s *site) awaitPolicies(cp *controlplane.ControlPlane) {
	s.Helper()
	account, err := cp.ServiceAccount(s.Context(), metav1.NamespaceSystem, "phoenixnap-agent")
	s.must(err)
	client, err := kubernetes.NewForConfig(account)
	s.must(err)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: contract.AgentLeasePrefix + nodeName}}
	s.eventually("the policies", func() bool {
		_, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Create(s.Context(), lease,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
	})
}

// run starts the agent, confined.
func (s *site) run() {
	s.Helper()
	log, err := os.Create(s.log)
	s.must(err)
	cmd := confined(s.T, s.agent, "run", "--node-name", nodeName, "--kubeconfig", s.kubeconfig, "--v=2")
	cmd.Stderr = log
	s.must(cmd.Start())
	s.cmd = cmd
	s.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		_ = log.Close()
		if s.Failed() {
			s.Log(s.output())
		}
	})
}

// end sends SIGTERM and expects a quiet end.
func (s *site) end() {
	s.Helper()
	s.must(s.cmd.Process.Signal(syscall.SIGTERM))
	stop := time.AfterFunc(wait, func() { _ = s.cmd.Process.Kill() })
	defer stop.Stop()
	if err := s.cmd.Wait(); err != nil {
		s.Errorf("after SIGTERM: %v", err)
	}
}

func (s *site) output() string {
	s.Helper()
	raw, err := os.ReadFile(s.log)
	s.must(err)
	return string(raw)
}

func (s *site) eventually(what string, holds func() bool) {
	s.Helper()
	for deadline := time.Now().Add(wait); !holds(); {
		if time.Now().After(deadline) {
			s.Fatalf("not within %s: %s", wait, what)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// publish writes what the controller would; withdraw takes it back.
func (s *site) publish() {
	annotations := nodenet.On(contract.NodeNetwork{ServerID: "0123456789abcdef01234567",
		ID: "6104105e6b7c9a0012345678", VLAN: 3999,
		Member: true, Announcer: contract.AnnouncerKubeVIP})
	s.annotate(annotations)
}

func (s *site) withdraw() { s.annotate(map[string]any{contract.NodePublicNetworks: nil}) }

func (s *site) annotate(annotations any) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	s.must(err)
	_, err = s.admin.CoreV1().Nodes().Patch(s.Context(), nodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	s.must(err)
}

func (s *site) awaitVLANReady(status corev1.ConditionStatus) {
	s.Helper()
	s.eventually("VLANReady "+string(status), func() bool {
		node, err := s.admin.CoreV1().Nodes().Get(s.Context(), nodeName, metav1.GetOptions{})
		s.must(err)
		c := contract.FindNodeCondition(node, contract.ConditionVLANReady)
		return c != nil && c.Status == status
	})
}

// serviceWith makes a Service with a published address.
func (s *site) serviceWith(address string) {
	s.Helper()
	_, err := s.admin.CoreV1().Services("default").Create(s.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{contract.ServiceIPAddress: address}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	s.must(err)
}

// diagnose runs a diagnosis, confined, and expects it to have found something to say.
func (s *site) diagnose(args ...string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	cmd := confined(s.T, s.agent, append(append([]string{"diagnose"}, args...), "--node-name", nodeName, "--kubeconfig",
		s.kubeconfig)...)
	cmd.Stdout = &out
	cmd.Stderr = &out
	s.must(cmd.Start())
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 && cmd.ProcessState.ExitCode() != 3 {
		s.Errorf("diagnose %v: %v\n%s", args, err, out.String())
	}
	if !strings.Contains(out.String(), "3999") && !strings.Contains(out.String(), "203.0.113.5") {
		s.Errorf("diagnose %v says\n%s", args, out.String())
	}
}

// get asks the agent over HTTP.
func (s *site) get(path string) (int, string) {
	s.Helper()
	serving := regexp.MustCompile(`Serving metrics and health" address="([^"]+)"`).FindStringSubmatch(s.output())
	if serving == nil {
		return 0, ""
	}
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+serving[1]+path, nil)
	s.must(err)
	response, err := http.DefaultClient.Do(request)
	s.must(err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	s.must(err)
	return response.StatusCode, string(body)
}

// TestShippedAgent does everything that needs a right, with only the capability NET_RAW, on read-only file systems, as
// the shipped ServiceAccount: nothing is refused, and no right is granted that it did not use.
func TestShippedAgent(t *testing.T) {
	s := newSite(t)
	s.run()
	s.awaitVLANReady(corev1.ConditionUnknown)
	for _, name := range []string{"CapPrm", "CapEff", "CapBnd"} {
		if got := status(t, s.cmd.Process.Pid, name); got != netRaw {
			t.Errorf("%s of the agent is %s, want %s", name, got, netRaw)
		}
	}
	// The same transition twice makes an event and then a patch of it.
	for range 2 {
		s.publish()
		s.awaitVLANReady(corev1.ConditionFalse)
		s.withdraw()
		s.awaitVLANReady(corev1.ConditionUnknown)
	}
	s.end()
	s.run() // another agent takes the Lease up
	s.publish()
	s.serviceWith("203.0.113.5")
	s.eventually("a second renewal of the Lease", func() bool {
		lease, err := s.admin.CoordinationV1().Leases("kube-system").Get(t.Context(),
			contract.AgentLeasePrefix+nodeName, metav1.GetOptions{})
		return err == nil && lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time)
	})
	s.diagnose()
	s.diagnose("vip", "203.0.113.5")
	s.checkEndpoint()
	for _, word := range []string{"permission denied", "read-only file system", "forbidden", "panic"} {
		if strings.Contains(strings.ToLower(s.output()), word) {
			t.Errorf("the agent's log says %q", word)
		}
	}
	for _, problem := range checkRights(granted(t), audited(t, s.audit)) {
		t.Error(problem)
	}
}

// checkEndpoint expects a healthy agent whose every metric is documented.
func (s *site) checkEndpoint() {
	s.Helper()
	for _, path := range []string{"/healthz", "/readyz"} {
		s.eventually(path, func() bool { code, _ := s.get(path); return code == http.StatusOK })
	}
	_, body := s.get("/metrics")
	page, err := os.ReadFile("../../../docs/reference/metrics.md")
	s.must(err)
	metrics := regexp.MustCompile(`(?m)^# TYPE (phoenixnap_\w+)`).FindAllStringSubmatch(body, -1)
	if len(metrics) < 6 {
		s.Errorf("only %d metrics:\n%s", len(metrics), body)
	}
	for _, match := range metrics {
		if !strings.Contains(string(page), "| `"+match[1]+"`") && !strings.Contains(string(page), "| `"+match[1]+"{") {
			s.Errorf("docs/reference/metrics.md: %s is missing", match[1])
		}
	}
	if !strings.Contains(body, `server_id="0123456789abcdef01234567"`) {
		s.Error("no metric names the server")
	}
}
