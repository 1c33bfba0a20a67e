//go:build linux

package main

import (
	"context"
	"errors"
	"slices"
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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/standby"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/conditions"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/lease"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/metricsserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/nodestate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/nodewatch"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kinds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/listen"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
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
	if err := errors.Join(f.announce.check(), f.kubeVIP.check()); err != nil {
		return err
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	announcing, err := f.announcingClient()
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting", "node", name, "version", version.Get().GitVersion)
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	recorder := events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "phoenixnap-agent", Host: name})
	parts := newParts(newShared(name, f, managed, client, recorder), managed, announcing)

	group, ctx := errgroup.WithContext(ctx)
	for _, each := range parts {
		group.Go(func() error { return each.Run(ctx) })
	}
	group.Go(func() error { return sendEvents(ctx, events, client) })
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

// staleFactor and staleFloor make the age of the last sample at which the agent calls itself dead.
const (
	staleFactor = 6
	staleFloor  = time.Minute
)

// part is something that runs until its context ends.
type part interface {
	Run(ctx context.Context) error
}

// wakes wake the loops of the agent. They exist before the parts that run these loops: parts wake each other.
type wakes struct {
	samples, addresses     loop.Wake
	localHealth, announcer loop.Wake
	lease                  loop.Wake
	vlan, returnPath       loop.Wake
}

func newWakes() wakes {
	return wakes{
		samples: loop.NewWake(), addresses: loop.NewWake(), localHealth: loop.NewWake(), announcer: loop.NewWake(),
		lease: loop.NewWake(),
		vlan:  loop.NewWake(), returnPath: loop.NewWake(),
	}
}

// announce says that what this node announces may have to change.
func (w wakes) announce() {
	w.localHealth.Signal()
	w.announcer.Signal()
}

// manage says that what is managed may have to change.
func (w wakes) manage() {
	w.vlan.Signal()
	w.returnPath.Signal()
}

// onServices follows a change of Services.
func (w wakes) onServices() {
	w.announce()
	w.addresses.Signal()
}

// onExpectation follows a change of what to expect of the node.
func (w wakes) onExpectation() {
	w.samples.Signal()
	w.manage()
	w.announce()
}

// onSample returns what follows each sample. Until the first one, what is managed waits to know which machine this is.
func (w wakes) onSample() func() {
	first := sync.OnceFunc(w.manage)
	return func() {
		w.addresses.Signal()
		w.announce()
		first()
	}
}

// shared is what all parts of the agent use: the way to the API server, what is known of the node, and what is
// reported.
type shared struct {
	name      string
	flags     runFlags
	client    kubernetes.Interface
	recorder  record.EventRecorder
	wakes     wakes
	turn      *standby.Turn
	metrics   *metricsserver.Metrics
	health    *metricsserver.Health
	publisher *conditions.Publisher
	services  *nodewatch.ServiceWatcher
	state     *nodestate.NodeState
	node      *nodewatch.NodeWatcher
	reader    *netstate.Reader
	prober    *arp.Prober
	gateways  arp.Neighbors
}

// newShared returns what follows a Node and the Services, and writes what is found to the Node. It starts nothing.
func newShared(name string, f runFlags, managed managing, client kubernetes.Interface,
	recorder record.EventRecorder) *shared {
	wakes := newWakes()
	metrics := metricsserver.NewMetrics(version.Get().GitVersion, name)
	health := metricsserver.NewHealth(max(staleFloor, staleFactor*f.interval), time.Now())
	publisher := conditions.New(client.CoreV1().Nodes(), name, conditions.Recorder(recorder), metrics.Wrote)
	services := nodewatch.NewServiceWatcher(client, wakes.onServices)
	mark, mask := managed.marks()
	state := nodestate.New(nodestate.Config{
		Interface: f.iface, Uplink: f.uplink, Mark: mark, Mask: mask, TableBase: managed.tableBase,
		Publisher: publisher, Services: services.Services, Metrics: metrics, Health: health,
		OnExpectation: wakes.onExpectation, OnSample: wakes.onSample(),
	})
	return &shared{
		name: name, flags: f, client: client, recorder: recorder, wakes: wakes, turn: standby.New(f.metricsAddress),
		metrics: metrics, health: health,
		publisher: publisher, services: services, state: state,
		node:   nodewatch.NewNodeWatcher(client, name, state.ObserveNode),
		reader: netstate.NewReader(), prober: arp.NewProber(),
	}
}

// newParts returns all parts of the agent, each built of those before it. It starts nothing.
func newParts(s *shared, managed managing, client kubernetes.Interface) []part {
	samples := sampler.New(sampler.Config{
		Reader: s.reader, Prober: s.prober, Expected: s.state.Expected, Watch: s.reader.Watch,
		Interval: s.flags.interval,
		Record:   s.state.Sample, Signals: s.wakes.samples,
	})
	reconcilers, states := managed.reconcilers(s)
	announcer, announcing := newAnnouncer(s, client)
	verifying, sources := newVerifier(s, announcer)
	sources.Managed = states
	renewer := &lease.Renewer{
		Leases: s.client.CoordinationV1().Leases(metav1.NamespaceSystem), NodeName: s.name, Node: s.publisher.Observed,
		Isolated: func() bool { return announcer.speaker.State().Isolated }, Wake: s.wakes.lease,
		OnRenew: s.metrics.Renewed,
	}
	server := metricsserver.NewServer(s.turn, s.metrics, sources, s.health)
	server.Private = s.flags.metricsPrivate
	acting := slices.Concat([]part{s.publisher}, reconcilers, verifying, []part{renewer})
	for i, each := range acting {
		acting[i] = afterPredecessor{each, s.turn}
	}
	return slices.Concat([]part{s.services, s.node, samples}, announcing, acting,
		[]part{server, startedReporter{s.turn}})
}

// newVerifier returns the parts that judge the announcement of addresses, each time that the node was judged, too.
func newVerifier(s *shared, a *announcer) ([]part, metricsserver.Sources) {
	elections := kubevip.NewReader(s.client.CoordinationV1(), s.flags.kubeVIP.key(), s.name,
		s.wakes.addresses.Signal)
	owners := vip.NewMACTable(s.client.CoreV1().Nodes(), s.wakes.addresses.Signal)
	addresses := vip.New(vip.Config{
		Node: s.name, Prober: s.prober, Router: s.reader, Announcers: kinds.All(elections.Of), Owners: owners.Of,
		View: a.view, Services: s.services.Services, Reported: s.state.ReportedBefore,
		Interval: s.flags.announcementInterval,
		Record:   a.recordAddresses, Report: s.state.Reported, Event: vip.Recorder(s.recorder),
		Signals: s.wakes.addresses,
	})
	listener := arp.NewListener(s.state.VLANInterface, addresses.Hear)
	sources := metricsserver.Sources{ARP: listener.Counters, Addresses: addresses.Figures, Announcer: a.figures}
	return []part{elections, owners, listener, addresses}, sources
}
