//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
)

// inAPod makes this process one of a pod.
func inAPod(t *testing.T) { t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1") }

// harmless are the flags of diagnose that name no other file, server or Node: they choose what is checked on this
// machine, and how it is printed.
var harmless = []string{"interface", "uplink", "vlan", "network", "gateway", "address", "fix", "output", "timeout",
	"kube-vip-namespace", "kube-vip-lease", "public-network", "strict", "watch", "v", "vmodule", "help"}

// TestEveryFlagOfDiagnoseIsJudged: a new flag is refused in a pod, or harmless there.
func TestEveryFlagOfDiagnoseIsJudged(t *testing.T) {
	root := newCommand()
	found, _, err := root.Find([]string{"diagnose"})
	must(t, err)
	refused := 0
	for _, command := range append([]*cobra.Command{found}, found.Commands()...) {
		command.InitDefaultHelpFlag()
		judge := func(f *pflag.Flag) {
			if f.Annotations[notInPod] != nil {
				refused++
			} else if !slices.Contains(harmless, f.Name) {
				t.Errorf("%s --%s: is it harmless in a pod?", command.CommandPath(), f.Name)
			}
		}
		command.LocalFlags().VisitAll(judge)
		command.InheritedFlags().VisitAll(judge)
	}
	if refused < 2 {
		t.Errorf("%d flags are refused in a pod", refused)
	}
}

// TestDiagnoseInAPodIsOfThatPod: flags that name another file, server or Node are refused, however they are given.
func TestDiagnoseInAPodIsOfThatPod(t *testing.T) {
	inAPod(t)
	kubeconfig := kubeconfigFor(t, "http://127.0.0.1:1")
	for _, args := range [][]string{
		{"diagnose", "--kubeconfig=" + kubeconfig}, {"diagnose", "--kubeconfig", kubeconfig},
		{"--kubeconfig", kubeconfig, "diagnose"}, {"diagnose", "--kubeconfig=/dev/stdin"},
		{"diagnose", "--kubeconfig="}, {"diagnose", "--kubeconfig=", "--kubeconfig", kubeconfig},
		{"diagnose", "vip", "203.0.113.3", "--kubeconfig=" + kubeconfig},
		{"diagnose", "--kubeconfig=" + kubeconfig, "vip", "203.0.113.3"},
		{"diagnose", "explain", "PN301", "--kubeconfig=" + kubeconfig},
		{"diagnose", "--node-name=another"}, {"diagnose", "--node-name", "another", "--output=json"},
		byHand("--kubeconfig=" + kubeconfig),
	} {
		command := newCommand()
		command.SetOut(&output{})
		command.SetErr(&output{})
		command.SetArgs(args)
		err := command.ExecuteContext(t.Context())
		if _, misuse := err.(usageError); !misuse { //nolint:errorlint // it is not wrapped
			t.Errorf("%q: %v", args, err)
		}
		if slices.Contains(args, "--kubeconfig=/dev/stdin") && !strings.Contains(err.Error(),
			`--kubeconfig="/dev/stdin": in a pod, diagnose uses the ServiceAccount and the Node of the pod; leave the `) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestTheEnvironmentOfAPodCounts: those who install the agent write it.
func TestTheEnvironmentOfAPodCounts(t *testing.T) {
	inAPod(t)
	t.Setenv("PNAP_AGENT_NODE_NAME", "worker-1")
	t.Setenv("KUBECONFIG", kubeconfigFor(t, "http://127.0.0.1:1"))
	var out output
	if code := execute(t.Context(), t, &out, "diagnose"); code == diagnose.ExitUsage ||
		!strings.Contains(out.String(), "worker-1") || !strings.Contains(out.String(), "connection refused") {
		t.Errorf("exit code %d: %s", code, &out)
	}
}

// TestKubeconfigOfAPodIsNotFollowed: no file is read and no command run for it, whichever command it is for.
func TestKubeconfigOfAPodIsNotFollowed(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "executed")
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("secret"), 0o600))
	for field, user := range map[string]*clientcmdapi.AuthInfo{
		"exec": {Exec: &clientcmdapi.ExecConfig{Command: "touch", Args: []string{marker},
			APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}},
		"auth-provider": {AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc"}},
		"tokenFile":     {TokenFile: token},
		"":              {Token: "secret"},
	} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		must(t, clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "only",
			Clusters:  map[string]*clientcmdapi.Cluster{"only": {Server: "https://127.0.0.1:1"}},
			AuthInfos: map[string]*clientcmdapi.AuthInfo{"only": user},
			Contexts:  map[string]*clientcmdapi.Context{"only": {Cluster: "only", AuthInfo: "only"}}}, path))
		flags := nodeFlags{kubeconfig: path}
		if _, err := flags.restConfig(); err != nil {
			t.Errorf("%s outside of a pod: %v", field, err)
		}
		t.Run("in a pod: "+field, func(t *testing.T) {
			inAPod(t)
			_, err := flags.client()
			if field == "" {
				must(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), "the field "+field) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a command was run")
	}
}
