//go:build linux

package local

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// The environment of make run-local, as users of phoenixnap/k8s-cloud-provider-bmc set it.
const (
	secretVariable       = "CCM_SECRET"
	kubeconfigVariable   = "KUBECONFIG"
	locationVariable     = "PNAP_LOCATION"
	loadBalancerVariable = "PNAP_LOAD_BALANCER"
)

// runLocal is make run-local with these variables and no others of ours.
func runLocal(t *testing.T, variables map[string]string, args string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "make", "--no-print-directory", "run-local",
		"ARGS="+args)
	cmd.Dir = "../../.."
	for _, each := range os.Environ() {
		name, _, _ := strings.Cut(each, "=")
		switch name {
		case secretVariable, kubeconfigVariable, locationVariable, loadBalancerVariable, "MAKEFLAGS", "MAKELEVEL":
		default:
			cmd.Env = append(cmd.Env, each)
		}
	}
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &out
	return cmd, &out
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Everything that is missing is reported at once, and nothing is started.
func TestWhatIsMissingIsReported(t *testing.T) {
	bare := write(t, "cloud-sa.json", `{"clientID": "a", "clientSecret": "b"}`)
	full := write(t, "cloud-sa.json",
		`{"clientID": "a", "clientSecret": "b", "location": "ASH", "loadbalancer": "kube-vip://c"}`)
	for name, tc := range map[string]struct {
		variables map[string]string
		want      []string
	}{
		"nothing set": {want: []string{secretVariable + " is not set", kubeconfigVariable + " is not set",
			locationVariable + " is not set", loadBalancerVariable + " is not set"}},
		"no such files": {variables: map[string]string{secretVariable: "/nowhere/secret",
			kubeconfigVariable: "/nowhere/config", locationVariable: "ASH", loadBalancerVariable: "kube-vip://c"},
			want: []string{secretVariable + "=/nowhere/secret cannot be read",
				kubeconfigVariable + "=/nowhere/config cannot be read"}},
		"bare secret": {variables: map[string]string{secretVariable: bare, kubeconfigVariable: bare},
			want: []string{locationVariable + " is not set", loadBalancerVariable + " is not set"}},
		"secret has it": {variables: map[string]string{secretVariable: full},
			want: []string{kubeconfigVariable + " is not set"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, out := runLocal(t, tc.variables, "")
			if err := cmd.Run(); err == nil {
				t.Error("make run-local succeeded")
			}
			if reported := strings.Count(out.String(), "run-local: "); reported != len(tc.want) {
				t.Errorf("%d faults are reported, want %d:\n%s", reported, len(tc.want), out)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, out)
				}
			}
		})
	}
}

// The controller initialises a Node, and an interrupt from the terminal ends it.
func TestItRunsAgainstACluster(t *testing.T) {
	plane := controlplane.ForTest(t)
	_, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(1), Latency: &pnapsim.Latency{}},
		simtest.Seed())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, plane.Config(), ""); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider,
			Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cmd, out := runLocal(t, map[string]string{
		secretVariable: write(t, "cloud-sa.json",
			fmt.Sprintf(`{"clientID": %q, "clientSecret": %q, "base-url": %q}`, simtest.ClientID, simtest.ClientSecret,
				url)),
		kubeconfigVariable: kubeconfig, locationVariable: "ASH",
		loadBalancerVariable: "kube-vip://" + simtest.NetworkID,
	}, "--secure-port="+freePort(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a terminal's foreground job
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	known := awaitProvider(t, client, ended)
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil && known {
		t.Error(err)
	}
	select {
	case err := <-ended:
		t.Logf("the end: %v", err) // an interrupted make fails
	case <-time.After(20 * time.Second):
		t.Errorf("no end within 20 s of an interrupt: %v", syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		t.Logf("the end: %v", <-ended)
	}
	if !known {
		t.Errorf("the Node has no provider ID:\n%s", out)
	}
}

// awaitProvider waits until the Node has its provider ID; false when the controller ended or took too long.
func awaitProvider(t *testing.T, client kubernetes.Interface, ended chan error) bool {
	t.Helper()
	late := time.After(3 * time.Minute) // go run may have to compile the controller
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if node.Spec.ProviderID == contract.ProviderID(simtest.Server1ID) {
			return true
		}
		select {
		case <-ticker.C:
		case <-late:
			return false
		case err := <-ended:
			ended <- err
			return false
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // it has served its purpose
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
