//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// defaultWatch is the interval of --watch without a value.
const defaultWatch = 10 * time.Second

type diagnoseFlags struct {
	nodeFlags
	network          networkFlags
	fix, output      string
	kubeVIPNamespace string
	timeout          time.Duration
	watch            time.Duration
	strict, npd      bool
}

func newDiagnoseCommand() *cobra.Command {
	var f diagnoseFlags
	command := &cobra.Command{
		Use:   "diagnose",
		Short: "Checks this node once and explains what is wrong and how to fix it",
		Long: "Checks this node once and explains what is wrong and how to fix it. Nothing is changed.\n\n" +
			"Exit codes: 0 no check failed (warnings allowed, unless --strict), " +
			"1 a check failed, 2 wrong usage, 3 something could not be determined.",
		Example: "  phoenixnap-agent diagnose --kubeconfig /etc/kubernetes/kubelet.conf\n" +
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
	f.network.add(flags)
	flags.StringVar(&f.fix, "fix", "",
		"tool that fixes are written for: netplan, networkmanager, ifupdown, networkd, iproute2; empty: the "+
			"recognised one")
	flags.StringVarP(&f.output, "output", "o", "text", "text, json or yaml")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for the API server")
	flags.StringVar(&f.kubeVIPNamespace, "kube-vip-namespace", metav1.NamespaceSystem,
		"namespace that kube-vip runs in: its lease for all Services is there")
	flags.BoolVar(&f.strict, "strict", false, "let a warning end with exit code 1")
	flags.BoolVar(&f.npd, "npd", false,
		"write one line and exit as a plugin of node-problem-detector: 0 well, 1 problem, 2 unknown")
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
	case f.npd && (f.watch > 0 || f.output != "text"):
		return usageError{errors.New("--npd writes one line once: it goes with neither --watch nor --output")}
	}
	return nil
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
	if f.npd {
		code, err := document.NPD(c.OutOrStdout())
		return ended(code, err)
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
