//go:build linux

package network

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/conditions"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/lease"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/metricsserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/nodewatch"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Supervisor runs one Runtime for each public network that the Node lists, and what exists once for the Node.
type Supervisor struct {
	*node
	parts []Part
	path  *returnpath.Reconciler // nil while the return path is not managed
	// wake says that the list may have changed, or that a Runtime has ended.
	wake loop.Wake

	mu sync.Mutex
	// runtimes are those that run or end, by the ID of their network.
	runtimes map[string]*running
	// listed are the IDs of the networks in the order of the list, expected what the Node says of each, of which it has
	// annotations. known reports whether the Node was read.
	listed      []string
	expected    map[string]check.Expected
	annotations map[string]string
	known       bool
}

// running is a Runtime with its end.
type running struct {
	*Runtime
	end context.CancelFunc
	// ending is set when end was called, released when another agent may continue in place of it.
	ending, released bool
}

// New returns a Supervisor. It starts nothing.
func New(config Config) *Supervisor {
	metrics := metricsserver.NewMetrics()
	s := &Supervisor{wake: loop.NewWake(), runtimes: map[string]*running{}}
	client := config.Client
	publisher := conditions.New(client.CoreV1().Nodes(), config.Node, conditions.Recorder(config.Recorder),
		metrics.Wrote)
	onServices := func() { s.each(func(r *Runtime) { r.wakes.onServices() }) }
	onAddresses := func() { s.each(func(r *Runtime) { r.wakes.addresses.Signal() }) }
	s.node = &node{
		Config: config, publisher: publisher, summary: newSummary(publisher),
		services: nodewatch.NewServiceWatcher(client, onServices),
		blocks: nodewatch.NewBlockWatcher(config.IPBlocks, onServices,
			func() { s.each(func(r *Runtime) { r.wakes.onExpectation() }) }),
		owners:  vip.NewMACTable(client.CoreV1().Nodes(), onAddresses),
		journal: &ownership.Journal{}, lease: loop.NewWake(), returnPath: loop.NewWake(),
		release: s.release, territory: s.territory, reportedBefore: s.reportedBefore,
	}
	s.watcher = nodewatch.NewNodeWatcher(client, config.Node, s.observe)
	announcers, reader := config.Announcers(onAddresses)
	s.announcers = announcers
	config.Turn.Warm = s.warm
	server := metricsserver.NewServer(config.Turn, metrics, s, s)
	server.Private = config.MetricsPrivate
	renewer := &lease.Renewer{
		Leases: client.CoordinationV1().Leases(metav1.NamespaceSystem), NodeName: config.Node,
		Node: publisher.Observed, Isolated: s.isolated, Wake: s.lease, OnRenew: metrics.Renewed,
	}
	acting := []Part{publisher, reader, s.owners, renewer}
	if config.ManageReturnPath {
		s.path = s.newReturnPath()
		acting = append(acting, s.path)
	}
	s.parts = slices.Concat([]Part{s.services, s.blocks, s.watcher, server}, s.acting(acting...))
	return s
}

// newReturnPath returns what keeps the way of replies. It is one, because marks, rules and the packet filter are the
// machine's.
func (s *Supervisor) newReturnPath() *returnpath.Reconciler {
	return returnpath.New(returnpath.Config{
		Expected: s.managed, Bits: s.Bits, Journal: s.journal, BlockedReason: s.blockedReason,
		Watches: []func(context.Context, func()) error{netstate.Watch, returnpath.WatchTable},
		Record:  func(n returnpath.Notice) { s.recordOnNode(n.Warning, n.Reason, n.Message) },
		Signals: s.returnPath,
	})
}

// Run works until ctx ends or something fails.
func (s *Supervisor) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	s.ended = ctx.Done()
	for _, each := range s.parts {
		group.Go(func() error { return each.Run(ctx) })
	}
	group.Go(func() error {
		for {
			s.supervise(ctx, group)
			if !s.wake.Await(ctx) {
				return nil
			}
		}
	})
	return group.Wait()
}

// supervise starts and ends Runtimes as the list says, and gives all what to expect.
func (s *Supervisor) supervise(ctx context.Context, group *errgroup.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ending := map[string]bool{}
	for id, r := range s.runtimes {
		ending[id] = r.ending
	}
	change := desired(s.listed, ending)
	for _, id := range change.stop {
		s.runtimes[id].ending = true
		s.runtimes[id].end()
	}
	s.setNetworks(change)
	for _, id := range change.start {
		s.start(ctx, group, id)
	}
	if !s.known {
		return
	}
	for id, r := range s.runtimes {
		if r.ending {
			continue
		}
		e, published := s.expected[id]
		if !published {
			e = s.expected[""]
		}
		r.state.Expect(e)
	}
}

// setNetworks says which networks report, the first one of the list first.
func (s *Supervisor) setNetworks(c change) {
	ids := slices.Concat(c.keep, c.start)
	slices.SortFunc(ids, func(a, b string) int { return slices.Index(s.listed, a) - slices.Index(s.listed, b) })
	s.summary.setNetworks(ids)
}

