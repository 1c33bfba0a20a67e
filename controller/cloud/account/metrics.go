package account

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Values of the label "object".
const (
	objectBlocks  = "ip-blocks"
	objectNetwork = "public-network"
)

// Values of the label "result".
const (
	resultHit     = "hit"
	resultFetched = "fetched"
	resultFailed  = "failed"
)

// Metrics are the metrics of an Account. They count only once they are registered.
type Metrics struct {
	asked *metrics.GaugeVec
	reads *metrics.CounterVec
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{
		asked: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "phoenixnap_account_timestamp_seconds",
			Help: "When the cached state of the account was requested, in seconds since 1970, by object: " +
				"ip-blocks or public-network. Its age is the time since then.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"object"}),
		reads: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "phoenixnap_account_reads_total",
			Help: "How often the account was read, by object and result: hit (answered from the cache), " +
				"fetched or failed.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"object", "result"}),
	}
}

// Register passes each metric to register.
func (m *Metrics) Register(register func(metrics.Registerable) error) error {
	for _, each := range []metrics.Registerable{m.asked, m.reads} {
		if err := register(each); err != nil {
			return err
		}
	}
	return nil
}

func (m *Metrics) hit(object string) {
	m.reads.WithLabelValues(object, resultHit).Inc()
}

func (m *Metrics) fetched(object string, askedAt time.Time) {
	m.reads.WithLabelValues(object, resultFetched).Inc()
	m.asked.WithLabelValues(object).Set(float64(askedAt.UnixNano()) / float64(time.Second))
}

func (m *Metrics) failed(object string) {
	m.reads.WithLabelValues(object, resultFailed).Inc()
}
