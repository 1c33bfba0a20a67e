// Package podexec runs the agent's own commands in the pod of a node's agent.
package podexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/kubectl-pnap/reading"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

const (
	// selector finds the pods of the shipped DaemonSet.
	selector = "app.kubernetes.io/name=phoenixnap-agent"
	// container of those pods, and the program in its image.
	container, program = "agent", "/phoenixnap-agent"
)

// Runner runs commands of agents.
type Runner struct {
	// Config and Kube reach the API server.
	Config *rest.Config
	Kube   kubernetes.Interface
	// Namespace of the DaemonSet.
	Namespace string
}

// Run runs the agent's program with the arguments in the pod of the agent on the named Node, and copies what it writes, without
// what would do more to a terminal than write lines: not every pod that bears the label of an agent is one, and an agent that
// writes to no terminal has no colours to lose. Its error implements k8s.io/client-go/util/exec.CodeExitError when the program
// ended with another code than 0.
func (r Runner) Run(ctx context.Context, node string, args []string, out, errOut io.Writer) error {
	pod, err := r.pod(ctx, node)
	if err != nil {
		return err
	}
	request := r.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: append([]string{program}, args...), Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := executorFor(r.Config, request)
	if err != nil {
		return fmt.Errorf("reach pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	err = stream(ctx, executor, text.NewCleaner(out), text.NewCleaner(errOut))
	if refused(err) {
		return fmt.Errorf("%s: %w", reading.Missing("create", "pods/exec", pod.Namespace, "Node "+node+" cannot be asked"), err)
	}
	return err
}

// stream copies what the program writes, and its end.
func stream(ctx context.Context, executor remotecommand.Executor, out, errOut *text.Cleaner) error {
	err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: errOut})
	if ctx.Err() != nil {
		return err // what is cut short may still be written by the executor's goroutines
	}
	if closing := errors.Join(out.Close(), errOut.Close()); err == nil {
		return closing
	}
	return err
}

// refused tells whether the API server refused to run the command: what an upgrade is refused with is a text alone.
func refused(err error) bool {
	return err != nil && (apierrors.IsForbidden(err) || strings.Contains(err.Error(), `resource "pods/exec"`))
}

// executorFor speaks WebSocket and, with an older API server or a proxy that knows none, SPDY, as kubectl exec does.
func executorFor(config *rest.Config, request *rest.Request) (remotecommand.Executor, error) {
	spdy, err := remotecommand.NewSPDYExecutor(config, "POST", request.URL())
	if err != nil {
		return nil, err
	}
	websocket, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// pod returns the running pod of the agent on a Node.
func (r Runner) pod(ctx context.Context, node string) (*corev1.Pod, error) {
	list, err := r.Kube.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: selector, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%s: %w", reading.Missing("list", "pods", r.Namespace, "the agent of Node "+node+" cannot be found"), err)
	case err != nil:
		return nil, fmt.Errorf("find the agent of Node %s: %w", node, err)
	}
	running := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil })
	switch {
	case running >= 0:
		return &list.Items[running], nil
	case len(list.Items) > 0:
		return nil, fmt.Errorf("pod %s/%s of the agent on Node %s does not run (%s): look at it with kubectl describe pod, or run phoenixnap-agent diagnose on the node itself",
			r.Namespace, list.Items[0].Name, node, list.Items[0].Status.Phase)
	}
	if _, err := r.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("no Node is called %q: kubectl pnap status lists them", node)
	}
	return nil, fmt.Errorf("no agent runs on Node %s (no pod with the label %s in namespace %s): is the DaemonSet installed, and in that namespace (--agent-namespace)?", node, selector, r.Namespace)
}
