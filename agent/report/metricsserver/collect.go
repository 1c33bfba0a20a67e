package metricsserver

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{checkDesc, gatewayDesc, addressesDesc, lastSampleDesc, infoDesc} {
		out <- desc
	}
}

// Describe implements prometheus.Collector.
func (s Sources) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{packetsDesc, probesDesc, machinesDesc, mismatchDesc, managedDesc,
		repairsDesc} {
		out <- desc
	}
	for _, desc := range announcerDescs() {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (s Sources) Collect(out chan<- prometheus.Metric) {
	s.collectWire(out)
	s.collectManaged(out)
	s.collectAnnouncer(out)
}

func gauge(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func counter(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge(out, infoDesc, 1, m.version, m.node, m.identity.server, m.identity.network, m.identity.vlanInterface)
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

func (s Sources) collectManaged(out chan<- prometheus.Metric) {
	if s.Managed == nil {
		return
	}
	for _, each := range s.Managed() {
		value := 0.0
		if each.Healthy {
			value = 1
		}
		gauge(out, managedDesc, value, each.Kind, each.Interface)
		counter(out, repairsDesc, float64(each.Repairs), each.Kind)
	}
}
