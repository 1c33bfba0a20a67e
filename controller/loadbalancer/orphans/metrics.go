package orphans

import "k8s.io/component-base/metrics"

// Metrics are the metrics of unused blocks.
type Metrics struct {
	blocks    *metrics.GaugeVec
	collected *metrics.Counter
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{
		blocks: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "phoenixnap_orphan_ip_blocks",
			Help: "Unused IP blocks of the cluster, by standing: orphan (its Service does not exist), " +
				"leftover (marked for deletion by phoenixnap/k8s-cloud-provider-bmc v1), empty (shared, and no " +
				"address is held), unclear (its tags do not say what it is for); " +
				"beside them retained (kept without a Service because a user wanted it).",
			StabilityLevel: metrics.ALPHA,
		}, []string{"standing"}),
		collected: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "phoenixnap_orphan_ip_blocks_collected_total",
			Help:           "Orphaned IP blocks that were given back to phoenixNAP.",
			StabilityLevel: metrics.ALPHA,
		}),
	}
}

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable { return []metrics.Registerable{m.blocks, m.collected} }

func (m *Metrics) set(counts map[blockState]int) {
	for _, s := range []blockState{orphan, leftover, empty, unclear, retained} {
		m.blocks.WithLabelValues(string(s)).Set(float64(counts[s]))
	}
}
