package metricsserver

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
)

// addressLimit is how many addresses have series of their own at most, so that a node of a cluster with many Services
// does not fill the memory of the collector.
const addressLimit = 100

// Metrics are the metrics of the process, and of what it writes to its Node.
type Metrics struct {
	registry *prometheus.Registry
	writes   *prometheus.CounterVec
	renewals *prometheus.CounterVec
}

// Network are the metrics of a public network. They come from one sample, and what is gone has no series.
type Network struct {
	version, node string

	mu        sync.Mutex
	sampledAt time.Time
	checks    []check.Finding
	gateways  map[netip.Addr]time.Duration
	identity  identity
	addresses map[outcome]int
}

// identity is what phoenixnap_agent_info says beside version, Node and network.
type identity struct{ server, vlanInterface string }

// outcome is what was found of an address.
type outcome struct {
	id     check.ID
	reason string
}

// Managed is something on the node that the agent keeps (--manage).
type Managed struct {
	// Kind is what --manage calls it.
	Kind string
	// Interface is the VLAN interface; empty when there is none.
	Interface string
	// Healthy is whether it is as it should be.
	Healthy bool
	// Repairs counts how often it was changed by others and repaired.
	Repairs int
}

// Sources are read at each scrape. Each may be nil, and then its metrics are absent.
type Sources struct {
	// ARP returns how many packets were heard and sent.
	ARP func() arp.Counters
	// Addresses returns what the watcher of addresses counted.
	Addresses func() vip.Figures
	// VLAN returns how the VLAN interface is that the agent keeps.
	VLAN func() Managed
	// Announcer returns how the agent announces addresses itself.
	Announcer func() Announcer
}

// Descriptions of the metrics that are computed at each scrape.
var (
	checkDesc = prometheus.NewDesc("phoenixnap_agent_check",
		"State of each check: 1 for the status that it has (ok, skip, warn, unknown or fail), 0 for the others.",
		[]string{"id", "severity", "status"}, nil)
	gatewayDesc = prometheus.NewDesc("phoenixnap_agent_gateway_arp_seconds",
		"Time from the ARP request to the reply of the gateway; absent while it is silent.", []string{"gateway"}, nil)
	addressesDesc = prometheus.NewDesc("phoenixnap_agent_addresses",
		"Number of addresses of Services, by finding and reason.", []string{"id", "reason"}, nil)
	lastSampleDesc = prometheus.NewDesc("phoenixnap_agent_last_sample_timestamp_seconds",
		"When the last sample of the node was taken, in seconds of the epoch.", nil, nil)
	infoDesc = prometheus.NewDesc("phoenixnap_agent_info",
		"Version of the agent, its Node, the server and public network that the Node belongs to, and the VLAN "+
			"interface; always 1.",
		[]string{"version", "node", "server_id", networkLabel, "interface"}, nil)
	packetsDesc = prometheus.NewDesc("phoenixnap_agent_arp_packets_total",
		"ARP packets on the VLAN interface: received (heard) from other machines, sent by this one, dropped because "+
			"they were malformed.", []string{"direction"}, nil)
	probesDesc = prometheus.NewDesc("phoenixnap_agent_arp_probes_total",
		"Probes of addresses of Services; each sends up to three ARP requests.", nil, nil)
	machinesDesc = prometheus.NewDesc("phoenixnap_agent_address_machines",
		"How many machines claim an address; absent if it is one or none.", []string{"address", "service"}, nil)
	mismatchDesc = prometheus.NewDesc("phoenixnap_agent_address_mismatch_seconds_total",
		"For how long the wire or the kernel have contradicted the lease of an address; absent if they never did.",
		[]string{"address", "service"}, nil)
	managedDesc = prometheus.NewDesc("phoenixnap_agent_managed",
		"Whether what the agent manages on the node is as it should be: 1 yes, 0 no.", []string{"kind", "interface"},
		nil)
	repairsDesc = prometheus.NewDesc("phoenixnap_agent_managed_repairs_total",
		"How often the agent repaired what it manages after another program changed it.", []string{"kind"}, nil)
)

