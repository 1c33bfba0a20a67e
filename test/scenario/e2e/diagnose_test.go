//go:build linux && e2e

package e2e

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// thief is what an agent would run, as root, if it followed a kubeconfig of a user.
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

// diagnose expects that kubelets run what kubectl pnap diagnose asks for, on behalf of users to whom
// deploy/kubectl-pnap gives that right, and nothing else that they ask for; and that the agent itself refuses what an
// administrator may ask.
func (s *site) diagnose() {
	s.Helper()
	s.run("kubectl apply -k deploy/kubectl-pnap")
	pod := s.agentOn(s.Servers[0].Name)
	operator, err := s.ControlPlane.User("olga", "phoenixnap:operators") // a group that deploy/kubectl-pnap names
	check(s.T, err)
	s.plugin(operator, "diagnose", "node", s.Servers[0].Name)
	refused := 0
	for who, c := range map[string]struct {
		config  *rest.Config
		refusal string
	}{
		"operator":      {operator, "ValidatingAdmissionPolicy 'phoenixnap-diagnose'"},
		"administrator": {s.ControlPlane.Config(), `--kubeconfig="/dev/stdin": in a pod, diagnose uses the ServiceAccount`},
	} {
		out, err := s.execIn(pod, c.config, thief, "/phoenixnap-agent", "diagnose", "--output=text",
			"--kubeconfig=/dev/stdin")
		if err == nil || !strings.Contains(out+err.Error(), c.refusal) {
			s.Errorf("%s: %v\n%s\nwant the refusal %q", who, err, out, c.refusal)
			continue
		}
		refused++
	}
	s.figure("exec_refused", float64(refused), "commands")
}

// plugin runs kubectl-pnap as a user.
func (s *site) plugin(user *rest.Config, args ...string) {
	s.Helper()
	kubeconfig := filepath.Join(s.TempDir(), "operator.kubeconfig")
	check(s.T, controlplane.WriteKubeconfig(kubeconfig, user, ""))
	program, err := tools.Product(s.Context(), "./controller/kubectl-pnap")
	check(s.T, err)
	cmd := exec.CommandContext(s.Context(), program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "0 failed") {
		s.Errorf("kubectl pnap %v: %v\n%s", args, err, out)
	}
}

// execIn has a kubelet run a command in the container of an agent, as kubectl exec does for those who may read pods.
func (s *site) execIn(pod string, user *rest.Config, input string, command ...string) (string, error) {
	s.Helper()
	kube, err := kubernetes.NewForConfig(user)
	check(s.T, err)
	asked := kube.CoreV1().RESTClient().Post().Namespace(metav1.NamespaceSystem).Resource("pods").Name(pod).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{Container: "agent", Command: command, Stdin: true,
		Stdout: true, Stderr: true}, scheme.ParameterCodec)
	stream, err := remotecommand.NewSPDYExecutor(user, http.MethodPost, asked.URL())
	check(s.T, err)
	var out, complaints bytes.Buffer
	err = stream.StreamWithContext(s.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(input),
		Stdout: &out, Stderr: &complaints})
	return out.String() + complaints.String(), err
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
