//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose/examine"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/nodewatch"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// defaultWatch is the interval of --watch without a value.
const defaultWatch = 10 * time.Second

type diagnoseFlags struct {
	nodeFlags
	network       networkFlags
	kubeVIP       kubeVIPFlags
	fix, output   string
	publicNetwork string
	timeout       time.Duration
	watch         time.Duration
	strict        bool
}

func newDiagnoseCommand() *cobra.Command {
	var f diagnoseFlags
	command := &cobra.Command{
		Use:   "diagnose",
		Short: "Checks this node once and explains what is wrong and how to fix it",
		Long: "Checks this node once and explains what is wrong and how to fix it. Nothing is changed.\n\n" +
			"Outside of a pod and without --kubeconfig or --vlan, the kubeconfig of the kubelet or of k3s is used. " +
			"If the API server cannot be read, the VLAN interface that the machine has is checked as it is.\n\n" +
			"Exit codes: 0 no check failed (warnings allowed, unless --strict), " +
			"1 a check failed, 2 wrong usage, 3 something could not be determined.",
		Example: "  phoenixnap-agent diagnose\n" +
			"  phoenixnap-agent diagnose --kubeconfig /etc/kubernetes/admin.conf\n" +
			"  phoenixnap-agent diagnose --vlan 56 --network 203.0.113.0/29 --gateway 203.0.113.1 --address " +
			"203.0.113.2",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			if _, err := time.ParseDuration(args[0]); err == nil {
				return usageError{fmt.Errorf("the interval of --watch is written --watch=%s", args[0])}
			}
			return usageError{fmt.Errorf("unknown word %q: give vip <address> or explain <finding>, or nothing",
				args[0])}
		},
		RunE: func(c *cobra.Command, _ []string) error { return runDiagnose(c, f, netip.Addr{}) },
	}
	f.add(command.PersistentFlags())
	command.AddCommand(newDiagnoseVIPCommand(&f), newExplainCommand())
	return command
}

func (f *diagnoseFlags) add(flags *pflag.FlagSet) {
	f.nodeFlags.add(flags)
	notInPods(flags, "kubeconfig", "node-name")
	f.network.add(flags)
	flags.StringVar(&f.publicNetwork, "public-network", "",
		"name of the PublicNetwork to examine, of those of the Node; empty: all, of which the one with the worst result "+
			"is shown")
	flags.StringVar(&f.fix, "fix", "",
		"tool that fixes are written for: netplan, networkmanager, ifupdown, networkd, iproute2; empty: the "+
			"recognised one")
	flags.StringVarP(&f.output, "output", "o", "text", "text, json or yaml")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for the API server")
	f.kubeVIP.add(flags)
	flags.BoolVar(&f.strict, "strict", false, "let a warning end with exit code 1")
	flags.DurationVar(&f.watch, "watch", 0,
		"look again at this interval and whenever the kernel reports a change, and print what changed, until "+
			"interrupted; without a value every 10s")
	flags.Lookup("watch").NoOptDefVal = defaultWatch.String()
}

func (f *diagnoseFlags) validate() error {
	tools := []string{"", string(check.Netplan), string(check.NetworkManager), string(check.Ifupdown),
		string(check.Networkd), string(check.IPRoute2)}
	switch {
	case !slices.Contains(tools, f.fix):
		return usageError{fmt.Errorf("--fix %q is no tool that fixes are known for: give one of %s", f.fix, tools[1:])}
	case !slices.Contains([]string{"text", "json", "yaml"}, f.output):
		return usageError{fmt.Errorf("--output %q: give text, json or yaml", f.output)}
	case f.watch < 0:
		return usageError{fmt.Errorf("--watch=%s: the interval must be positive", f.watch)}
	case f.timeout <= 0:
		return usageError{fmt.Errorf("--timeout %s: the time must be positive", f.timeout)}
	}
	return f.kubeVIP.check()
}

// runDiagnose prints the diagnosis, of one address where it is given; its error is the exit code when there is one.
func runDiagnose(c *cobra.Command, f diagnoseFlags, address netip.Addr) error {
	if err := f.validate(); err != nil {
		return err
	}
	look, err := f.look(address)
	if err != nil {
		return err
	}
	show := presenter{flags: f, out: c.OutOrStdout(), style: diagnose.StyleFor(c.OutOrStdout(), os.LookupEnv)}
	if f.watch > 0 {
		return watchDiagnosis(c.Context(), look, show)
	}
	document, err := look(c.Context())
	if err != nil {
		return undetermined(c.ErrOrStderr(), err)
	}
	return ended(document.ExitCode(f.strict), show.document(document))
}

