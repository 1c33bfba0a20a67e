package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announcement"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/l2"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/monitor"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/netinfo"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

type diagnoseFlags struct {
	nodeFlags
	network networkFlags
	fix     string
	output  string
	timeout time.Duration
}

func newDiagnoseCommand() *cobra.Command {
	var f diagnoseFlags
	command := &cobra.Command{
		Use:   "diagnose",
		Short: "Checks this node once and explains what is wrong and how to mend it",
		Long: "Checks this node once and explains what is wrong and how to mend it. Nothing is changed.\n\n" +
			"Exit codes: 0 all is well (warnings allowed), 1 a check failed, 2 wrong usage, 3 something could not be determined.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runDiagnose(c.Context(), c.OutOrStdout(), f) },
	}
	f.add(command.Flags())
	f.network.add(command.Flags())
	command.Flags().StringVar(&f.fix, "fix", "", "tool that fixes are written for: netplan, networkmanager, ifupdown, networkd, iproute2; empty: the recognised one")
	command.Flags().StringVarP(&f.output, "output", "o", "text", "text or json")
	command.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for the API server")
	return command
}

func (f *diagnoseFlags) validate() error {
	tools := []string{"", string(check.Netplan), string(check.NetworkManager), string(check.Ifupdown), string(check.Networkd), string(check.IPRoute2)}
	if !slices.Contains(tools, f.fix) {
		return usageError{fmt.Errorf("--fix %q is no tool that fixes are known for: give one of %s", f.fix, tools[1:])}
	}
	if f.output != "text" && f.output != "json" {
		return usageError{fmt.Errorf("--output %q: give text or json", f.output)}
	}
	return nil
}

// runDiagnose prints the diagnosis; its error is the exit code when there is one.
func runDiagnose(ctx context.Context, out io.Writer, f diagnoseFlags) error {
	if err := f.validate(); err != nil {
		return err
	}
	name, err := f.name()
	if err != nil {
		return err
	}
	byHand, given, err := f.network.expected()
	if err != nil {
		return usageError{err}
	}
	node, services, apiErr := f.ask(ctx, name)
	expected := check.Expected{}
	switch {
	case given:
		expected = byHand
	case node != nil:
		expected = check.ExpectedOf(node.Annotations, contract.NodeIPs(node))
	default:
		expected.Unreached = apiErr.Error()
	}
	expected.Interface, expected.Uplink = f.iface, f.uplink
	targets := announcement.Targets(services)
	for _, t := range targets {
		expected.Virtual = append(expected.Virtual, t.Address)
	}
	document, err := examine(ctx, name, expected, targets)
	if err != nil {
		return fmt.Errorf("examine the node: %w", err)
	}
	if apiErr != nil {
		document.APIServer = apiErr.Error()
	}
	if err := f.print(out, document); err != nil {
		return err
	}
	if code := document.ExitCode(); code != diagnose.ExitOK {
		return exitCode(code)
	}
	return nil
}

func (f *diagnoseFlags) print(out io.Writer, document diagnose.Document) error {
	if f.output == "json" {
		return document.JSON(out)
	}
	return document.Text(out, check.Tool(f.fix))
}

// ask reads the Node and the Services. An API server that cannot be reached is no reason to give up: what can be judged
// without it is.
func (f *diagnoseFlags) ask(ctx context.Context, name string) (*corev1.Node, []*corev1.Service, error) {
	client, err := f.client()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("get Node %s: %w", name, err)
	}
	list, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return node, nil, fmt.Errorf("list Services: %w", err)
	}
	services := make([]*corev1.Service, len(list.Items))
	for i := range list.Items {
		services[i] = &list.Items[i]
	}
	return node, services, nil
}

// examine looks once at the kernel and the wire.
func examine(ctx context.Context, name string, expected check.Expected, targets []announcement.Target) (diagnose.Document, error) {
	reader, asker := netinfo.NewReader(), l2.NewAsker()
	snapshot, err := monitor.Look(ctx, reader, asker, expected)
	if err != nil {
		return diagnose.Document{}, err
	}
	report := check.Evaluate(expected, snapshot)
	view := announcement.View{Report: report, Snapshot: snapshot}
	document := diagnose.Document{
		SchemaVersion: diagnose.SchemaVersion, Node: name, Network: expected.Describe(),
		Renderer: snapshot.Renderer, Findings: report.Findings,
	}
	if len(targets) == 0 || report.Interface == "" {
		return document, nil
	}
	if unasked, broken := announcement.Unasked(report, targets); broken {
		document.Findings = append(document.Findings, unasked...)
		return document, nil
	}
	observations, err := announcement.Observe(ctx, asker, reader, view, targets)
	if err != nil {
		return diagnose.Document{}, err
	}
	for _, o := range observations {
		document.Findings = append(document.Findings, announcement.Judge(o))
	}
	return document, nil
}

// networkFlags describe the public network by hand, for a node whose API server cannot be reached.
type networkFlags struct {
	vlan      int
	blocks    []string
	addresses []string
}

func (f *networkFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.vlan, "network-vlan", 0, "VLAN ID of the public network, in place of what the controller published")
	flags.StringSliceVar(&f.blocks, "network-block", nil, "block of the network in CIDR notation, with --network-vlan; may be repeated. The gateway is its first usable address")
	flags.StringSliceVar(&f.addresses, "node-address", nil, "the node's own address in the network, with --network-vlan; may be repeated")
}

// expected returns the network that the flags describe; given is false when they describe none.
func (f *networkFlags) expected() (e check.Expected, given bool, err error) {
	if f.vlan == 0 {
		if len(f.blocks)+len(f.addresses) > 0 {
			return e, false, errors.New("--network-block and --node-address need --network-vlan")
		}
		return e, false, nil
	}
	e, err = check.ExpectedByHand(f.vlan, f.blocks, f.addresses)
	return e, true, err
}
