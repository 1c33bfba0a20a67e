package service

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
)

// serviceState is what this process knows about a Service until nothing of it is left. If it is lost, an event is
// repeated, nothing more. Its fields belong to the worker that has the Service's key, except the first group.
type serviceState struct {
	uid       types.UID
	published *corev1.LoadBalancerStatus // what the status must be; nil while nothing is published
	vanished  *corev1.Service            // the last known version of a Service that is gone without being released

	superseded       []string  // the versions that the last sync has replaced
	supersededAt     time.Time // when it did
	requested        time.Time // when the load balancer was requested
	announced        bool      // users know the address
	publishedAt      time.Time // when this process first saw the address published
	waitingSince     time.Time
	leaving          bool // users know that it is being released
	recordedWaiting  bool
	recordedNoNodes  bool
	recordedIPv4Only bool
	announcerChecked bool
	distanceChecked  bool   // users know where it is answered, if that is elsewhere
	recordedRefusal  string // the last text about what cannot be served
	recordedDryRun   string // the last text about what would be done
}

// stateCache has the states of all Services by name. It is safe for concurrent use.
type stateCache struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]*serviceState
}

func newStateCache() *stateCache {
	return &stateCache{byName: map[types.NamespacedName]*serviceState{}}
}

func nameOf(service *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
}

// of returns the state of a Service, a new one at the first sync: an existing address was published by another process.
func (s *stateCache) of(service *corev1.Service) *serviceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := nameOf(service)
	if found := s.byName[key]; found != nil && found.uid == service.UID {
		return found
	}
	s.byName[key] = &serviceState{uid: service.UID, requested: service.CreationTimestamp.Time,
		announced: len(service.Status.LoadBalancer.Ingress) > 0}
	return s.byName[key]
}

// ofServed returns the state of a Service that must be served. One that is no longer released starts again.
func (s *stateCache) ofServed(service *corev1.Service) *serviceState {
	if found := s.of(service); !found.leaving {
		return found
	}
	s.start(service, time.Now())
	return s.of(service)
}

// start begins the state of a Service that has just become one of ours.
func (s *stateCache) start(service *corev1.Service, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[nameOf(service)] = &serviceState{uid: service.UID, requested: now}
}

// with calls f with the state of a Service of that name, if any.
func (s *stateCache) with(key types.NamespacedName, f func(*serviceState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byName[key]; found != nil {
		f(found)
	}
}

// knows reports whether something of exactly this Service was not released.
func (s *stateCache) knows(service *corev1.Service) (known bool) {
	s.with(nameOf(service), func(found *serviceState) { known = found.uid == service.UID })
	return known
}

// supersede records which versions of a Service are known to be old.
func (s *stateCache) supersede(service *corev1.Service, versions []string) {
	s.with(nameOf(service), func(found *serviceState) {
		if found.uid == service.UID && len(versions) > 0 {
			found.superseded = versions
			found.supersededAt = time.Now()
		}
	})
}

// isOld reports whether a copy of a Service lacks what this process has written a moment ago, which the informer is
// about to deliver. Where it takes longer, its watch may stand still, and the Service is not kept waiting for that.
func (s *stateCache) isOld(service *corev1.Service) (old bool) {
	s.with(nameOf(service), func(found *serviceState) {
		old = found.uid == service.UID && time.Since(found.supersededAt) < conflictPause &&
			slices.Contains(found.superseded, service.ResourceVersion)
	})
	return old
}

// publish records what the status must be.
func (s *stateCache) publish(service *corev1.Service, status *corev1.LoadBalancerStatus) {
	s.with(nameOf(service), func(found *serviceState) { found.published = status.DeepCopy() })
}

// published returns what the status of a Service must be; nil when that is not known.
func (s *stateCache) published(service *corev1.Service) (status *corev1.LoadBalancerStatus) {
	s.with(nameOf(service), func(found *serviceState) { status = found.published })
	return status
}

// vanish records that a Service is gone. It reports whether something of it was not released.
func (s *stateCache) vanish(last *corev1.Service) (known bool) {
	s.with(nameOf(last), func(found *serviceState) {
		if known = found.uid == last.UID; known {
			found.vanished = last
		}
	})
	return known
}

// vanished returns the last known version of a Service that is gone without being released; nil when there is none.
func (s *stateCache) vanished(key types.NamespacedName) (last *corev1.Service) {
	s.with(key, func(found *serviceState) { last = found.vanished })
	return last
}

func (s *stateCache) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, key)
}

// frameworkSubsystem is where the framework's service controller has its metrics; ours keep their names.
const frameworkSubsystem = "service_controller"

// Metrics count and measure syncs.
type Metrics struct {
	syncs       *metrics.Counter
	nodeErrors  *metrics.Counter
	nodeLatency *metrics.Histogram
	hostLatency *metrics.Histogram
	publish     *metrics.Histogram
}

// NewMetrics returns metrics that are not registered.
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