// ended makes the error that a command ends with.
func ended(code int, err error) error {
	switch {
	case err != nil:
		return err
	case code != diagnose.ExitOK:
		return exitCode(code)
	default:
		return nil
	}
}

// undetermined says why there is no diagnosis: nothing failed, so the exit code is another. The words of the error may
// be the API server's, or hold names of interfaces.
func undetermined(w io.Writer, err error) error {
	if _, err := fmt.Fprintln(w, "phoenixnap-agent:", text.Clean(err.Error())); err != nil {
		return err
	}
	return exitCode(diagnose.ExitUndetermined)
}

// presenter writes diagnoses as the flags say.
type presenter struct {
	flags diagnoseFlags
	out   io.Writer
	style diagnose.Style
}

func (p presenter) document(d diagnose.Document) error {
	switch p.flags.output {
	case "json":
		return d.JSON(p.out)
	case "yaml":
		return d.YAML(p.out)
	default:
		return d.Text(p.out, p.style, check.Tool(p.flags.fix))
	}
}

// change writes a diagnosis under a line for each change; programs get only the documents.
func (p presenter) change(d diagnose.Document, changes []string) error {
	if p.flags.output == "text" {
		if err := diagnose.Heading(p.out, p.style, d, changes); err != nil {
			return err
		}
	}
	return p.document(d)
}

// watchDiagnosis diagnoses until ctx ends, and ends with the exit code of the last diagnosis.
func watchDiagnosis(ctx context.Context, look func(context.Context) (diagnose.Document, error), show presenter) error {
	changed := loop.NewWake()
	watching, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- netstate.Watch(watching, changed.Signal) }()
	last, err := diagnose.Watcher{Interval: show.flags.watch, Changed: changed, Look: look, Show: show.change}.Run(ctx)
	stop()
	return ended(last.ExitCode(show.flags.strict), errors.Join(err, <-done))
}

// look returns what diagnoses once: the node, or one address where it is valid.
func (f *diagnoseFlags) look(address netip.Addr) (func(context.Context) (diagnose.Document, error), error) {
	config, err := f.examination()
	if err != nil {
		return nil, err
	}
	examiner := examine.New(config)
	if !address.IsValid() {
		return examiner.Examine, nil
	}
	return func(ctx context.Context) (diagnose.Document, error) { return examiner.ExamineAddress(ctx, address) }, nil
}

func (f *diagnoseFlags) examination() (c examine.Config, err error) {
	if c.Node, err = f.name(); err != nil {
		return c, err
	}
	byHand, given, err := f.network.expected()
	if err != nil {
		return c, usageError{err}
	}
	if given {
		c.ByHand = &byHand
	}
	c.Network = f.publicNetwork
	c.Interface = f.iface
	c.Uplink = f.uplink
	c.Timeout = f.timeout
	c.KubeVIPLease = f.kubeVIP.key()
	c.Reader = netstate.NewReader()
	c.Prober = arp.NewProber()
	switch {
	case f.kubeconfig != "" || inCluster():
		c.Client, c.IPBlocks, c.NoClient = f.clients()
	case !given:
		c.Client, c.IPBlocks, c.NoClient = f.clientsOf(nodeKubeconfigs())
	}
	return c, nil
}

// clients returns a client of the API server and one of its IPBlocks, both nil with an error.
func (f *nodeFlags) clients() (kubernetes.Interface, nodewatch.BlockSource, error) {
	client, err := f.client()
	if err != nil {
		return nil, nil, err
	}
	ipBlocks, err := f.ipBlocks()
	if err != nil {
		return nil, nil, err
	}
	return client, ipBlocks, nil
}

// nodeKubeconfigs are the kubeconfigs that a node has: those of the kubelets of kubeadm, k3s and RKE2, and those of
// administrators of k3s and RKE2.
func nodeKubeconfigs() []string {
	return []string{"/etc/kubernetes/kubelet.conf", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
		"/var/lib/rancher/rke2/agent/kubelet.kubeconfig", "/etc/rancher/k3s/k3s.yaml", "/etc/rancher/rke2/rke2.yaml"}
}