// start starts the Runtime of a network.
func (s *Supervisor) start(ctx context.Context, group *errgroup.Group, id string) {
	ctx, end := context.WithCancel(ctx)
	r := &running{Runtime: newRuntime(s.node, id), end: end}
	s.runtimes[id] = r
	group.Go(func() error {
		defer end()
		err := r.Run(ctx)
		s.mu.Lock()
		delete(s.runtimes, id)
		s.mu.Unlock()
		s.wake.Signal()
		return err
	})
}

// observe takes a version of the Node, nil when it was deleted.
func (s *Supervisor) observe(n *corev1.Node) {
	s.publisher.Observe(n)
	var annotations map[string]string
	var addresses []netip.Addr
	if n != nil {
		annotations = n.Annotations
		addresses = contract.NodeIPs(n)
	}
	networks, _, err := contract.ParsePublicNetworks(annotations)
	expected, listed := expectations(networks, err, addresses, s.Options)
	s.mu.Lock()
	s.expected = expected
	s.listed = listed
	s.annotations = annotations
	s.known = true
	s.mu.Unlock()
	s.wake.Signal()
}

// active returns the Runtimes that run and do not end, the first one of the list first.
func (s *Supervisor) active() []*Runtime {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Runtime
	for _, id := range s.summary.order() {
		if r := s.runtimes[id]; r != nil && !r.ending {
			all = append(all, r.Runtime)
		}
	}
	return all
}

// each calls do with each Runtime.
func (s *Supervisor) each(do func(*Runtime)) {
	for _, r := range s.active() {
		do(r)
	}
}

// managed is what to expect of each network for the return path.
func (s *Supervisor) managed() []check.Expected {
	var all []check.Expected
	s.each(func(r *Runtime) { all = append(all, r.managed()) })
	return all
}

// blockedReason is why the agent must not change the machine's network; empty when it may.
func (s *Supervisor) blockedReason() string {
	for _, r := range s.active() {
		if why := r.state.BlockedReason(); why != "" {
			return why
		}
	}
	return ""
}

// territory says which network an address is of.
func (s *Supervisor) territory() blocks.Territory {
	s.mu.Lock()
	defer s.mu.Unlock()
	var t blocks.Territory
	for _, id := range s.listed {
		published := s.expected[id].Network
		more, _ := s.blocksOf(published.Name)
		t = append(t, blocks.Area{ID: id, Name: published.Name, Blocks: slices.Concat(published.Blocks, more)})
	}
	if len(t) == 0 {
		return nil
	}
	return t.With(s.blocks.Networks())
}

// reportedBefore returns what the agent reported on the Node of the addresses of a network; ok is false before the Node
// was read. A report that cannot be read is written again.
func (s *Supervisor) reportedBefore(id string) (reported contract.ReportedAddresses, ok bool) {
	t := s.territory()
	s.mu.Lock()
	defer s.mu.Unlock()
	reported, err := contract.ParseReportedAddresses(s.annotations[contract.NodeReportedAddresses])
	if err != nil {
		reported = nil
	}
	maps.DeleteFunc(reported, func(a netip.Addr, _ contract.ReportedAddress) bool {
		return len(t) > 0 && t.Of(a) != id
	})
	return reported, s.annotations != nil
}

// release lets another agent of the Node continue once no Runtime announces any more.
func (s *Supervisor) release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runtimes[id]; r != nil {
		r.released = true
	}
	for _, r := range s.runtimes {
		if !r.released && r.speaker.State().Running {
			return
		}
	}
	s.Turn.Post.Release()
}

// warm reports whether this agent could continue in place of an earlier one.
func (s *Supervisor) warm() bool {
	all := s.active()
	return len(all) > 0 && !slices.ContainsFunc(all, func(r *Runtime) bool { return !r.warm() })
}

// isolated reports whether other nodes may take this one for off.
func (s *Supervisor) isolated() bool {
	return slices.ContainsFunc(s.active(), func(r *Runtime) bool { return r.speaker.State().Isolated })
}

// Alive returns an error when no samples of a network are taken any more.
func (s *Supervisor) Alive(now time.Time) error {
	var errs []error
	s.each(func(r *Runtime) { errs = append(errs, r.health.Alive(now)) })
	return errors.Join(errs...)
}

// Ready returns an error that names all that is missing until the Node was read and each network sampled since.
func (s *Supervisor) Ready() error {
	var errs []error
	s.each(func(r *Runtime) { errs = append(errs, r.health.Ready()) })
	return errors.Join(errs...)
}

// Describe implements prometheus.Collector: which metrics there are depends on the networks.
func (s *Supervisor) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *Supervisor) Collect(out chan<- prometheus.Metric) {
	for i, r := range s.active() {
		r.metrics.Collect(out)
		if i == 0 {
			r.info.Info(out, r.id)
		}
	}
	if s.path != nil {
		status := s.path.Status()
		metricsserver.Managed{Kind: ManageReturnPath, Interface: status.Interface,
			Healthy: status.Managing && status.Problem == "", Repairs: status.Repairs}.Collect(out)
	}
}
