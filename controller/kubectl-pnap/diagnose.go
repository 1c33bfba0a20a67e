package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/kubectl-pnap/overview"
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
		RunE:    func(c *cobra.Command, args []string) error { return d.run(c, args[0]) },
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
			return d.run(c, target, "vip", address.String())
		},
	}
	command.Flags().StringVar(&node, "node", "", "Node whose agent is queried; if empty, the one that answers")
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

// run runs the diagnosis of the agent of a Node.
func (d *diagnosis) run(c *cobra.Command, node string, arguments ...string) error {
	config, kube, err := d.connect()
	if err != nil {
		return err
	}
	config.Timeout = 0 // the stream stays open until the agent is done, which takes some seconds
	args := append([]string{"diagnose"}, arguments...)
	args = append(args, "--output="+d.output)
	if d.fix != "" {
		args = append(args, "--fix="+d.fix)
	}
	if d.strict {
		args = append(args, "--strict")
	}
	pod, err := agentOn(c.Context(), kube, d.agentNamespace, node)
	if err != nil {
		return err
	}
	return execute(c.Context(), config, kube, pod, args, c.OutOrStdout(), c.ErrOrStderr())
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
	if err != nil {
		return address, "", err
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
		reasons := append(slices.Clone(o.Unreadable), "no Node exists")
		return "", fmt.Errorf("no Node can be queried: %s; set --node", strings.Join(reasons, "; "))
	}
	return o.Nodes[0].Name, nil
}
