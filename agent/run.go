//go:build linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

type runFlags struct {
	nodeFlags
	manage                         manageFlags
	announce                       announceFlags
	interval, announcementInterval time.Duration
	metricsAddress                 string
	kubeVIPNamespace               string
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
	command.Flags().StringVar(&f.kubeVIPNamespace, "kube-vip-namespace", metav1.NamespaceSystem,
		"namespace in which kube-vip runs; its lease is there where it has one for all Services")
	command.Flags().StringVar(&f.metricsAddress, "metrics-bind-address", "127.0.0.1:0",
		"address of /metrics, /healthz and /readyz; port 0 takes any free one, empty serves none")
	return command
}

// runAgent builds the parts and runs them until ctx ends or one fails.
func runAgent(ctx context.Context, f runFlags) error {
	name, err := f.name()
	if err != nil {
		return err
	}
	if f.interval <= 0 || f.announcementInterval <= 0 {
		return usageError{errors.New("--interval and --announcement-interval must be positive")}
	}
	managed, err := f.manage.parse()
	if err != nil {
		return err
	}
	if err := f.announce.check(); err != nil {
		return err
	}
	clients, err := f.clients()
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting", "node", name, "version", version.Get().GitVersion)
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	recorder := events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "phoenixnap-agent", Host: name})
	parts := newParts(newShared(name, f, managed, clients.main, recorder), managed, clients.views)

	group, ctx := errgroup.WithContext(ctx)
	for _, each := range parts {
		group.Go(func() error { return each.Run(ctx) })
	}
	group.Go(func() error { return sendEvents(ctx, events, clients.main) })
	return group.Wait()
}

// sendEvents hands events to the API server until ctx ends. Events of cluster-wide objects live in the namespace
// default.
func sendEvents(ctx context.Context, events record.EventBroadcaster, client kubernetes.Interface) error {
	sink := events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	<-ctx.Done()
	sink.Stop()
	return nil
}
