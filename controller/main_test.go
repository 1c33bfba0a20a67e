package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// eventually polls until check succeeds; its last complaint fails the test.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(within)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatalf("not within %v: %v", within, err)
		}
	}
}

func admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// register does what a kubelet does with --cloud-provider=external and, where a zone is given, with --node-labels.
func register(t *testing.T, client kubernetes.Interface, name string, zone ...string) {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider,
			Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
	}
	if len(zone) > 0 {
		node.Labels[corev1.LabelTopologyZone] = zone[0]
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func report(t *testing.T, client kubernetes.Interface, name string, status corev1.ConditionStatus) {
	t.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":"Test"},{"type":"Ready","status":"True","reason":"Test"}]}}`, contract.ConditionVLANReady, status)
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), name, "application/strategic-merge-patch+json",
		[]byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func getNode(t *testing.T, client kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// initialised returns what a Node still lacks.
func initialised(node *corev1.Node, serverID, ips string) error {
	return initialisedIn(node, "ASH", serverID, ips)
}

func initialisedIn(node *corev1.Node, zone, serverID, ips string) error {
	for _, taint := range node.Spec.Taints {
		if taint.Key == cloudproviderapi.TaintExternalCloudProvider {
			return fmt.Errorf("node %s is tainted", node.Name)
		}
	}
	addresses := fmt.Sprint(node.Status.Addresses)
	switch {
	case node.Spec.ProviderID != contract.ProviderID(serverID):
		return fmt.Errorf("provider ID %q", node.Spec.ProviderID)
	case !placed(node, zone):
		return fmt.Errorf("labels %v", node.Labels)
	case !strings.Contains(addresses, "InternalIP") || !strings.Contains(addresses, ips):
		return fmt.Errorf("addresses %s", addresses)
	}
	facts, ok, err := contract.NodeNetworkOf(node.Annotations, "")
	if err != nil || !ok || facts.ServerID != serverID || !facts.Member || facts.VLAN != 20 || len(facts.Blocks) == 0 {
		return fmt.Errorf("annotations %v: %+v, %v, %w", node.Annotations, facts, ok, err)
	}
	return nil
}

// placed reports whether the labels of a Node name its server's type and place; the deprecated ones say the same.
func placed(node *corev1.Node, zone string) bool {
	for name, want := range map[string]string{
		corev1.LabelInstanceTypeStable: "s1.c1.small", corev1.LabelInstanceType: "s1.c1.small",
		corev1.LabelTopologyRegion: "ASH", corev1.LabelFailureDomainBetaRegion: "ASH",
		corev1.LabelTopologyZone: zone, corev1.LabelFailureDomainBetaZone: zone,
	} {
		if node.Labels[name] != want {
			return false
		}
	}
	return true
}

// forgetZone leaves a Node as a version that wrote no zone initialised it.
func forgetZone(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null,%q:null}}}`, corev1.LabelTopologyZone,
		corev1.LabelFailureDomainBetaZone)
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func labelled(node *corev1.Node, want bool) error {
	if got := node.Labels[contract.NodeVLANReady] == "true"; got != want {
		return fmt.Errorf("label of %s is %v, want %v", node.Name, got, want)
	}
	return nil
}

// The whole life with the phoenixNAP API down at first: Nodes are initialised and learn the network,
// the label follows the agents, a Service gets and loses its address, and nothing that the shipped
// ServiceAccount may not do is ever tried.
//
//proves:known-bugs/zone-overwritten
//proves:known-bugs/secrets-in-events
func TestControllerAgainstARealControlPlane(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(20)}, simtest.Seed())
	if err := sim.Arm(pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusServiceUnavailable,
		Times: 4}); err != nil {
		t.Fatal(err)
	}
	client := admin(t)
	register(t, client, "node-1")
	register(t, client, "node-2", "rack-7")
	p := startController(t, url)

	eventually(t, 60*time.Second, func() error {
		return initialised(getNode(t, client, "node-1"), simtest.Server1ID, "203.0.113.2")
	})
	eventually(t, 30*time.Second, func() error {
		return initialisedIn(getNode(t, client, "node-2"), "rack-7", simtest.Server2ID, "203.0.113.3")
	})
	forgetZone(t, client, "node-1")
	eventually(t, patience, p.healthy)

	report(t, client, "node-1", corev1.ConditionTrue)
	report(t, client, "node-2", corev1.ConditionTrue)
	eventually(t, 20*time.Second, func() error { return labelled(getNode(t, client, "node-1"), true) })
	eventually(t, 20*time.Second, func() error { return labelled(getNode(t, client, "node-2"), true) })
	report(t, client, "node-1", corev1.ConditionFalse)
	eventually(t, 20*time.Second, func() error { return labelled(getNode(t, client, "node-1"), false) })

	checkService(t, client, sim)
	eventually(t, 60*time.Second, func() error {
		return initialised(getNode(t, client, "node-1"), simtest.Server1ID, "203.0.113.2")
	})
	p.end()
	for _, complaint := range []string{"forbidden", "Forbidden"} {
		if strings.Contains(p.output(), complaint) {
			t.Errorf("the log has something %s", complaint)
		}
	}
	if found := sim.FindSecrets(p.output()); len(found) > 0 {
		t.Errorf("the log holds secrets: %v", found)
	}
}

func checkService(t *testing.T, client kubernetes.Interface, sim *pnapsim.Sim) {
	t.Helper()
	services := client.CoreV1().Services("default")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, func() error {
		got, err := services.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ingress := got.Status.LoadBalancer.Ingress; len(ingress) != 1 || ingress[0].IP == "" ||
			ingress[0].IP != got.Annotations[contract.ServiceIPAddress] {
			return fmt.Errorf("status %+v, annotations %v, conditions %+v", got.Status.LoadBalancer, got.Annotations,
				got.Status.Conditions)
		}
		return nil
	})
	if err := services.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, func() error {
		got, err := services.Get(t.Context(), "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("service %+v: %w", got.Status.Conditions, err)
	})
	if left := sim.LeakCheck(simtest.ClientID); len(left) > 0 {
		t.Errorf("left in the account: %v", left)
	}
}

// Wrong input gets one sentence for each thing that is wrong, and exit code 1.
//
//proves:known-bugs/misspelt-scheme
//proves:known-bugs/provider-name
func TestWrongInput(t *testing.T) {
	path := binary(t)
	secret := filepath.Join(t.TempDir(), "cloud.json")
	if err := os.WriteFile(secret, []byte(`{"clientID":"abc","clientSecret":"hunter2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no cloud config": {want: "Error: no cloud config given: set --cloud-config to the path of the secret with " +
			"clientID and clientSecret\n"},
		"unknown flag": {args: []string{"--nonsense"}, want: "Error: unknown flag: --nonsense\n"},
		"another provider": {args: []string{"--cloud-provider=PhoenixNAP"},
			want: "Error: --cloud-provider=PhoenixNAP is another provider: set --cloud-provider=phoenixnap or leave " +
				"it out\n"},
		"unknown scheme": {args: []string{"--cloud-config=" + secret, "--load-balancer=kubevip://x"},
			want: "Error: --load-balancer: load balancer \"kubevip://x\" has the unknown scheme \"kubevip\": want " +
				"kube-vip://<network-id> or agent://<network-id>\n"},
		"no kubeconfig": {args: []string{"--cloud-config=" + secret, "--kubeconfig=/nowhere/kubeconfig"},
			want: "Error: --kubeconfig: open /nowhere/kubeconfig: no such file or directory: set it to a file that " +
				"this process can read, or leave it out in a pod\n"},
		"kubeconfig left out": {args: []string{"--cloud-config=" + secret},
			want: "Error: no --kubeconfig given, and this process does not run in a pod: set --kubeconfig to the " +
				"path of a kubeconfig file\n"},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), path, test.args...)
			command.Env = []string{"PATH=" + os.Getenv("PATH")}
			var stderr bytes.Buffer
			command.Stderr = &stderr
			err := command.Run()
			if command.ProcessState.ExitCode() != 1 {
				t.Errorf("ended with %v, want exit code 1", err)
			}
			if got := withoutLog(stderr.String()); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A misspelt variable is named: in the error that it may have led to, and in the log of a start.