// clientsOf returns clients by the first of the kubeconfigs that exists and can be used.
func (f *diagnoseFlags) clientsOf(kubeconfigs []string) (kubernetes.Interface, nodewatch.BlockSource, error) {
	var errs []error
	for _, path := range kubeconfigs {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found := f.nodeFlags
		found.kubeconfig = path
		client, ipBlocks, err := found.clients()
		if err == nil {
			return client, ipBlocks, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", path, err))
	}
	if errs == nil {
		return nil, nil, fmt.Errorf("this is no pod, and there is no kubeconfig: none of %s exists",
			strings.Join(kubeconfigs, ", "))
	}
	return nil, nil, errors.Join(errs...)
}

// networkFlags describe the public network by hand, for a node whose API server cannot be reached.
type networkFlags struct {
	vlan      int
	networks  []string
	gateways  []string
	addresses []string
}

func (f *networkFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.vlan, "vlan", 0, "VLAN ID of the public network, in place of what the controller published")
	flags.StringSliceVar(&f.networks, "network", nil,
		"block of the network in CIDR notation, with --vlan; may be repeated")
	flags.StringSliceVar(&f.gateways, "gateway", nil,
		"gateway of one of the blocks, with --network; may be repeated. The first usable address of a block when not "+
			"given")
	flags.StringSliceVar(&f.addresses, "address", nil,
		"the node's own address in the network, with --vlan; may be repeated")
}

// expected returns the network that the flags describe; given is false when they describe none.
func (f *networkFlags) expected() (e check.Expected, given bool, err error) {
	if f.vlan == 0 {
		if len(f.networks)+len(f.gateways)+len(f.addresses) > 0 {
			return e, false, errors.New("--network, --gateway and --address need --vlan")
		}
		return e, false, nil
	}
	if e, err = check.ExpectedByHand(f.vlan, f.networks, f.addresses); err != nil {
		return e, false, err
	}
	for _, raw := range f.gateways {
		if err := setGateway(&e, raw); err != nil {
			return e, false, err
		}
	}
	return e, true, nil
}

// setGateway makes an address the gateway of the block that it lies in.
func setGateway(e *check.Expected, raw string) error {
	gateway, err := netip.ParseAddr(raw)
	if err != nil {
		return fmt.Errorf("--gateway %q is no IP address: %w", raw, err)
	}
	for i, b := range e.Network.Blocks {
		if b.CIDR.Contains(gateway) {
			if slices.Contains(e.Network.IPs, gateway) {
				return fmt.Errorf("--gateway %s is the node's own --address, too", gateway)
			}
			e.Network.Blocks[i].Gateway = gateway
			return nil
		}
	}
	return fmt.Errorf("--gateway %s lies in none of the blocks given with --network", gateway)
}

func newDiagnoseVIPCommand(f *diagnoseFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "vip <address>",
		Short: "Shows who answers for the address of a Service, who should, and what this node has to do with it",
		Long: "Shows who answers for the address of a Service, who should, and what this node has to do with it. " +
			"Nothing is changed.\n\n" +
			"The flags and exit codes are those of diagnose.",
		Example: "  phoenixnap-agent diagnose vip 203.0.113.3\n" +
			"  phoenixnap-agent diagnose vip 203.0.113.3 --vlan 56 --network 203.0.113.0/29 --address 203.0.113.2",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("give one address, not %d", len(args))}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			address, err := netip.ParseAddr(args[0])
			if err != nil || !address.Is4() {
				return usageError{fmt.Errorf("%q is no IPv4 address: give that of a Service, such as 203.0.113.3",
					args[0])}
			}
			return runDiagnose(c, *f, address)
		},
	}
}

// newExplainCommand makes the command that explains a finding without the documentation.
func newExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "explain <finding>...",
		Short:   "Explains what a finding such as PN301 means, what usually causes it and how to fix it",
		Example: "  phoenixnap-agent diagnose explain PN301",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("name a finding, such as %s", check.GatewayAnswers)}
			}
			style := diagnose.StyleFor(c.OutOrStdout(), os.LookupEnv)
			for _, arg := range args {
				entry, ok := diagnose.EntryOf(check.ID(strings.ToUpper(arg)))
				if !ok {
					return usageError{fmt.Errorf("%q is no finding: they are PN000 to PN609, see the output of "+
						"diagnose", arg)}
				}
				if err := entry.Text(c.OutOrStdout(), style); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
