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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announcement"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/endpoint"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/herald"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/l2"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/lease"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/localhealth"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/monitor"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/netinfo"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/nodecond"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/nodewatch"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/station"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/tidings"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/viewstore"
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
	views viewstore.ConfigMaps
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

	metrics   *endpoint.Metrics
	health    *endpoint.Health
	publisher *nodecond.Publisher
	watcher   *nodewatch.Watcher
	station   *station.Station
	reader    *netinfo.Reader
	asker     *l2.Asker
	responder *responder.Responder
	herald    *herald.Herald
	addresses *announcement.Watcher
	tidings   *tidings.Tidings
	local     *localhealth.Asker

	parts []part
}

// newProcess builds the agent of a Node; it starts nothing.
func newProcess(name string, f runFlags, managed managing, clients clients, recorder record.EventRecorder) *process {
	p := &process{
		name: name, flags: f, client: clients.main, recorder: recorder, reader: netinfo.NewReader(), asker: l2.NewAsker(),
		metrics: endpoint.NewMetrics(version.Get().GitVersion, name),
		health:  endpoint.NewHealth(max(staleFloor, staleFactor*f.interval), time.Now()),
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
	sources.Managed = func() []endpoint.Managed { return standing(keepers) }
	p.metrics.Ask(sources)
	p.live()
	return p
}

func (p *process) add(parts ...part) { p.parts = append(p.parts, parts...) }

// followNode reads the Node and the Services, and writes what is found to the Node.
func (p *process) followNode(managed managing) {
	p.publisher = nodecond.New(p.client.CoreV1().Nodes(), p.name, nodecond.Recorder(p.recorder), p.metrics.Wrote)
	p.watcher = nodewatch.New(p.client, p.name, func(node *corev1.Node) { p.station.ObserveNode(node) })
	mark, mask := managed.marks()
	p.station = station.New(station.Config{
		Interface: p.flags.iface, Uplink: p.flags.uplink, Mark: mark, Mask: mask, TableBase: managed.tableBase,
		Publisher: p.publisher, Services: p.watcher.Services, Metrics: p.metrics, Health: p.health, Answers: p.answers,
	})
	p.add(p.watcher, p.publisher)
}

// sample judges the node's own way to the public network.
func (p *process) sample() *monitor.Monitor {
	samples := monitor.New(monitor.Config{
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
func (p *process) listen(keepers []keeper) endpoint.Sources {
	elections := kubevip.NewReader(p.client.CoordinationV1(), p.flags.kubeVIPNamespace, p.name)
	owners := announcement.NewRoster(p.client.CoreV1().Nodes())
	p.addresses = announcement.New(announcement.Config{
		Node: p.name, Asker: p.asker, Router: p.reader, Elections: elections, Owners: owners,
		View: p.station.View, Services: p.watcher.Services, Reported: p.station.ReportedBefore, Interval: p.flags.announcementInterval,
		Tell: p.tellAddresses, Report: p.station.Reported, Event: announcement.Recorder(p.recorder),
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
	listener := l2.NewListener(p.station.VLANInterface, p.addresses.Hear)
	p.add(elections, owners, listener, p.addresses)
	return endpoint.Sources{ARP: listener.Counters, Addresses: p.addresses.Figures, Announcer: p.announcerFigures}
}

// live shows the world that the agent lives.
func (p *process) live() {
	p.add(&lease.Keeper{
		Leases: p.client.CoordinationV1().Leases(metav1.NamespaceSystem), NodeName: p.name, Node: p.publisher.Observed, OnRenew: p.metrics.Renewed,
	}, endpoint.NewServer(p.flags.metricsAddress, p.metrics, p.health))
}
