// Command kubectl-pnap is a kubectl plugin that shows what the phoenixNAP cloud provider does in a cluster, with the
// permissions of the user and without phoenixNAP credentials.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/exec"
	"k8s.io/component-base/version"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/kubectl-pnap/overview"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
	_ "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/version" // the version of go build
)

// Exit codes, which are those of phoenixnap-agent diagnose.
const (
	exitProblems     = 1
	exitUsage        = 2
	exitUndetermined = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	command := newCommand(os.LookupEnv, time.Now)
	command.SetArgs(argumentsOf(os.Args))
	err := command.ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(os.Stderr, err))
}

// exitCode prints the error, unless the agent already did, and returns the exit code. The text of an error may come
// from the API server or from a kubelet.
func exitCode(w io.Writer, err error) int {
	var ended exec.CodeExitError
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.Code
	case errors.Is(err, errProblems):
		return exitProblems
	}
	_, _ = fmt.Fprintln(w, "kubectl pnap:", text.Clean(err.Error()))
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitUndetermined
}

// defaultTimeout bounds each request, unless --request-timeout is set.
const defaultTimeout = 30 * time.Second

// allCommands are the commands of the plugin.
const allCommands = "status, diagnose node <name>, diagnose vip <address> or version"

// usageError is an error in the command line.
type usageError struct{ error }

var (
	// errProblems ends a command that shows problems. They are its output, so the error is not printed.
	errProblems = errors.New("there are problems")
	// errUnreadable ends a command that shows no problem, and could not read everything.
	errUnreadable = errors.New("not everything could be read, see the problems")
)

// plugin is what the commands have in common.
type plugin struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	output     string
	lookUp     func(string) (string, bool)
	now        func() time.Time
}

// newCommand returns the command. lookUp reads the environment; now is the clock.
func newCommand(lookUp func(string) (string, bool), now func() time.Time) *cobra.Command {
	p := &plugin{lookUp: lookUp, now: now}
	command := &cobra.Command{
		Use:   "kubectl-pnap",
		Short: "Shows what the phoenixNAP cloud provider does in this cluster",
		Long: "Shows what the phoenixNAP cloud provider does in this cluster, " +
			"with your own permissions and without phoenixNAP credentials.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl pnap"},
		Version:       version.Get().GitVersion,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments(allCommands),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		// Completion is that of kubectl: see completer.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	p.add(command.PersistentFlags())
	command.AddCommand(p.newStatusCommand(), p.newDiagnoseCommand(), p.newVersionCommand())
	completeFlag(command, "output", fixed(outputs...))
	return command
}

// noArguments rejects arguments; commands are what to use instead.
func noArguments(commands string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError{fmt.Errorf("unknown argument %q: use %s", args[0], commands)}
		}
		return nil
	}
}

func (p *plugin) add(flags *pflag.FlagSet) {
	flags.StringVar(&p.kubeconfig, "kubeconfig", "",
		"path to the kubeconfig file; if empty, $KUBECONFIG or ~/.kube/config is used, as by kubectl")
	clientcmd.BindOverrideFlags(&p.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.StringVarP(&p.output, "output", "o", outputText, "output format: text, json or yaml")
}

// Formats of --output.
const (
	outputText = "text"
	outputJSON = "json"
	outputYAML = "yaml"
)

// outputs are the values of --output.
var outputs = []string{outputText, outputJSON, outputYAML}

// checkOutput rejects other values of --output.
func (p *plugin) checkOutput() error {
	if !slices.Contains(outputs, p.output) {
		return usageError{fmt.Errorf("--output %q: must be text, json or yaml", p.output)}
	}
	return nil
}

// connect returns the configuration and the client for the API server.
func (p *plugin) connect() (*rest.Config, kubernetes.Interface, error) {
	if err := p.checkOutput(); err != nil {
		return nil, nil, err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &p.overrides).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("find the API server: %w; set --kubeconfig", err)
	}
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	config.UserAgent = "kubectl-pnap/" + version.Get().GitVersion
	client, err := kubernetes.NewForConfig(config)
	return config, client, err
}

// exitCodes is the end of the help of the commands that read the cluster.
const exitCodes = "\n\nExit codes: 0 no problem, 1 a problem, 2 wrong usage, 3 no problem found, but something could " +
	"not be determined, for example because the API server does not answer or a permission is missing."

func (p *plugin) newStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Shows problems, nodes with their servers, Services with their addresses, and IP blocks",
		Long: "Shows problems, the most fundamental first, and then nodes with their servers, Services with their " +
			"addresses, and IP blocks with their use." + exitCodes,
		Example: "  kubectl pnap status\n  kubectl pnap status -o json | jq '.services[] | select(.healthy | not)'",
		Args:    noArguments(allCommands),
		RunE:    func(c *cobra.Command, _ []string) error { return p.show(c) },
	}
}

// overview reads the cluster.
func (p *plugin) overview(ctx context.Context) (overview.Overview, error) {
	config, kube, err := p.connect()
	if err != nil {
		return overview.Overview{}, err
	}
	blocks, err := client.New(config)
	if err != nil {
		return overview.Overview{}, err
	}
	networks, err := client.NewPublicNetworks(config)
	if err != nil {
		return overview.Overview{}, err
	}
	facts, err := read(ctx, kube, blocks, networks, p.now)
	return overview.Make(facts), err
}

// show reads the cluster and prints it: as JSON, as YAML or as tables. The problems decide the exit code.
func (p *plugin) show(c *cobra.Command) error {
	o, err := p.overview(c.Context())
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	if p.output == outputText {
		err = overview.PrintStatus(out, overview.StyleFor(out, p.lookUp), o)
	} else {
		err = p.encode(out, o)
	}
	if err != nil {
		return err
	}
	return verdict(o.Problems)
}

// encode writes a document for programs.
func (p *plugin) encode(out io.Writer, document any) error {
	raw, err := json.MarshalIndent(document, "", "  ")
	if err == nil && p.output == outputYAML {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p.output, err)
	}
	_, err = fmt.Fprintln(out, strings.TrimSuffix(string(raw), "\n"))
	return err
}

// verdict returns the error that a command ends with: a problem outweighs what could not be determined.
func verdict(problems []overview.Problem) error {
	var err error
	for _, problem := range problems {
		if !problem.Undetermined {
			return errProblems
		}
		err = errUnreadable
	}
	return err
}
