// Command controller is the phoenixNAP cloud controller manager: it initialises Nodes and gives Services
// of type LoadBalancer public addresses.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the Kubernetes client
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric of the version
	"k8s.io/component-base/version/verflag"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/leader"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	_ "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/version" // the version of go build
)

const (
	program = "phoenixnap-cloud-controller-manager"
	// retryPeriod is how often the leader renews its Lease and, times 1 to 2.2, how often another replica
	// looks whether the Lease is free. With the framework's 2 s a change of the leader would take up to 4.4 s.
	retryPeriod = 750 * time.Millisecond
	// kubeQPS and kubeBurst are requests a second to the Kubernetes API, on average and at once. With the
	// framework's 20 and 30 it would take two minutes until a thousand Nodes that register at once are initialised.
	kubeQPS, kubeBurst = 100, 200
)

func main() { os.Exit(run()) }

func run() int {
	ctx := context.Background()
	lifecycle := newLifecycle(ctx)
	end := lifecycle.begin()
	loops := newLoops(lifecycle.ctx)
	command, err := newCommand(lifecycle, loops)
	if err == nil {
		err = cli.RunNoErrOutput(command)
	}
	end()
	loops.wait()
	lifecycle.release(ctx)
	var printed printedError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &printed):
		fmt.Fprintln(os.Stderr, "Error: "+err.Error())
	}
	return 1
}

// printedError is an error of the framework's command, which prints its errors itself.
type printedError struct{ error }

// newCommand is the framework's command with our defaults, flags and loops.
func newCommand(lifecycle *lifecycle, loops *loops) (*cobra.Command, error) {
	opts, err := newOptions()
	if err != nil {
		return nil, err
	}
	var sections cliflag.NamedFlagSets
	flags := sections.FlagSet("phoenixNAP")
	config.AddFlags(flags)
	// connected passes on what is built once the flags are parsed: the framework parses them, and then calls back for
	// the provider without a way to hand anything over.
	var connected atomic.Pointer[connection]
	provide := func(completed *appconfig.CompletedConfig) cloudprovider.Interface {
		return newControllers(lifecycle, connected.Load(), completed)
	}
	command := app.NewCloudControllerManagerCommand(opts, provide, loops.bind(constructors(loops)),
		names.CCMControllerAliases(), sections, lifecycle.ctx.Done())
	command.Use = program
	command.Long = "The phoenixNAP cloud controller manager initialises Nodes on phoenixNAP Bare Metal Cloud servers " +
		"and gives\nServices of type LoadBalancer public addresses."
	command.SilenceUsage = true
	if err := adaptHelp(command); err != nil {
		return nil, err
	}
	runFramework := command.RunE
	command.RunE = func(command *cobra.Command, args []string) error {
		verflag.PrintAndExitIfRequested() // before our own options are missed
		connection, err := configure(lifecycle.leadership, opts, flags)
		if err != nil {
			return err
		}
		connected.Store(connection)
		if err := runFramework(command, args); err != nil {
			return printedError{err}
		}
		return nil
	}
	return command, nil
}

// adaptHelp makes the default of --configure-cloud-routes false: the framework sets it to true when it defines the
// flag, whatever the options say.
func adaptHelp(command *cobra.Command) error {
	routes := command.Flags().Lookup("configure-cloud-routes")
	if err := routes.Value.Set("false"); err != nil {
		return fmt.Errorf("set the default of --%s: %w", routes.Name, err)
	}
	routes.DefValue = "false"
	routes.Usage = "Has no effect: phoenixNAP does not route pod networks."
	return nil
}

// newOptions returns the framework's options with defaults that fit phoenixNAP: there are no cloud
// routes, Nodes are served from one list of servers, so many may be initialised at a time, and changes
// of the public network are put in order by the balancer, so Services may be worked on side by side.
func newOptions() (*options.CloudControllerManagerOptions, error) {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return nil, fmt.Errorf("prepare options: %w", err)
	}
	opts.KubeCloudShared.CloudProvider.Name = contract.ProviderName
	opts.KubeCloudShared.ConfigureCloudRoutes = false
	opts.NodeController.ConcurrentNodeSyncs = 10
	opts.ServiceController.ConcurrentServiceSyncs = 5
	opts.Generic.ClientConnection.QPS = kubeQPS
	opts.Generic.ClientConnection.Burst = kubeBurst
	opts.Generic.LeaderElection.ResourceName = program
	opts.Generic.LeaderElection.RetryPeriod.Duration = retryPeriod
	return opts, nil
}

// configure reads our own options once all flags are parsed. It makes no calls over the network: a
// replica that waits for its election must not fail because the API is down.
func configure(leadership *leader.Leadership, opts *options.CloudControllerManagerOptions,
	flags *pflag.FlagSet) (*connection, error) {
	provider := opts.KubeCloudShared.CloudProvider
	if provider.Name != contract.ProviderName {
		return nil, fmt.Errorf("--cloud-provider=%s is another provider: set --cloud-provider=%s or leave it out",
			provider.Name, contract.ProviderName)
	}
	unknown := config.UnknownVariables(os.Environ())
	loaded, err := config.Load(provider.CloudConfigFile, flags, os.Getenv)
	if err != nil {
		for _, sentence := range unknown { // one of them may be why something is missing
			err = errors.Join(err, errors.New(sentence))
		}
		return nil, err
	}
	if err := checkKubeconfig(opts.Generic.ClientConnection.Kubeconfig, opts.Master); err != nil {
		return nil, err
	}
	loaded.Warnings = append(loaded.Warnings, unknown...)
	return connect(leadership, loaded)
}

// checkKubeconfig names the flag and the remedy; the framework names only the file.
func checkKubeconfig(path, master string) error {
	if path != "" {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w: set it to a file that this process can read, or leave it out in a pod",
				err)
		}
		return file.Close()
	}
	if master == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return errors.New("no --kubeconfig given, and this process does not run in a pod: set --kubeconfig to the " +
			"path of a kubeconfig file")
	}
	return nil
}
