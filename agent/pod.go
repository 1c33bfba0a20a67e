//go:build linux

package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

// inCluster reports whether the process runs in a pod with a ServiceAccount.
func inCluster() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// notInPod annotates flags that are refused on the command line in a pod.
const notInPod = "not in a pod"

// notInPods annotates flags that name another API server, file or Node. In a pod, whoever may run diagnose there could
// otherwise have the agent read a file, send its token elsewhere or run a command as root. The environment of the pod
// is written by those who install the agent.
func notInPods(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, notInPod, []string{"true"}); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// checkPodFlags refuses the flags that are annotated, in a pod.
func checkPodFlags(flags *pflag.FlagSet) (err error) {
	if !inCluster() {
		return nil
	}
	flags.Visit(func(f *pflag.Flag) {
		if f.Annotations[notInPod] != nil && err == nil {
			err = usageError{fmt.Errorf("--%s=%q: in a pod, diagnose uses the ServiceAccount and the Node of the pod; "+
				"leave the flag out, or run phoenixnap-agent diagnose on the node itself", f.Name, f.Value)}
		}
	})
	return err
}

// checkPodKubeconfig refuses a kubeconfig that has a client in a pod run a command or send the content of a file.
func checkPodKubeconfig(path string, config *rest.Config) error {
	var field string
	switch {
	case config.ExecProvider != nil:
		field = "exec"
	case config.AuthProvider != nil:
		field = "auth-provider"
	case config.BearerTokenFile != "":
		field = "tokenFile"
	default:
		return nil
	}
	return fmt.Errorf("kubeconfig %q: its user has the field %s, which is not followed in a pod; use a token or a "+
		"client certificate there, or no kubeconfig, which takes the ServiceAccount of the pod", path, field)
}
