//go:build linux

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// cluster is a real API server with a Node, and the agent's kubeconfig: that of the shipped ServiceAccount.
type cluster struct {
	nodeName   string
	admin      kubernetes.Interface
	agent      kubernetes.Interface
	kubeconfig string
}

// cp is the control plane of all tests of this package; each test has a Node of its own.
var cp *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &cp)) }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	nodeName := strings.ToLower(t.Name())
	must(t, cp.ApplyFiles(t.Context(), "../deploy/base/agent.yaml", "../deploy/base/agent-policy.yaml"))
	admin, err := kubernetes.NewForConfig(cp.Config())
	must(t, err)
	config, err := cp.ServiceAccountOn(t.Context(), "kube-system", "phoenixnap-agent", nodeName)
	must(t, err)
	agent, err := kubernetes.NewForConfig(config)
	must(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, controlplane.WriteKubeconfig(path, config, cp.URL()))
	_, err = admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := admin.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), nodeName,
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return &cluster{nodeName: nodeName, admin: admin, agent: agent, kubeconfig: path}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) node(t *testing.T) *corev1.Node {
	t.Helper()
	node, err := c.admin.CoreV1().Nodes().Get(t.Context(), c.nodeName, metav1.GetOptions{})
	must(t, err)
	return node
}

// publish writes what the controller would.
func (c *cluster) publish(t *testing.T) {
	t.Helper()
	annotations := nodenet.On(contract.NodeNetwork{ServerID: "0123456789abcdef01234567",
		ID: "6104105e6b7c9a0012345678", VLAN: 3999,
		Member: true, Announcer: contract.AnnouncerKubeVIP})
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	must(t, err)
	_, err = c.admin.CoreV1().Nodes().Patch(t.Context(), c.nodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
}

func (c *cluster) await(t *testing.T, what string, holds func(*corev1.Node) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		node := c.node(t)
		if holds(node) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s; conditions %v", what, node.Status.Conditions)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *cluster) awaitCondition(t *testing.T, conditionType corev1.NodeConditionType, status corev1.ConditionStatus,
	reason string) {
	t.Helper()
	c.await(t, string(conditionType)+" "+string(status)+" "+reason, func(node *corev1.Node) bool {
		condition := contract.FindNodeCondition(node, conditionType)
		return condition != nil && condition.Status == status && (reason == "" || condition.Reason == reason)
	})
}

// startAgent starts the whole agent. end asks it to end, and waits until it has.
func (c *cluster) startAgent(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- run(ctx, []string{"run", "--node-name", c.nodeName, "--kubeconfig", c.kubeconfig}) }()
	return func() {
		t.Helper()
		cancel()
		if code := <-done; code != diagnose.ExitOK {
			t.Errorf("exit code %d after its context ended, want 0", code)
		}
	}
}

// TestRunAsShippedServiceAccount runs the whole agent on this machine, which has no VLAN of that network.
func TestRunAsShippedServiceAccount(t *testing.T) {
	c := newCluster(t)
	defer c.startAgent(t)()

	c.awaitCondition(t, contract.ConditionVLANReady, corev1.ConditionUnknown, "WaitingForController")
	c.awaitCondition(t, contract.ConditionAnnouncementHealthy, corev1.ConditionTrue, "NothingAnnounced")
	c.publish(t)
	c.awaitCondition(t, contract.ConditionVLANReady, corev1.ConditionFalse, "")
	c.await(t, "the reported identity", func(node *corev1.Node) bool {
		var id contract.Identity
		hostname, err := os.Hostname()
		return err == nil && json.Unmarshal([]byte(node.Annotations[contract.NodeReportedIdentity]), &id) == nil &&
			id.Hostname == hostname
	})
	c.await(t, "the agent's Lease", func(node *corev1.Node) bool {
		lease, err := c.admin.CoordinationV1().Leases("kube-system").Get(t.Context(),
			contract.AgentLeasePrefix+c.nodeName, metav1.GetOptions{})
		return err == nil && time.Since(lease.Spec.RenewTime.Time) < time.Minute
	})
	c.await(t, "an event on the Node", func(node *corev1.Node) bool {
		events, err := c.admin.CoreV1().Events("default").List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(node.UID)})
		return err == nil && len(events.Items) == 1 && events.Items[0].Type == corev1.EventTypeWarning
	})

	steady := ""
	c.await(t, "a steady state, in which the Node is not written for three seconds", func(node *corev1.Node) bool {
		before := steady
		steady = node.ResourceVersion
		time.Sleep(3 * time.Second)
		return before == steady
	})
}

