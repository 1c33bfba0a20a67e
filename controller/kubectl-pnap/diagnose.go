package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/kubectl-pnap/overview"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// diagnosis holds the flags of the commands that query an agent.
type diagnosis struct {
	*plugin
	agentNamespace string
	fix            string
	strict         bool
}

func (p *plugin) newDiagnoseCommand() *cobra.Command {
	d := &diagnosis{plugin: p}
	command := &cobra.Command{
		Use:   "diagnose",
		Short: "Explains what is wrong on a node, or with an address",
		Long: "Explains what is wrong on a node, or with an address: runs phoenixnap-agent diagnose in the agent's " +
			"pod. The command changes nothing.\n\n" +
			"The exit code is that of the agent: 0 healthy, 1 a check failed, 2 wrong usage, " +
			"3 something could not be determined.",
		Args: noArguments("node <name> or vip <address>"),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	flags := command.PersistentFlags()
	flags.StringVar(&d.agentNamespace, "agent-namespace", metav1.NamespaceSystem, "namespace of the agents' DaemonSet")
	flags.StringVar(&d.fix, "fix", "", "show fixes for this tool: "+
		"netplan, networkmanager, ifupdown, networkd or iproute2; if empty, for the detected tool")
	completeFlag(command, "fix", fixed(fixTools...))
	flags.BoolVar(&d.strict, "strict", false, "exit with code 1 on a warning")
	command.AddCommand(d.newNodeCommand(), d.newVIPCommand())
	return command
}

func (d *diagnosis) newNodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "node <name>",
		Short:   "Explains why a node cannot carry traffic of the public network",
		Example: "  kubectl pnap diagnose node worker-1 --fix netplan",
		Args:    exactlyOne("the name of one Node"),
		RunE:    func(c *cobra.Command, args []string) error { return d.run(c, args[0], netip.Addr{}) },

		ValidArgsFunction: d.complete(nodeNames),
	}
}

func (d *diagnosis) newVIPCommand() *cobra.Command {
	var node string
	command := &cobra.Command{
		Use:   "vip <address>|<namespace>/<service>",
		Short: "Explains which node answers for the address of a Service, and which one should",
		Long: "Explains which node answers for the address of a Service, and which one should. The command queries " +
			"the node\nthat answers, or, if no node answers, a node that may announce addresses; --node selects " +
			"another node.",
		Example: "  kubectl pnap diagnose vip 203.0.113.3\n  kubectl pnap diagnose vip shop/web --node worker-2",
		Args:    exactlyOne("one address, or <namespace>/<service>"),
		RunE: func(c *cobra.Command, args []string) error {
			address, target, err := d.locate(c.Context(), args[0], node)
			if err != nil {
				return err
			}
			return d.run(c, target, address)
		},
		ValidArgsFunction: d.complete(addresses),
	}
	command.Flags().StringVar(&node, "node", "", "Node whose agent is queried; if empty, the one that answers")
	completeFlag(command, "node", d.completeValue(nodeNames))
	return command
}

func exactlyOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usageError{fmt.Errorf("expected %s, got %d arguments", what, len(args))}
		}
		return nil
	}
}

// run runs the diagnosis of the agent of a Node, about one address if it is valid.
func (d *diagnosis) run(c *cobra.Command, node string, address netip.Addr) error {
	if err := d.checkFix(); err != nil {
		return err
	}
	config, kube, err := d.connect()
	if err != nil {
		return err
	}
	config.Timeout = 0 // the stream stays open until the agent is done, which takes some seconds
	pod, err := agentOn(c.Context(), kube, d.agentNamespace, node)
	if err != nil {
		return err
	}
	asked := question{address: address, output: d.output, fix: d.fix, strict: d.strict}
	return execute(c.Context(), config, kube, pod, asked, c.OutOrStdout(), c.ErrOrStderr())
}

// checkFix rejects other values of --fix.
func (d *diagnosis) checkFix() error {
	if d.fix != "" && !slices.Contains(fixTools, d.fix) {
		return usageError{fmt.Errorf("--fix %q: must be one of %s", d.fix, strings.Join(fixTools, ", "))}
	}
	return nil
}

