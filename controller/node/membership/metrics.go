package membership

import "k8s.io/component-base/metrics"

// Metrics count servers by their membership in the public network.
type Metrics struct{ servers *metrics.GaugeVec }

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{servers: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "phoenixnap_public_network_servers",
		Help: "Servers of the cluster by membership in the public network: managed (joined by the controller), " +
			"foreign (joined by others) or missing (selected, but not a member).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"membership"})}
}

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable { return []metrics.Registerable{m.servers} }

func (m *Metrics) set(p picture) {
	counts := map[string]int{"managed": 0, "foreign": 0, "missing": 0}
	for id := range p.wanted {
		_, member := membershipOf(p.servers[id], p.network.ID)
		_, ours := p.memberRecord.members[id]
		switch {
		case !member:
			counts["missing"]++
		case ours:
			counts["managed"]++
		default:
			counts["foreign"]++
		}
	}
	for name, count := range counts {
		m.servers.WithLabelValues(name).Set(float64(count))
	}
}
