package endpoint

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

// Metrics are the agent's figures.
type Metrics struct {
	registry   *prometheus.Registry
	checks     *prometheus.GaugeVec
	gateways   *prometheus.GaugeVec
	addresses  *prometheus.GaugeVec
	writes     *prometheus.CounterVec
	lastSample prometheus.Gauge
}

// NewMetrics returns metrics in a registry of their own.
func NewMetrics(version, nodeName string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		checks: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "phoenixnap_agent_check",
			Help: "Outcome of each check: 0 good or not applicable, 1 warning, 2 not known, 3 failed."}, []string{"id"}),
		gateways: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "phoenixnap_agent_gateway_arp_seconds",
			Help: "Time from the ARP request to the reply of the gateway; absent while it is silent."}, []string{"gateway"}),
		addresses: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "phoenixnap_agent_addresses",
			Help: "Number of addresses of Services by what was heard of them on the wire."}, []string{"reason"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phoenixnap_agent_node_writes_total",
			Help: "Attempts to write the Node's conditions and annotations."}, []string{"result"}),
		lastSample: prometheus.NewGauge(prometheus.GaugeOpts{Name: "phoenixnap_agent_last_sample_timestamp_seconds",
			Help: "When the last sample of the node was taken, in seconds of the epoch."}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "phoenixnap_agent_info", Help: "Version of the agent and its node; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "node": nodeName}})
	info.Set(1)
	m.registry.MustRegister(m.checks, m.gateways, m.addresses, m.writes, m.lastSample, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Sample notes the outcome of a sample. Gateways are those of the network's blocks.
func (m *Metrics) Sample(report check.Report, s check.Snapshot, expected check.Expected, now time.Time) {
	for _, f := range report.Findings {
		m.checks.WithLabelValues(string(f.ID)).Set(level(f.Status))
	}
	m.gateways.Reset()
	for _, a := range s.ARP {
		for _, b := range expected.Network.Blocks {
			if a.Target == b.Gateway && a.Replied {
				m.gateways.WithLabelValues(a.Target.String()).Set(a.RTT.Seconds())
			}
		}
	}
	m.lastSample.Set(float64(now.UnixNano()) / float64(time.Second))
}

// Addresses notes what was heard of the addresses of Services.
func (m *Metrics) Addresses(findings []check.Finding) {
	m.addresses.Reset()
	for _, f := range findings {
		m.addresses.WithLabelValues(f.Reason).Inc()
	}
}

// Wrote notes an attempt to write the Node.
func (m *Metrics) Wrote(err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.writes.WithLabelValues(result).Inc()
}

func level(status check.Status) float64 {
	switch status {
	case check.OK, check.Skip:
		return 0
	case check.Warn:
		return 1
	case check.Unknown:
		return 2
	case check.Fail:
		return 3
	default:
		return 2
	}
}
