//go:build linux

package network

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/localhealth"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/speaker"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/vlan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/metricsserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/nodestate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// staleFactor and staleFloor make the age of the last sample at which the agent calls itself dead.
const (
	staleFactor = 6
	staleFloor  = time.Minute
)

// Runtime is what the agent does for one public network: it samples the node's way there, keeps the VLAN interface,
// checks the addresses of Services, and announces them.
type Runtime struct {
	*node
	// id is that of the network, empty while none is published.
	id     string
	wakes  wakes
	state  *nodestate.NodeState
	health *metricsserver.Health
	// info are the metrics of the samples, metrics all of the network.
	info     *metricsserver.Network
	metrics  prometheus.Collector
	reader   *netstate.Reader
	prober   *arp.Prober
	gateways arp.Neighbors
	// What announces addresses, while the controller has the agents do so.
	responder *responder.Responder
	speaker   *speaker.Speaker
	events    *speaker.Recorder
	local     *localhealth.Prober
	stability stability
	parts     []Part
}

// newRuntime returns what runs for a network. It starts nothing.
func newRuntime(n *node, id string) *Runtime {
	r := &Runtime{
		node: n, id: id, wakes: newWakes(n.returnPath), reader: netstate.NewReader(), prober: arp.NewProber(),
		health: metricsserver.NewHealth(max(staleFloor, staleFactor*n.Interval), time.Now()),
	}
	r.info = metricsserver.NewNetwork(n.Version, n.Node)
	r.state = nodestate.New(nodestate.Config{
		Reporter: reporter{n.summary, id}, Services: n.services.Services,
		Blocks:  n.blocksOf,
		Metrics: r.info, Health: r.health, OnExpectation: r.wakes.onExpectation, OnSample: r.wakes.onSample(),
	})
	samples := sampler.New(sampler.Config{
		Reader: r.reader, Prober: r.prober, Expected: r.state.Expected, Watch: r.reader.Watch, Interval: n.Interval,
		Record: r.state.Sample, Signals: r.wakes.samples,
	})
	announcer := r.newAnnouncer()
	verifying, sources := r.newVerifier()
	var managing []Part
	if n.ManageVLAN {
		reconciler, state := r.newVLAN()
		managing = append(managing, reconciler)
		sources.VLAN = state
	}
	r.metrics = r.info.Collector(id, sources)
	r.parts = slices.Concat([]Part{samples}, announcer, n.acting(slices.Concat(managing, verifying)...))
	return r
}

// Run works until ctx ends. Then other nodes take the addresses over, or another agent of this node continues.
func (r *Runtime) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, each := range r.parts {
		group.Go(func() error { return each.Run(ctx) })
	}
	return group.Wait()
}

// ownServices are the Services with addresses of the network; ok is false before they were listed.
func (r *Runtime) ownServices() (services []*corev1.Service, ok bool) {
	return r.node.ownServices(r.id)
}

// managed is what to expect for those that configure the node: nothing before the first sample, because whether the
// machine is the server that its Node names is not known.
func (r *Runtime) managed() check.Expected {
	if _, seen := r.state.View(); !seen {
		return check.Expected{}
	}
	return r.state.Expected()
}

// newVLAN returns what keeps the VLAN interface, and how that is at the moment, for metrics.
func (r *Runtime) newVLAN() (Part, func() metricsserver.Managed) {
	var repairs atomic.Int64
	reconciler := vlan.New(vlan.Config{
		Expected: r.managed, Kernel: vlan.System{Journal: r.journal}, Prober: r.prober, Watch: netstate.Watch,
		BlockedReason: r.state.BlockedReason,
		Record: func(e vlan.Event) {
			if e.Reason == vlan.ReasonRepaired {
				repairs.Add(1)
			}
			r.recordOnNode(e.Warning, e.Reason, e.Message)
		},
		Signals: r.wakes.vlan,
	})
	return reconciler, func() metricsserver.Managed {
		status := reconciler.Status()
		return metricsserver.Managed{Kind: ManageVLAN, Interface: status.Interface,
			Healthy: status.Interface != "" && status.Problem == "", Repairs: int(repairs.Load())}
	}
}

// newVerifier returns what judges the announcement of addresses, each time that the node was judged, too.
func (r *Runtime) newVerifier() ([]Part, metricsserver.Sources) {
	addresses := vip.New(vip.Config{
		Node: r.Node, Prober: r.prober, Router: r.reader, Announcers: r.announcers, Owners: r.owners.Of,
		View: r.view, Services: r.ownServices, Interval: r.AnnouncementInterval,
		Record: r.recordAddresses, Report: reporter{r.summary, r.id}.Addresses, Event: vip.Recorder(r.Recorder),
		Reported: func() (contract.ReportedAddresses, bool) { return r.reportedBefore(r.id) },
		Signals:  r.wakes.addresses,
	})
	listener := arp.NewListener(r.state.VLANInterface, addresses.Hear)
	return []Part{listener, addresses},
		metricsserver.Sources{ARP: listener.Counters, Addresses: addresses.Figures, Announcer: r.figures}
}