func TestMisspeltVariablesAreNamed(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "cloud.json")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	for path, content := range map[string]string{
		secret: `{"clientID":"abc","clientSecret":"hunter2"}`,
		kubeconfig: `{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":` +
			`{"cluster":"x","user":"x"}}],"users":[{"name":"x","user":{}}],"clusters":[{"name":"x","cluster":` +
			`{"server":"https://127.0.0.1:1"}}]}`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, args := range map[string][]string{
		"with an error": {"--cloud-config=" + secret, "--kubeconfig=" + kubeconfig, "--location=nowhere"},
		"at a start": {"--cloud-config=" + secret, "--kubeconfig=" + kubeconfig, "--secure-port=0",
			"--authentication-skip-lookup", "--cert-dir=" + t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			command := exec.CommandContext(ctx, binary(t), args...)
			command.Env = []string{"PATH=" + os.Getenv("PATH"), "PNAP_MAX_IP_BLOCK=hunter2"}
			output, err := command.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			var read strings.Builder
			for lines := bufio.NewScanner(output); lines.Scan(); {
				read.WriteString(lines.Text() + "\n")
				if strings.Contains(lines.Text(), "PNAP_MAX_IP_BLOCK ") {
					cancel()
				}
			}
			_ = command.Wait() // it was stopped, or rejected its options
			if !strings.Contains(read.String(), "environment variable PNAP_MAX_IP_BLOCK is not an option") ||
				strings.Contains(read.String(), "hunter2") {
				t.Errorf("the program wrote\n%s", read.String())
			}
		})
	}
}

// withoutLog drops the usage text and the lines that a logger writes.
func withoutLog(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "I") && !strings.HasPrefix(line, "W") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

//proves:known-bugs/missing-flags
func TestHelpShowsOurFlagsInASectionOfTheirOwn(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), binary(t), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(out), "PhoenixNAP flags:")
	if !found {
		t.Fatal("no section of ours")
	}
	for _, flag := range []string{"--load-balancer", "--max-ip-blocks", "--dry-run", "--service-node-selector"} {
		if !strings.Contains(section, flag) {
			t.Errorf("the section lacks %s", flag)
		}
	}
	if strings.Count(string(out), "PhoenixNAP flags:") != 1 || strings.Count(string(out), "--dry-run") != 1 {
		t.Errorf("our flags are shown more than once:\n%s", out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--configure-cloud-routes") && strings.Contains(line, "default true") {
			t.Errorf("the default is not what the pages say: %s", line)
		}
	}
}
