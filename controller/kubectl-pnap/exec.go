package main

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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

const (
	// selector finds the pods of the shipped DaemonSet.
	selector = "app.kubernetes.io/name=phoenixnap-agent"
	// container of those pods, and the program in its image.
	container, program = "agent", "/phoenixnap-agent"
)

// execute runs the agent's program with the arguments in the pod of an agent, and copies its output without control
// sequences: not every pod with the label of an agent is one, and an agent that does not write to a terminal uses no
// colors. Its error is a k8s.io/client-go/util/exec.CodeExitError when the program exits with a code other than 0.
func execute(ctx context.Context, config *rest.Config, kube kubernetes.Interface, pod *corev1.Pod, args []string,
	out, errOut io.Writer) error {
	options := &corev1.PodExecOptions{
		Container: container, Command: append([]string{program}, args...), Stdout: true, Stderr: true,
	}
	request := kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(options, scheme.ParameterCodec)
	executor, err := executorFor(config, request)
	if err != nil {
		return fmt.Errorf("reach pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	err = stream(ctx, executor, text.NewCleaner(out), text.NewCleaner(errOut))
	if refused(err) {
		reason := missing("create", "pods/exec", pod.Namespace, "the agent of Node "+pod.Spec.NodeName+" cannot be run")
		return fmt.Errorf("%s: %w", reason, err)
	}
	return err
}

// stream copies the program's output and returns how it ended.
func stream(ctx context.Context, executor remotecommand.Executor, out, errOut *text.Cleaner) error {
	err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: errOut})
	if ctx.Err() != nil {
		return err // the executor's goroutines may still write to the outputs
	}
	if closeErr := errors.Join(out.Close(), errOut.Close()); err == nil {
		return closeErr
	}
	return err
}

// refused reports whether the API server refused to run the command. A refused upgrade has no typed error, only a text.
func refused(err error) bool {
	return err != nil && (apierrors.IsForbidden(err) || strings.Contains(err.Error(), `resource "pods/exec"`))
}

// executorFor uses WebSocket, or SPDY with an older API server or a proxy without WebSocket, as kubectl exec does.
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

// agentOn returns the running pod of the agent on a Node.
func agentOn(ctx context.Context, kube kubernetes.Interface, namespace, node string) (*corev1.Pod, error) {
	list, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: selector, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	switch {
	case apierrors.IsForbidden(err):
		reason := missing("list", "pods", namespace, "the agent of Node "+node+" cannot be found")
		return nil, fmt.Errorf("%s: %w", reason, err)
	case err != nil:
		return nil, fmt.Errorf("find the agent of Node %s: %w", node, err)
	}
	running := slices.IndexFunc(list.Items, func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
	})
	switch {
	case running >= 0:
		return &list.Items[running], nil
	case len(list.Items) > 0:
		return nil, fmt.Errorf("pod %s/%s of the agent on Node %s is not running (%s): "+
			"check it with kubectl describe pod, or run phoenixnap-agent diagnose on the node itself", namespace,
			list.Items[0].Name, node, list.Items[0].Status.Phase)
	}
	if _, err := kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("node %q not found: kubectl pnap status lists all Nodes", node)
	}
	return nil, fmt.Errorf("no agent runs on Node %s (no pod with the label %s in namespace %s): "+
		"is the DaemonSet installed, and in that namespace (--agent-namespace)?", node, selector, namespace)
}
