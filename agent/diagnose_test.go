//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// output is what a command writes while another goroutine reads it.
type output struct {
	mu sync.Mutex
	b  strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// execute runs the command as main does, and returns its exit code and what it printed.
func execute(ctx context.Context, t *testing.T, out *output, args ...string) int {
	t.Helper()
	command := newCommand() //nolint:contextcheck // cobra hands the context of ExecuteContext to the commands
	command.SetOut(out)
	command.SetErr(out)
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	var code exitCode
	var misuse usageError
	switch {
	case err == nil:
		return diagnose.ExitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &misuse):
		return diagnose.ExitUsage
	default:
		t.Errorf("agent %v: %v", args, err)
		return -1
	}
}

// byHand describes a network that this machine does not have.
func byHand(more ...string) []string {
	return append([]string{"diagnose", "--node-name", "worker-1", "--vlan", "3999", "--network", "203.0.113.0/29",
		"--gateway", "203.0.113.6",
		"--address", "203.0.113.2"}, more...)
}

func TestDiagnoseByHand(t *testing.T) {
	var out output
	if code := execute(t.Context(), t, &out, byHand("-o", "yaml")...); code != diagnose.ExitFailed {
		t.Errorf("exit code %d, want 1", code)
	}
	var d diagnose.Document
	if err := yaml.UnmarshalStrict([]byte(out.String()), &d); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	if d.APIServer != "" || !strings.Contains(d.Network, "VLAN 3999") || d.Result.Status != check.Fail ||
		d.Result.FirstCause == "" {
		t.Errorf("document %+v", d)
	}
	for _, f := range d.Findings {
		if f.ID == check.BlockAssigned && !strings.Contains(f.Observed, "203.0.113.6") {
			t.Errorf("the gateway that was given does not count: %s", f.Observed)
		}
	}
}

// TestDiagnoseWatches: it prints once, goes on until it is interrupted, and ends with the code of the last diagnosis.
func TestDiagnoseWatches(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var out output
	done := make(chan int, 1)
	go func() { done <- execute(ctx, t, &out, byHand("--watch=50ms")...) }()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(out.String(), "fix this first"); {
		if time.Now().After(deadline) {
			t.Fatalf("no diagnosis within 20 s: %s", &out)
		}
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(300 * time.Millisecond)
	interrupt()
	if code := <-done; code != diagnose.ExitFailed {
		t.Errorf("exit code %d after an interrupt, want that of the last diagnosis, 1", code)
	}
	if n := strings.Count(out.String(), "\nNode      "); n != 1 {
		t.Errorf("printed %d diagnoses though nothing changed, want 1", n)
	}
}

func TestUsageOfDiagnose(t *testing.T) {
	for name, args := range map[string][]string{
		"gateway outside of the blocks":  byHand("--gateway", "192.0.2.1"),
		"gateway that is no address":     byHand("--gateway", "203.0.113.0/29"),
		"gateway that is the node's own": byHand("--gateway", "203.0.113.2"),
		"gateway without a VLAN":         {"diagnose", "--gateway", "203.0.113.1"},
		"address without a VLAN":         {"diagnose", "--address", "203.0.113.2"},
		"network that is no block":       {"diagnose", "--vlan", "56", "--network", "203.0.113.0"},
		"interval below zero":            byHand("--watch=-1s"),
		"interval as a word":             byHand("--watch", "2s"),
		"no time to wait":                byHand("--timeout", "0s"),
		"vip without an address":         {"diagnose", "vip"},
		"vip of a name":                  {"diagnose", "vip", "web"},
		"vip of IPv6":                    {"diagnose", "vip", "2001:db8::1"},
		"explain nothing":                {"diagnose", "explain"},
		"explain what is not there":      {"diagnose", "explain", "PN999"},
		"more words":                     byHand("more"),
	} {
		t.Run(name, func(t *testing.T) {
			if code := execute(t.Context(), t, &output{}, args...); code != diagnose.ExitUsage {
				t.Errorf("agent %v ends with %d, want 2", args, code)
			}
		})
	}
}

// A terminal obeys nothing of an error's words.
func TestAnUndeterminedDiagnosisIsHarmlessToATerminal(t *testing.T) {
	var out output
	err := undetermined(&out, errors.New("get Node a: refused\x1b[2J\u202e\nphoenixnap-agent: forged"))
	var code exitCode
	if !errors.As(err, &code) || code != diagnose.ExitUndetermined {
		t.Errorf("it ends with %v", err)
	}
	if want := "phoenixnap-agent: get Node a: refused?[2J? phoenixnap-agent: forged\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestExplain(t *testing.T) {
	for _, id := range []string{"pn301", "PN604"} {
		var out output
		if code := execute(t.Context(), t, &out, "diagnose", "explain", id); code != diagnose.ExitOK {
			t.Errorf("exit code %d", code)
		}
		for _, word := range []string{strings.ToUpper(id), "meaning", "causes", "remedy"} {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%s is explained without %q: %s", id, word, &out)
			}
		}
	}
}

