package instances

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics describe the shared list of servers and the deletion of Nodes.
type Metrics struct {
	listed  *metrics.Gauge
	lists   *metrics.CounterVec
	missing *metrics.GaugeVec
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{
		listed: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "phoenixnap_server_list_timestamp_seconds",
			Help: "When the list of servers in use was requested, in seconds since 1970: its age is the " +
				"time since then.",
			StabilityLevel: metrics.ALPHA,
		}),
		lists: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "phoenixnap_server_list_hits_total",
			Help: "How often the list of servers was read, by result: hit (answered from the cache), " +
				"fetched or failed.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
		missing: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "phoenixnap_missing_servers",
			Help: "Number of servers of Nodes that are missing, by state: suspect (to be confirmed), held (too many " +
				"are missing at once, so their Nodes are kept) or gone (their Nodes may be deleted).",
			StabilityLevel: metrics.ALPHA,
		}, []string{"state"}),
	}
}

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable {
	return []metrics.Registerable{m.listed, m.lists, m.missing}
}

func (m *Metrics) fetched(askedAt time.Time) {
	m.lists.WithLabelValues("fetched").Inc()
	m.listed.Set(float64(askedAt.UnixNano()) / float64(time.Second))
}

func (m *Metrics) used(result string) { m.lists.WithLabelValues(result).Inc() }

func (m *Metrics) setMissing(counts map[deletionState]int) {
	for _, state := range []deletionState{suspect, held, gone} {
		m.missing.WithLabelValues(string(state)).Set(float64(counts[state]))
	}
}
