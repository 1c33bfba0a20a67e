//go:build linux

package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/version"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/events"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/localhealth"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/speaker"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/report/conditions"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/report/lease"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/report/metricsserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/report/nodestate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/report/nodewatch"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/responder"
)

// staleFactor and staleFloor make the age of the last sample at which the agent calls itself dead.
const (
	staleFactor = 6
	staleFloor  = time.Minute
)

// clients are ways to the API server.
type clients struct {
	main kubernetes.Interface
	// views is for the view of the announcers alone: it waits behind nothing.
	views store.ConfigMaps
}

// part is something that runs until its context ends.
type part interface {
	Run(ctx context.Context) error
}

// process is the agent put together. Its methods add parts, each of which uses those before it.
type process struct {
	name     string
	flags    runFlags
	client   kubernetes.Interface
	recorder record.EventRecorder

	metrics   *metricsserver.Metrics
	health    *metricsserver.Health
	publisher *conditions.Publisher
	watcher   *nodewatch.Watcher
	station   *nodestate.NodeState
	reader    *netstate.Reader
	asker     *arp.Prober
	responder *responder.Responder
	herald    *speaker.Speaker
	addresses *vip.Watcher
	tidings   *events.Recorder
	local     *localhealth.Asker

	parts []part
}

// newProcess builds the agent of a Node; it starts nothing.
func newProcess(name string, f runFlags, managed managing, clients clients, recorder record.EventRecorder) *process {
	p := &process{
		name: name, flags: f, client: clients.main, recorder: recorder, reader: netstate.NewReader(), asker: arp.NewProber(),
		metrics: metricsserver.NewMetrics(version.Get().GitVersion, name),
		health:  metricsserver.NewHealth(max(staleFloor, staleFactor*f.interval), time.Now()),
	}
	p.followNode(managed)
	samples, keepers := p.sample(), p.keep(managed)
	p.announce(clients.views)
	p.station.OnExpectation(func() {
		samples.Changed()
		wakeAll(keepers)
		p.announceAnew()
	})
	sources := p.listen(keepers)
	sources.Managed = func() []metricsserver.Managed { return standing(keepers) }
	p.metrics.Ask(sources)
	p.live()
	return p
}

func (p *process) add(parts ...part) { p.parts = append(p.parts, parts...) }

// followNode reads the Node and the Services, and writes what is found to the Node.
func (p *process) followNode(managed managing) {
	p.publisher = conditions.New(p.client.CoreV1().Nodes(), p.name, conditions.Recorder(p.recorder), p.metrics.Wrote)
	p.watcher = nodewatch.New(p.client, p.name, func(node *corev1.Node) { p.station.ObserveNode(node) })
	mark, mask := managed.marks()
	p.station = nodestate.New(nodestate.Config{
		Interface: p.flags.iface, Uplink: p.flags.uplink, Mark: mark, Mask: mask, TableBase: managed.tableBase,
		Publisher: p.publisher, Services: p.watcher.Services, Metrics: p.metrics, Health: p.health, Answers: p.answers,
	})
	p.add(p.watcher, p.publisher)
}

// sample judges the node's own way to the public network.
func (p *process) sample() *sampler.Sampler {
	samples := sampler.New(sampler.Config{
		Reader: p.reader, Asker: p.asker, Expected: p.station.Expected, Watch: p.reader.Watch, Interval: p.flags.interval, Tell: p.station.Sample,
	})
	p.add(samples)
	return samples
}

// keep configures what the agent is to configure itself.
func (p *process) keep(managed managing) []keeper {
	keepers := managed.keepers(p.station, p.asker, onNode(p.recorder, p.publisher.Observed))
	for _, k := range keepers {
		p.add(k)
	}
	return keepers
}

// listen judges the announcement of addresses, each time that the node was judged, too.
func (p *process) listen(keepers []keeper) metricsserver.Sources {
	elections := kubevip.NewReader(p.client.CoordinationV1(), p.flags.kubeVIPNamespace, p.name)
	owners := vip.NewMACTable(p.client.CoreV1().Nodes())
	p.addresses = vip.New(vip.Config{
		Node: p.name, Asker: p.asker, Router: p.reader, Elections: elections, Owners: owners,
		View: p.station.View, Services: p.watcher.Services, Reported: p.station.ReportedBefore, Interval: p.flags.announcementInterval,
		Tell: p.tellAddresses, Report: p.station.Reported, Event: vip.Recorder(p.recorder),
	})
	p.watcher.OnServices(func() {
		p.announceAnew()
		p.addresses.Wake()
	})
	elections.OnRead(p.addresses.Wake)
	owners.OnNews(p.addresses.Wake)
	var seen sync.Once
	p.station.OnSample(func() {
		p.addresses.Wake()
		p.announceAnew()
		// Until now keepers have waited to know which machine this is.
		seen.Do(func() { wakeAll(keepers) })
	})
	listener := arp.NewListener(p.station.VLANInterface, p.addresses.Hear)
	p.add(elections, owners, listener, p.addresses)
	return metricsserver.Sources{ARP: listener.Counters, Addresses: p.addresses.Figures, Announcer: p.announcerFigures}
}

// live shows the world that the agent lives.
func (p *process) live() {
	p.add(&lease.Renewer{
		Leases: p.client.CoordinationV1().Leases(metav1.NamespaceSystem), NodeName: p.name, Node: p.publisher.Observed, OnRenew: p.metrics.Renewed,
	}, metricsserver.NewServer(p.flags.metricsAddress, p.metrics, p.health))
}
