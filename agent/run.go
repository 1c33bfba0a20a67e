package main

import (
	"context"
	"errors"
	"sync"
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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announcement"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/endpoint"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/l2"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/lease"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/monitor"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/netinfo"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/nodecond"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/nodewatch"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/station"
)

// staleFactor and staleFloor make the age of the last sample at which the agent calls itself dead.
const (
	staleFactor = 6
	staleFloor  = time.Minute
)

type runFlags struct {
	nodeFlags
	manage                         manageFlags
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
	command.Flags().DurationVar(&f.interval, "interval", 10*time.Second, "time between checks when nothing changes; changes are seen at once")
	command.Flags().DurationVar(&f.announcementInterval, "announcement-interval", 10*time.Second, "time between look-ups of the announced addresses")
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
	client, err := f.client()
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting", "node", name, "version", version.Get().GitVersion)

	metrics := endpoint.NewMetrics(version.Get().GitVersion, name)
	health := endpoint.NewHealth(max(staleFloor, staleFactor*f.interval), time.Now())
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	recorder := events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "phoenixnap-agent", Host: name})
	publisher := nodecond.New(client.CoreV1().Nodes(), name, nodecond.Recorder(recorder), metrics.Wrote)

	var st *station.Station
	watcher := nodewatch.New(client, name, func(node *corev1.Node) { st.ObserveNode(node) })
	reader, asker := netinfo.NewReader(), l2.NewAsker()
	mark, mask := managed.marks()
	st = station.New(station.Config{
		Interface: f.iface, Uplink: f.uplink, Mark: mark, Mask: mask, TableBase: managed.tableBase, Publisher: publisher, Services: watcher.Services, Metrics: metrics, Health: health,
	})
	samples := monitor.New(monitor.Config{
		Reader: reader, Asker: asker, Expected: st.Expected, Watch: netinfo.Watch, Interval: f.interval, Tell: st.Sample,
	})
	keepers := managed.keepers(st, asker, onNode(recorder, publisher.Observed))
	st.OnExpectation(func() {
		samples.Changed()
		wakeAll(keepers)
	})
	elections, owners := kubevip.NewReader(client.CoordinationV1(), f.kubeVIPNamespace), announcement.NewRoster(client.CoreV1().Nodes())
	addresses := announcement.New(announcement.Config{
		Node: name, Asker: asker, Router: reader, Elections: elections, Owners: owners, View: st.View, Services: watcher.Services,
		Reported: st.ReportedBefore, Interval: f.announcementInterval,
		Tell: st.Addresses, Report: st.Reported, Event: announcement.Recorder(recorder),
	})
	var seen sync.Once
	st.OnSample(func() {
		addresses.Wake()
		seen.Do(func() { wakeAll(keepers) })
	})
	elections.OnRead(addresses.Wake)
	owners.OnNews(addresses.Wake)
	listener := l2.NewListener(st.VLANInterface, addresses.Hear)
	life := &lease.Keeper{Leases: client.CoordinationV1().Leases(metav1.NamespaceSystem), NodeName: name, Node: publisher.Observed, OnRenew: metrics.Renewed}
	metrics.Ask(endpoint.Sources{ARP: listener.Counters, Addresses: addresses.Figures, Managed: func() []endpoint.Managed { return standing(keepers) }})

	group, ctx := errgroup.WithContext(ctx)
	for _, part := range []interface{ Run(context.Context) error }{
		watcher, publisher, samples, elections, owners, listener, addresses, life, endpoint.NewServer(f.metricsAddress, metrics, health),
	} {
		group.Go(func() error { return part.Run(ctx) })
	}
	for _, k := range keepers {
		group.Go(func() error { return k.Run(ctx) })
	}
	group.Go(func() error { return sendEvents(ctx, events, client) })
	return group.Wait()
}

// sendEvents hands events to the API server until ctx ends. Events of cluster-wide objects live in the namespace default.
func sendEvents(ctx context.Context, events record.EventBroadcaster, client kubernetes.Interface) error {
	sink := events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	<-ctx.Done()
	sink.Stop()
	return nil
}
