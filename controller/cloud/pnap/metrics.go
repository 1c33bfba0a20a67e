package pnap

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Values of the label "code" that are not an HTTP status.
const (
	codeError  = "error"
	codeUnsent = "unsent"
	codeDryRun = "dry-run"
)

// Values of the label "reason" of throttled requests.
const (
	throttledRetryAfter = "retry-after"
	throttledBackoff    = "backoff"
	throttledBudget     = "budget"
)

// Metrics are the client's metrics. They count only once they are registered.
type Metrics struct {
	requests  *metrics.CounterVec
	durations *metrics.HistogramVec
	throttled *metrics.CounterVec
}

// NewMetrics returns the metrics of one client.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "phoenixnap_api_requests_total",
			Help: "Requests to the phoenixNAP API by operation and status of the answer: error without an " +
				"answer, unsent when held back, dry-run when only reported.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"endpoint", "code"}),
		durations: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name:           "phoenixnap_api_request_duration_seconds",
			Help:           "Time in seconds from sending a request to the phoenixNAP API to the head of its answer.",
			Buckets:        []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
			StabilityLevel: metrics.ALPHA,
		}, []string{"endpoint"}),
		throttled: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "phoenixnap_api_throttled_total",
			Help: "Requests to the phoenixNAP API that were held back: by a pause that the API required " +
				"(retry-after), after a failure (backoff), or by the rate limit (budget).",
			StabilityLevel: metrics.ALPHA,
		}, []string{"reason"}),
	}
}

// Register passes each metric to register.
func (m *Metrics) Register(register func(metrics.Registerable) error) error {
	for _, each := range []metrics.Registerable{m.requests, m.durations, m.throttled} {
		if err := register(each); err != nil {
			return err
		}
	}
	return nil
}

func (m *Metrics) request(endpoint, code string) { m.requests.WithLabelValues(endpoint, code).Inc() }

func (m *Metrics) duration(endpoint string, took time.Duration) {
	m.durations.WithLabelValues(endpoint).Observe(took.Seconds())
}

func (m *Metrics) throttle(reason string) { m.throttled.WithLabelValues(reason).Inc() }
