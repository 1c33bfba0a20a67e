package service

import "k8s.io/component-base/metrics"

// frameworkSubsystem is where the framework's service controller has its metrics; ours keep their names.
const frameworkSubsystem = "service_controller"

// Metrics are what the controller counts and measures.
type Metrics struct {
	syncs       *metrics.Counter
	nodeErrors  *metrics.Counter
	nodeLatency *metrics.Histogram
	hostLatency *metrics.Histogram
	publish     *metrics.Histogram
}

// NewMetrics returns metrics that are not exposed yet.
func NewMetrics() *Metrics {
	return &Metrics{
		syncs: metrics.NewCounter(&metrics.CounterOpts{
			Subsystem: frameworkSubsystem, Name: "loadbalancer_sync_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of times that the load balancer of a Service was ensured.",
		}),
		nodeErrors: metrics.NewCounter(&metrics.CounterOpts{
			Subsystem: frameworkSubsystem, Name: "nodesync_error_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of times that ensuring a load balancer failed after a change of Nodes.",
		}),
		nodeLatency: metrics.NewHistogram(&metrics.HistogramOpts{
			Subsystem: frameworkSubsystem, Name: "nodesync_latency_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time in seconds from a change of Nodes until every load balancer was looked at.",
			Buckets: metrics.ExponentialBuckets(0.015625, 2, 15), // 16 ms to 256 s
		}),
		hostLatency: metrics.NewHistogram(&metrics.HistogramOpts{
			Subsystem: frameworkSubsystem, Name: "update_loadbalancer_host_latency_seconds",
			StabilityLevel: metrics.ALPHA,
			Help:           "Time in seconds that looking at one load balancer took after a change of Nodes.",
			Buckets:        metrics.ExponentialBuckets(0.001, 2, 15), // 1 ms to 16 s
		}),
		publish: metrics.NewHistogram(&metrics.HistogramOpts{
			Name: "phoenixnap_service_publish_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help: "Time in seconds from the creation of a Service, or its change to the type LoadBalancer, to its " +
				"published address.",
			Buckets: metrics.ExponentialBuckets(0.5, 2, 14), // 0.5 s to 68 min
		}),
	}
}

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable {
	return []metrics.Registerable{m.syncs, m.nodeErrors, m.nodeLatency, m.hostLatency, m.publish}
}