func TestAgentMayDoNoMore(t *testing.T) {
	c := newCluster(t)
	label := []byte(`{"metadata":{"labels":{"phoenixnap.com/vlan-ready":"true"}}}`)
	for what, attempt := range map[string]func(context.Context) error{
		"label its Node": func(ctx context.Context) error {
			_, err := c.agent.CoreV1().Nodes().Patch(ctx, c.nodeName, types.MergePatchType, label,
				metav1.PatchOptions{})
			return err
		},
		"read Secrets": func(ctx context.Context) error {
			_, err := c.agent.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
			return err
		},
		"list Leases": func(ctx context.Context) error {
			_, err := c.agent.CoordinationV1().Leases("kube-system").List(ctx, metav1.ListOptions{})
			return err
		},
		"change a Service": func(ctx context.Context) error {
			_, err := c.agent.CoreV1().Services("default").Patch(ctx, "kubernetes", types.MergePatchType, label,
				metav1.PatchOptions{})
			return err
		},
	} {
		if err := attempt(t.Context()); !apierrors.IsForbidden(err) {
			t.Errorf("the agent may %s (%v)", what, err)
		}
	}
}

func TestDiagnoseThroughTheAPIServer(t *testing.T) {
	c := newCluster(t)
	c.publish(t)
	command := newCommand()
	var out strings.Builder
	command.SetOut(&out)
	command.SetArgs([]string{"diagnose", "--node-name", c.nodeName, "--kubeconfig", c.kubeconfig, "-o", "json"})
	err := command.ExecuteContext(t.Context())
	if err == nil || err.Error() != exitCode(diagnose.ExitFailed).Error() {
		t.Errorf("ended with %v, want exit code 1", err)
	}
	var d diagnose.Document
	if err := json.Unmarshal([]byte(out.String()), &d); err != nil || d.APIServer != "" ||
		!strings.Contains(d.Network, "VLAN 3999") {
		t.Errorf("document %s (%v)", out.String(), err)
	}
}

func TestUsage(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		want int
	}{
		"unknown command":    {[]string{"bogus"}, nil, diagnose.ExitUsage},
		"unknown flag":       {[]string{"diagnose", "--nonsense"}, nil, diagnose.ExitUsage},
		"unknown tool":       {[]string{"diagnose", "--fix", "wicked"}, nil, diagnose.ExitUsage},
		"unknown output":     {[]string{"diagnose", "-o", "xml"}, nil, diagnose.ExitUsage},
		"VLAN out of range":  {[]string{"diagnose", "--vlan", "5000"}, nil, diagnose.ExitUsage},
		"block without VLAN": {[]string{"diagnose", "--network", "192.0.2.0/28"}, nil, diagnose.ExitUsage},
		"broken environment": {[]string{"run"}, map[string]string{"PNAP_AGENT_INTERVAL": "soon"},
			diagnose.ExitUsage},
		"interval zero":           {[]string{"run", "--interval", "0s"}, nil, diagnose.ExitUsage},
		"unknown thing to manage": {[]string{"run", "--manage", "dns"}, nil, diagnose.ExitUsage},
		"marks without bits":      {[]string{"run", "--mark", "0"}, nil, diagnose.ExitUsage},
		"no API server":           {[]string{"diagnose", "--kubeconfig", missing}, nil, diagnose.ExitUndetermined},
		"run without API server":  {[]string{"run", "--kubeconfig", missing}, nil, diagnose.ExitFailed},
		"help":                    {[]string{"run", "--help"}, nil, diagnose.ExitOK},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range tc.env {
				t.Setenv(key, value)
			}
			if got := run(t.Context(), tc.args); got != tc.want {
				t.Errorf("agent %v exits with %d, want %d", tc.args, got, tc.want)
			}
		})
	}
}

func TestFlagOutweighsEnvironment(t *testing.T) {
	command := newDiagnoseCommand()
	must(t, command.ParseFlags([]string{"--uplink", "bond1"}))
	environment := map[string]string{
		"OUTPUT": "xml", "NETWORK": "10.0.0.0/8", "PNAP_AGENT_OUTPUT": "xml", "INTERFACE": "eth0", "MANAGE": "vlan",
		"PNAP_AGENT_UPLINK": "bond2", "PNAP_AGENT_INTERFACE": "bond1.100", "PNAP_AGENT_NODE_NAME": "",
	}
	must(t, fromEnvironment(command.Flags(), func(name string) (string, bool) {
		value, set := environment[name]
		return value, set
	}))
	if got := command.Flag("uplink").Value.String(); got != "bond1" {
		t.Errorf("uplink is %q, want the flag's bond1", got)
	}
	if got := command.Flag("interface").Value.String(); got != "bond1.100" {
		t.Errorf("interface is %q, want the environment's bond1.100", got)
	}
	for _, name := range []string{"output", "network"} {
		if command.Flag(name).Changed {
			t.Errorf("--%s is taken from a variable that a shell may have for something else", name)
		}
	}
}
