package pnap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
)

// Health is the state of the API according to the last requests.
type Health struct {
	LastSuccess  time.Time // when the API last answered a request; zero when it never has
	FailingSince time.Time // when the first request failed after that; zero while none has
	Failure      string    // what failed last, without secrets; empty while nothing has
}

// Failing reports whether the last request failed.
func (h Health) Failing() bool { return !h.FailingSince.IsZero() }

// Err returns nil while the API answers, and before the first request.
func (h Health) Err() error {
	if !h.Failing() {
		return nil
	}
	last := "it has not answered since the start"
	if !h.LastSuccess.IsZero() {
		last = "it last answered at " + h.LastSuccess.UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("the phoenixNAP API fails since %s; %s: %s", h.FailingSince.UTC().Format(time.RFC3339), last,
		h.Failure)
}

// Health returns the state of the API according to the last requests. It sends no request.
func (c *Client) Health() Health {
	c.health.mu.Lock()
	defer c.health.mu.Unlock()
	return c.health.is
}

// condition stores the Health and logs its changes.
type condition struct {
	now func() time.Time
	mu  sync.Mutex
	is  Health
}

// failed records a failure, unless the caller gave up. text must not contain secrets.
func (c *condition) failed(ctx context.Context, text string) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	op := operationOf(ctx)
	c.mu.Lock()
	first := !c.is.Failing()
	if first {
		c.is.FailingSince = c.now()
	}
	c.is.Failure = op + ": " + shorten(text)
	c.mu.Unlock()
	if first {
		klog.FromContext(ctx).Info("phoenixNAP API fails", "operation", op, "reason", shorten(text))
	}
}

func (c *condition) succeeded(ctx context.Context) {
	c.mu.Lock()
	since := c.is.FailingSince
	c.is = Health{LastSuccess: c.now()}
	c.mu.Unlock()
	if !since.IsZero() {
		klog.FromContext(ctx).Info("phoenixNAP API answers again", "failedFor", c.now().Sub(since).Round(time.Second))
	}
}

// Values of the label "code" that are not an HTTP status.
const (
	codeError  = "error"
	codeUnsent = "unsent"
	codeDryRun = "dry-run"
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

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable {
	return []metrics.Registerable{m.requests, m.durations, m.throttled}
}

func (m *Metrics) request(endpoint, code string) { m.requests.WithLabelValues(endpoint, code).Inc() }

func (m *Metrics) duration(endpoint string, took time.Duration) {
	m.durations.WithLabelValues(endpoint).Observe(took.Seconds())
}

// Values of the label reason: what held a request back.
const (
	byRetryAfter = "retry-after"
	byBackoff    = "backoff"
	byBudget     = "budget"
)

// start exposes the counters of the reasons at 0: the function rate of Prometheus misses the increase with which a
// series begins.
func (m *Metrics) start() {
	for _, reason := range []string{byRetryAfter, byBackoff, byBudget} {
		m.throttled.WithLabelValues(reason)
	}
}

func (m *Metrics) throttle(reason string) { m.throttled.WithLabelValues(reason).Inc() }
