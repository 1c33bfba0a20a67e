//go:build linux && e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// thief is what an agent would run, as root, if it followed a kubeconfig that somebody hands it.
const thief = `apiVersion: v1
kind: Config
current-context: thief
contexts: [{name: thief, context: {cluster: thief, user: thief}}]
clusters: [{name: thief, cluster: {server: "https://127.0.0.1:1"}}]
users:
  - name: thief
    user:
      exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: touch, args: [/tmp/stolen]}
`

// diagnose expects that kubelets run what kubectl pnap diagnose asks for, on behalf of users to whom deploy/kubectl-pnap
// gives that right, and nothing else that they ask for; and that the agent itself refuses what an administrator may ask.
func (s *site) diagnose() {
	s.Helper()
	s.run("kubectl apply -k deploy/kubectl-pnap")
	pod := s.agentOn(s.Servers[0].Name)
	operator := s.operator()
	plugin, err := tools.Product(s.Context(), "./controller/kubectl-pnap")
	check(s.T, err)
	out, err := s.as(operator, "", plugin, "diagnose", "node", s.Servers[0].Name)
	if err != nil || !strings.Contains(out, s.Servers[0].Name) {
		s.Errorf("kubectl pnap diagnose: %v\n%s", err, out)
	}
	s.Logf("kubectl pnap diagnose node %s:\n%s", s.Servers[0].Name, out)
	run := []string{s.kubectl, "-n", "kube-system", "exec", "-i", pod, "-c", "agent", "--", "/phoenixnap-agent", "diagnose",
		"--output=text", "--kubeconfig=/dev/stdin"}
	for _, c := range []struct{ kubeconfig, refusal string }{
		{operator, "ValidatingAdmissionPolicy 'phoenixnap-diagnose'"},
		{s.AdminKubeconfig(), `--kubeconfig="/dev/stdin": in a pod, diagnose uses the ServiceAccount`},
	} {
		out, err := s.as(c.kubeconfig, thief, run...)
		if err == nil || !strings.Contains(out, c.refusal) {
			s.Errorf("%s with %s: %v\n%s\nwant the refusal %q", run, c.kubeconfig, err, out, c.refusal)
		}
	}
	s.figure("exec_refused", 2, "commands")
}

// operator is the path of a kubeconfig of a user of the group that deploy/kubectl-pnap names.
func (s *site) operator() string {
	s.Helper()
	config, err := s.ControlPlane.User("olga", "phoenixnap:operators")
	check(s.T, err)
	path := filepath.Join(s.TempDir(), "operator.kubeconfig")
	check(s.T, controlplane.WriteKubeconfig(path, config, ""))
	return path
}

// agentOn is the name of the agent's pod on a Node.
func (s *site) agentOn(node string) string {
	s.Helper()
	pods, err := s.Kube.CoreV1().Pods(metav1.NamespaceSystem).List(s.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=phoenixnap-agent", FieldSelector: "spec.nodeName=" + node})
	check(s.T, err)
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			return pod.Name
		}
	}
	s.Fatalf("no agent runs on %s:\n%s", node, s.pods())
	return ""
}

// as runs a program with a kubeconfig, and gives it input.
func (s *site) as(kubeconfig, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(s.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