// NewMetrics returns metrics in a registry of their own.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phoenixnap_agent_node_writes_total",
			Help: "Attempts to write the Node's conditions and annotations."}, []string{"result"}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phoenixnap_agent_lease_renewals_total",
			Help: "Attempts to renew the agent's own Lease."}, []string{"result"}),
	}
	for _, counter := range []*prometheus.CounterVec{m.writes, m.renewals} {
		counter.WithLabelValues(resultOf(nil))
		counter.WithLabelValues("error")
	}
	m.registry.MustRegister(m.writes, m.renewals, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Gatherer is where the metrics are collected from.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// networkLabel is on all series of a public network: its ID, empty while no network is published.
const networkLabel = "network_id"

// NewNetwork returns the metrics of a network, for the agent of a version on a Node.
func NewNetwork(version, nodeName string) *Network { return &Network{version: version, node: nodeName} }

// Collector returns the metrics together with what is read at each scrape, all with the ID of the network.
func (m *Network) Collector(id string, sources Sources) prometheus.Collector {
	return prometheus.WrapCollectorWith(prometheus.Labels{networkLabel: id}, collected{m, sources})
}

// Info sends what the agent is, and for which network. It is for one network of the Node only, so that others can be
// joined with it by instance.
func (m *Network) Info(out chan<- prometheus.Metric, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge(out, infoDesc, 1, m.version, m.node, m.identity.server, id, m.identity.vlanInterface)
}

// collected are several collectors that are one.
type collected []prometheus.Collector

// Describe implements prometheus.Collector.
func (c collected) Describe(out chan<- *prometheus.Desc) {
	for _, each := range c {
		each.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (c collected) Collect(out chan<- prometheus.Metric) {
	for _, each := range c {
		each.Collect(out)
	}
}

// Sample notes the outcome of a sample. Gateways are those of the network's blocks.
func (m *Network) Sample(report check.Report, s check.Snapshot, expected check.Expected, now time.Time) {
	gateways := map[netip.Addr]time.Duration{}
	for _, a := range s.ARP {
		for _, b := range expected.Network.Blocks {
			if a.Target == b.Gateway && a.Replied {
				gateways[a.Target] = a.RTT
			}
		}
	}
	server := expected.Network.ServerID
	if server == "" {
		server = s.Machine.ServerID
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sampledAt = now
	m.checks = report.Findings
	m.gateways = gateways
	m.identity = identity{server: server, vlanInterface: report.Interface}
}

// Addresses notes what was found of the addresses of Services.
func (m *Network) Addresses(findings []check.Finding) {
	addresses := map[outcome]int{}
	for _, f := range findings {
		addresses[outcome{f.ID, f.Reason}]++
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addresses = addresses
}

// Wrote notes an attempt to write the Node.
func (m *Metrics) Wrote(err error) { m.writes.WithLabelValues(resultOf(err)).Inc() }

// Renewed notes an attempt to renew the agent's Lease.
func (m *Metrics) Renewed(err error) { m.renewals.WithLabelValues(resultOf(err)).Inc() }

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// Describe implements prometheus.Collector.
func (m *Network) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{checkDesc, gatewayDesc, addressesDesc, lastSampleDesc} {
		out <- desc
	}
}

// Describe implements prometheus.Collector.
func (s Sources) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{packetsDesc, probesDesc, machinesDesc, mismatchDesc, managedDesc,
		repairsDesc, viewDesc, membersDesc, announcedDesc, sinceDesc, movesDesc, viewFailuresDesc, beatsSentDesc,
		beatsHeardDesc, requestsDesc, announcementsDesc} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (s Sources) Collect(out chan<- prometheus.Metric) {
	s.collectWire(out)
	if s.VLAN != nil {
		s.VLAN().Collect(out)
	}
	s.collectAnnouncer(out)
}

func gauge(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func counter(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
}

// Collect implements prometheus.Collector.
func (m *Network) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o, n := range m.addresses {
		gauge(out, addressesDesc, float64(n), string(o.id), o.reason)
	}
	if m.sampledAt.IsZero() {
		return
	}
	gauge(out, lastSampleDesc, float64(m.sampledAt.UnixNano())/float64(time.Second))
	for _, f := range m.checks {
		collectCheck(out, f)
	}
	for gateway, rtt := range m.gateways {
		gauge(out, gatewayDesc, rtt.Seconds(), gateway.String())
	}
}

// collectCheck makes a state set: one series for each status, so that an alert names the status and not a number
// (https://prometheus.io/docs/specs/om/open_metrics_spec/#stateset).
func collectCheck(out chan<- prometheus.Metric, f check.Finding) {
	for _, status := range []check.Status{check.OK, check.Skip, check.Warn, check.Unknown, check.Fail} {
		value := 0.0
		if f.Status == status {
			value = 1
		}
		gauge(out, checkDesc, value, string(f.ID), string(f.Severity), strings.ToLower(string(status)))
	}
}

func (s Sources) collectWire(out chan<- prometheus.Metric) {
	if s.ARP != nil {
		packets := s.ARP()
		counter(out, packetsDesc, float64(packets.Heard), "heard")
		counter(out, packetsDesc, float64(packets.Sent), "sent")
		counter(out, packetsDesc, float64(packets.Dropped), "dropped")
	}
	if s.Addresses == nil {
		return
	}
	figures := s.Addresses()
	counter(out, probesDesc, float64(figures.Asked))
	seen := map[[2]string]bool{}
	for _, a := range figures.Addresses {
		key := [2]string{a.Address.String(), a.Service}
		if a.Machines < 2 && a.Mismatch == 0 || seen[key] || len(seen) >= addressLimit {
			continue
		}
		seen[key] = true
		if a.Machines > 1 {
			gauge(out, machinesDesc, float64(a.Machines), key[0], key[1])
		}
		if a.Mismatch > 0 {
			counter(out, mismatchDesc, a.Mismatch.Seconds(), key[0], key[1])
		}
	}
}

// Collect sends the metrics of what the agent keeps.
func (m Managed) Collect(out chan<- prometheus.Metric) {
	value := 0.0
	if m.Healthy {
		value = 1
	}
	gauge(out, managedDesc, value, m.Kind, m.Interface)
	counter(out, repairsDesc, float64(m.Repairs), m.Kind)
}
