package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/kubectl-pnap/overview"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/kubectl-pnap/podexec"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/kubectl-pnap/reading"
)

// diagnosis are the flags of the commands that ask an agent.
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
		Short: "Has the agent of a node explain what is wrong there, or with an address",
		Long: "Has the agent of a node explain what is wrong there, or with an address: phoenixnap-agent diagnose runs in the agent's pod. Nothing is changed.\n\n" +
			"Exit codes are the agent's: 0 all is well, 1 a check failed, 2 wrong usage, 3 something could not be determined.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown word %q: give node <name> or vip <address>", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	flags := command.PersistentFlags()
	flags.StringVar(&d.agentNamespace, "agent-namespace", metav1.NamespaceSystem, "namespace of the agents' DaemonSet")
	flags.StringVar(&d.fix, "fix", "", "tool that fixes are written for: netplan, networkmanager, ifupdown, networkd, iproute2; empty: the recognised one")
	flags.BoolVar(&d.strict, "strict", false, "let a warning end with exit code 1")
	command.AddCommand(d.newNodeCommand(), d.newVIPCommand())
	return command
}

func (d *diagnosis) newNodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "node <name>",
		Short:   "Explains what keeps a node from carrying traffic of the public network",
		Example: "  kubectl pnap diagnose node worker-1 --fix netplan",
		Args:    one("the name of one Node"),
		RunE:    func(c *cobra.Command, args []string) error { return d.run(c, args[0]) },
	}
}

func (d *diagnosis) newVIPCommand() *cobra.Command {
	var node string
	command := &cobra.Command{
		Use:   "vip <address>|<namespace>/<service>",
		Short: "Explains who answers for the address of a Service, and who should",
		Long: "Explains who answers for the address of a Service, and who should. The node that answers is asked; where none does, one that\n" +
			"may announce addresses; --node asks another.",
		Example: "  kubectl pnap diagnose vip 203.0.113.3\n  kubectl pnap diagnose vip shop/web --node worker-2",
		Args:    one("one address, or <namespace>/<service>"),
		RunE: func(c *cobra.Command, args []string) error {
			address, asked, err := d.locate(c.Context(), args[0], node)
			if err != nil {
				return err
			}
			return d.run(c, asked, "vip", address.String())
		},
	}
	command.Flags().StringVar(&node, "node", "", "Node whose agent is asked; empty: the one that answers")
	return command
}

func one(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usageError{fmt.Errorf("give %s, not %d words", what, len(args))}
		}
		return nil
	}
}

// run asks the agent of a Node.
func (d *diagnosis) run(c *cobra.Command, node string, words ...string) error {
	config, kube, err := d.connect()
	if err != nil {
		return err
	}
	config.Timeout = 0 // the agent looks for some seconds, and its connection is no request that could be late
	args := append([]string{"diagnose"}, words...)
	args = append(args, "--output="+d.output)
	if d.fix != "" {
		args = append(args, "--fix="+d.fix)
	}
	if d.strict {
		args = append(args, "--strict")
	}
	return podexec.Runner{Config: config, Kube: kube, Namespace: d.agentNamespace}.Run(c.Context(), node, args, c.OutOrStdout(), c.ErrOrStderr())
}

// locate finds the address, and the Node to ask about it.
func (d *diagnosis) locate(ctx context.Context, what, node string) (netip.Addr, string, error) {
	address, err := netip.ParseAddr(what)
	namespace, name, isService := strings.Cut(what, "/")
	switch {
	case err == nil && !address.Is4(), err != nil && !isService:
		return address, "", usageError{fmt.Errorf("%q is neither an IPv4 address nor <namespace>/<service>", what)}
	case err == nil && node != "":
		return address, node, nil
	}
	_, kube, connecting := d.connect()
	if connecting != nil {
		return address, "", connecting
	}
	facts, reads := reading.Read(ctx, kube, d.now)
	if reads != nil {
		return address, "", reads
	}
	o := overview.Make(facts)
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

// serviceOf finds a Service by its address, else by its name; nil when there is none.
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
		return netip.Addr{}, fmt.Errorf("no Service %s has an address of a phoenixNAP block, or you may not list Services: kubectl pnap status", what)
	}
	address, err := netip.ParseAddr(service.Address)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("service %s has no address yet: %s %s", what, service.State, service.Message())
	}
	return address, nil
}

// choose names the Node that answers for the address, else the first that may announce addresses, else the first.
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
		return "", fmt.Errorf("no Node can be asked: %s; name one with --node", strings.Join(append(o.Unreadable, "there is none"), "; "))
	}
	return o.Nodes[0].Name, nil
}
