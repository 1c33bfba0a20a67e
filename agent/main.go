//go:build linux

// Command agent runs on every node: it checks the node's way to the public network and the announced addresses, says so
// on its Node, and explains it to a person.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	_ "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/version" // the version of go build
)

// exitCode is an error that is no more than the code to exit with: what there was to say has been said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// memoryLimit, in bytes, is what the Go runtime keeps below by collecting garbage more often, where the environment
// variable GOMEMLIMIT says nothing else: a list of many Services must not leave the agent large for ever. It idles at a
// quarter of it.
const memoryLimit = 32 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	command := newCommand() //nolint:contextcheck // cobra hands the context of ExecuteContext to the commands
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	var code exitCode
	var misuse usageError
	switch {
	case err == nil:
		return diagnose.ExitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &misuse):
		fmt.Fprintln(os.Stderr, "phoenixnap-agent:", err)
		return diagnose.ExitUsage
	default:
		fmt.Fprintln(os.Stderr, "phoenixnap-agent:", err)
		return diagnose.ExitFailed
	}
}

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func newCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "phoenixnap-agent",
		Short: "Checks a node's way to a phoenixNAP public network",
		Long: "Checks a node's way to a phoenixNAP public network.\n\nThe flags of run, and what diagnose has in " +
			"common with it, may also be given as environment variables:\n--node-name as PNAP_AGENT_NODE_NAME, and " +
			"--kubeconfig as KUBECONFIG. A flag takes precedence over the environment.",
		Version: version.Get().GitVersion,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q: give run, diagnose, cleanup or started", args[0])}
			}
			return nil
		},
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := checkPodFlags(c.Flags()); err != nil {
				return err
			}
			return fromEnvironment(c.Flags(), os.LookupEnv)
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	logging := flag.NewFlagSet("logging", flag.ContinueOnError)
	klog.InitFlags(logging)
	for _, name := range []string{"v", "vmodule"} {
		command.PersistentFlags().AddGoFlag(logging.Lookup(name))
	}
	command.AddCommand(newRunCommand(), newDiagnoseCommand(), newCleanupCommand(), newStartedCommand())
	return command
}

// fromEnvironment sets the flags that were not given from environment variables. Flags of diagnose that run does not
// have are given on the command line only.
func fromEnvironment(flags *pflag.FlagSet, lookUp func(string) (string, bool)) error {
	shared := map[string]bool{}
	newRunCommand().Flags().VisitAll(func(f *pflag.Flag) { shared[f.Name] = true })
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := variable(f.Name)
		value, set := lookUp(name)
		if f.Changed || !set || value == "" || !shared[f.Name] {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// environmentPrefix keeps a variable such as INTERFACE or MARK, which other software sets, from changing the agent.
const environmentPrefix = "PNAP_AGENT_"

// variable returns the environment variable of a flag. KUBECONFIG has no prefix, because kubectl and client-go read it,
// too.
func variable(flagName string) string {
	if flagName == "kubeconfig" {
		return "KUBECONFIG"
	}
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// nodeFlags are the flags that both commands have.
type nodeFlags struct {
	nodeName   string
	kubeconfig string
	iface      string
	uplink     string
}

func (f *nodeFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.nodeName, "node-name", "",
		"name of the Node that this machine is; in a pod, set it from spec.nodeName; the hostname when empty")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig file with the address of the API server and the credentials; in a pod, empty takes the pod's "+
			"ServiceAccount")
	flags.StringVar(&f.iface, "interface", "",
		"name of the VLAN interface; empty finds it by the VLAN ID of the network")
	flags.StringVar(&f.uplink, "uplink", "",
		"name of the interface that carries the server's VLANs; empty finds it by the address in the network, the "+
			"default route, or the only bond")
}

// name returns the Node's name.
func (f *nodeFlags) name() (string, error) {
	if f.nodeName != "" {
		return f.nodeName, nil
	}
	hostname, err := os.Hostname()
	if err != nil || hostname == "" {
		return "", usageError{errors.New("the hostname is not known: name the Node with --node-name")}
	}
	return strings.ToLower(hostname), nil
}

// client returns a client of the API server.
func (f *nodeFlags) client() (kubernetes.Interface, error) {
	return f.connect("", func(config *rest.Config) *rest.Config {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		return config
	})
}

// announcingClient returns a client that is only for the announcer: its requests wait behind no others.
func (f *nodeFlags) announcingClient() (kubernetes.Interface, error) {
	return f.connect(" announcer", store.ClientConfig)
}

// ipBlocks returns a client of the IPBlocks.
func (f *nodeFlags) ipBlocks() (*client.IPBlocks, error) {
	config, err := f.configured("")
	if err != nil {
		return nil, err
	}
	return client.New(config)
}

// connect returns a client as configured; part is appended to the name by which the API server knows it.
func (f *nodeFlags) connect(part string, configure func(*rest.Config) *rest.Config) (kubernetes.Interface, error) {
	config, err := f.configured(part)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(configure(config))
	if err != nil {
		return nil, fmt.Errorf("use %s: %w", f.kubeconfig, err)
	}
	return client, nil
}

// configured returns the configuration of a client.
func (f *nodeFlags) configured(part string) (*rest.Config, error) {
	config, err := f.restConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "phoenixnap-agent/" + version.Get().GitVersion + part
	return config, nil
}

func (f *nodeFlags) restConfig() (*rest.Config, error) {
	if f.kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("%w; name a kubeconfig with --kubeconfig", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err == nil && inCluster() {
		err = checkPodKubeconfig(f.kubeconfig, config)
	}
	return config, err
}