// question is what an agent is asked: about its node, or about one IPv4 address if that is valid.
type question struct {
	address     netip.Addr
	output, fix string
	strict      bool
}

// options returns what is sent to the API server. The admission policy phoenixnap-diagnose admits nothing else to users
// who may only diagnose, so a new flag belongs there, too.
func (q question) options() *corev1.PodExecOptions {
	command := []string{program, "diagnose"}
	if q.address.IsValid() {
		command = append(command, "vip", q.address.String())
	}
	command = append(command, "--output="+q.output)
	if q.fix != "" {
		command = append(command, "--fix="+q.fix)
	}
	if q.strict {
		command = append(command, "--strict")
	}
	return &corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}
}

// locate finds the address, and the Node to query about it.
func (d *diagnosis) locate(ctx context.Context, what, node string) (netip.Addr, string, error) {
	address, err := netip.ParseAddr(what)
	namespace, name, isService := strings.Cut(what, "/")
	switch {
	case err == nil && !address.Is4(), err != nil && !isService:
		return address, "", usageError{fmt.Errorf("%q is neither an IPv4 address nor <namespace>/<service>", what)}
	case err == nil && node != "":
		return address, node, nil
	}
	o, err := d.overview(ctx)
	switch {
	case err != nil:
		return address, "", err
	case o.Unreachable():
		return address, "", errors.New(o.Problems[0].Message)
	}
	service := serviceOf(o, address, namespace, name)
	if isService {
		if address, err = addressOf(service, what); err != nil {
			return address, "", err
		}
	}
	if node == "" {
		node, err = choose(o, service)
	}
	return address, node, err
}

// serviceOf finds a Service by its address, or by its name; nil when there is none.
func serviceOf(o overview.Overview, address netip.Addr, namespace, name string) *overview.Service {
	for i, s := range o.Services {
		if address.IsValid() && s.Address == address.String() || s.Namespace == namespace && s.Name == name {
			return &o.Services[i]
		}
	}
	return nil
}

func addressOf(service *overview.Service, what string) (netip.Addr, error) {
	if service == nil {
		return netip.Addr{}, fmt.Errorf("no Service %s has an address of a phoenixNAP block, "+
			"or you may not list Services: see kubectl pnap status", what)
	}
	address, err := netip.ParseAddr(service.Address)
	if err != nil {
		state := strings.TrimSpace(service.State + " " + service.Message())
		return netip.Addr{}, fmt.Errorf("service %s has no address yet: %s", what, state)
	}
	if !address.Is4() {
		return netip.Addr{}, fmt.Errorf("service %s: the annotation %s has the value %s, which is not an IPv4 "+
			"address; remove it, and the controller writes it again", what, contract.ServiceIPAddress, address)
	}
	return address, nil
}

// choose returns the Node that answers for the address, else the first that may announce addresses, else the first.
func choose(o overview.Overview, service *overview.Service) (string, error) {
	if service != nil && len(service.On) > 0 {
		return service.On[0], nil
	}
	for _, n := range o.Nodes {
		if n.Announces && n.VLANReady.True() {
			return n.Name, nil
		}
	}
	if len(o.Nodes) == 0 {
		reasons := o.Unreadable
		if !slices.Contains(o.Unknown, overview.PartNodes) {
			reasons = append(slices.Clone(reasons), "no Node exists")
		}
		return "", fmt.Errorf("no Node can be queried: %s; set --node", strings.Join(reasons, "; "))
	}
	return o.Nodes[0].Name, nil
}

const (
	// selector finds the pods of the shipped DaemonSet.
	selector = "app.kubernetes.io/name=phoenixnap-agent"
	// container of those pods, and the program in its image.
	container, program = "agent", "/phoenixnap-agent"
)

// execute asks the agent in a pod, and copies its output without control sequences: not every pod with the label of an
// agent is one, and an agent that does not write to a terminal uses no colors. Its error is a
// k8s.io/client-go/util/exec.CodeExitError when the program exits with a code other than 0.
func execute(ctx context.Context, config *rest.Config, kube kubernetes.Interface, pod *corev1.Pod, asked question,
	out, errOut io.Writer) error {
	request := kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(asked.options(), scheme.ParameterCodec)
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
