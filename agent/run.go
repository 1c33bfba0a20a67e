//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/standby"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/listen"
)

type runFlags struct {
	nodeFlags
	manage                         manageFlags
	announce                       announceFlags
	interval, announcementInterval time.Duration
	metricsAddress                 string
	metricsPrivate                 bool
	kubeVIP                        kubeVIPFlags
}

func newRunCommand() *cobra.Command {
	var f runFlags
	command := &cobra.Command{
		Use:   "run",
		Short: "Watches this node and writes what it finds to its Node",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return runAgent(c.Context(), f) },
	}
	f.add(command.Flags())
	f.manage.add(command.Flags())
	f.announce.add(command.Flags())
	command.Flags().DurationVar(&f.interval, "interval", 10*time.Second,
		"time between checks when nothing changes; changes are seen at once")
	command.Flags().DurationVar(&f.announcementInterval, "announcement-interval", 10*time.Second,
		"time between look-ups of the announced addresses")
	f.kubeVIP.add(command.Flags())
	command.Flags().StringVar(&f.metricsAddress, "metrics-bind-address", "127.0.0.1:0",
		"address of /metrics, /healthz and /readyz; port 0 takes any free one, empty serves none")
	command.Flags().BoolVar(&f.metricsPrivate, listen.Flag, false,
		"serve metrics and health on the same port of the private addresses of this machine, too (RFC 1918, 4193, "+
			"6598)")
	return command
}

// announceFlags say how the agent announces addresses where the controller has it do so.
type announceFlags struct{ rebalance time.Duration }

// minRebalance is the minimum of --announcer-rebalance, and its default.
const minRebalance = time.Minute

func (f *announceFlags) add(flags *pflag.FlagSet) {
	flags.DurationVar(&f.rebalance, "announcer-rebalance", minRebalance,
		"minimum time between two moves of an address that only make the numbers of addresses of the nodes more even; "+
			"an address that moves loses its connections; 0 switches such moves off, and has to be given on all nodes")
}

func (f *announceFlags) check() error {
	if f.rebalance != 0 && f.rebalance < minRebalance {
		return usageError{fmt.Errorf("--announcer-rebalance %s: give %s or more, or 0 to move no address that way",
			f.rebalance, minRebalance)}
	}
	return nil
}

// runAgent builds the parts and runs them until ctx ends or one fails.
func runAgent(ctx context.Context, f runFlags) error {
	config, err := f.config()
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting", "node", config.Node, "version", config.Version)
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	config.Recorder = events.NewRecorder(scheme.Scheme,
		corev1.EventSource{Component: "phoenixnap-agent", Host: config.Node})
	group, ctx := errgroup.WithContext(ctx)
	for _, each := range []network.Part{network.New(config), startedReporter{config.Turn}} {
		group.Go(func() error { return each.Run(ctx) })
	}
	group.Go(func() error { return sendEvents(ctx, events, config.Client) })
	return group.Wait()
}

// config returns what the flags mean, without the recorder of events.
func (f *runFlags) config() (c network.Config, err error) {
	c.Options = network.Options{
		Version: version.Get().GitVersion, Interface: f.iface, Uplink: f.uplink, Interval: f.interval,
		AnnouncementInterval: f.announcementInterval, Rebalance: f.announce.rebalance, MetricsPrivate: f.metricsPrivate,
	}
	if c.Node, err = f.name(); err != nil {
		return c, err
	}
	if f.interval <= 0 || f.announcementInterval <= 0 {
		return c, usageError{errors.New("--interval and --announcement-interval must be positive")}
	}
	if err := f.manage.parse(&c.Options); err != nil {
		return c, err
	}
	if err := errors.Join(f.announce.check(), f.kubeVIP.check()); err != nil {
		return c, err
	}
	if c.Client, c.IPBlocks, err = f.clients(); err != nil {
		return c, err
	}
	if c.Announcing, err = f.announcingClient(); err != nil {
		return c, err
	}
	c.Announcers = f.kubeVIP.announcers(c.Client, c.Node)
	c.Turn = standby.New(f.metricsAddress)
	return c, nil
}

// sendEvents hands events to the API server until ctx ends. Events of cluster-wide objects live in the namespace
// default.
func sendEvents(ctx context.Context, events record.EventBroadcaster, client kubernetes.Interface) error {
	sink := events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	<-ctx.Done()
	sink.Stop()
	return nil
}