// kubeconfigFor writes a kubeconfig of a server into a directory and returns its path.
func kubeconfigFor(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	must(t, clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "only",
		Clusters: map[string]*clientcmdapi.Cluster{"only": {Server: server}},
		Contexts: map[string]*clientcmdapi.Context{"only": {Cluster: "only"}}}, path))
	return path
}

// TestDiagnoseWithoutACluster: an API server that is away is named once, and nothing of it in the findings; what would
// help is there.
func TestDiagnoseWithoutACluster(t *testing.T) {
	kubeconfig := kubeconfigFor(t, "http://127.0.0.1:1")
	for _, args := range [][]string{{"diagnose"}, {"diagnose", "-o", "json"}, {"diagnose", "vip", "203.0.113.3"},
		byHand()} {
		var out output
		code := execute(t.Context(), t, &out, append(args, "--node-name", "worker-1", "--kubeconfig", kubeconfig)...)
		if code == diagnose.ExitOK || code == diagnose.ExitUsage {
			t.Errorf("%v ends with %d", args, code)
		}
		flat := strings.Join(strings.Fields(out.String()), " ")
		if n := strings.Count(flat, "connection refused"); n != 1 {
			t.Errorf("%v prints the error %d times, want once: %s", args, n, &out)
		}
	}
}

// TestKubeconfigsOfTheNode: the first that can be used is used; the error names what was tried.
func TestKubeconfigsOfTheNode(t *testing.T) {
	var f diagnoseFlags
	absent := filepath.Join(t.TempDir(), "absent.conf")
	broken := filepath.Join(t.TempDir(), "broken.conf")
	must(t, os.WriteFile(broken, []byte("{"), 0o600))
	good := kubeconfigFor(t, "http://127.0.0.1:1")
	if client, _, err := f.clientsOf([]string{absent, broken, good}); err != nil || client == nil {
		t.Errorf("%v, want a client by the third", err)
	}
	for _, paths := range [][]string{{absent}, {absent, broken}} {
		_, _, err := f.clientsOf(paths)
		if last := paths[len(paths)-1]; err == nil || !strings.Contains(err.Error(), last) {
			t.Errorf("%v: error %v, want it to name %s", paths, err, last)
		}
	}
	if f.kubeconfig != "" {
		t.Errorf("the flags changed to %s", f.kubeconfig)
	}
}

// TestDiagnoseAddressThroughTheAPIServer asks as the shipped ServiceAccount: Service, lease, other Nodes and their
// agents.
func TestDiagnoseAddressThroughTheAPIServer(t *testing.T) {
	c := newCluster(t)
	c.publish(t)
	service, err := c.admin.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "asked", Annotations: map[string]string{
			contract.ServiceIPAddress: "203.0.113.3", "kube-vip.io/vipHost": "worker-9"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	must(t, err)
	defer func() {
		must(t, c.admin.CoreV1().Services("default").Delete(context.WithoutCancel(t.Context()), service.Name,
			metav1.DeleteOptions{}))
	}()
	var out output
	code := execute(t.Context(), t, &out, "diagnose", "vip", "203.0.113.3", "--node-name", c.nodeName, "--kubeconfig",
		c.kubeconfig, "-o", "json")
	if code != diagnose.ExitFailed {
		t.Errorf("exit code %d, want 1: this machine has no such VLAN", code)
	}
	var d diagnose.Document
	must(t, json.Unmarshal([]byte(out.String()), &d))
	if d.APIServer != "" || d.Address == nil || len(d.Address.Services) != 1 ||
		d.Address.Services[0] != "default/asked" || d.Address.Unasked == "" {
		t.Errorf("document %s", &out)
	}
	if len(d.Address.Holders) != 1 || d.Address.Holders[0].Node != "worker-9" {
		t.Errorf("holders %+v, want worker-9 by the annotation", d.Address.Holders)
	}
}
