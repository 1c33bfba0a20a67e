package service

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pass measures how long it takes until every Service was checked after a change of Nodes. It is safe for
// concurrent use.
type pass struct {
	metrics *Metrics
	mu      sync.Mutex
	since   time.Time
	left    map[types.NamespacedName]bool
}

func newPass(metrics *Metrics) *pass {
	return &pass{metrics: metrics, left: map[types.NamespacedName]bool{}}
}

// begin adds Services to check because of a change at that time.
func (p *pass) begin(since time.Time, services []*corev1.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.left) == 0 {
		p.since = since
	}
	for _, service := range services {
		p.left[nameOf(service)] = true
	}
}

// done records that a Service was checked, and whether that failed.
func (p *pass) done(key types.NamespacedName, took time.Duration, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.left[key] {
		return
	}
	delete(p.left, key)
	p.metrics.hostLatency.Observe(took.Seconds())
	if failed {
		p.metrics.nodeErrors.Inc()
	}
	if len(p.left) == 0 {
		p.metrics.nodeLatency.Observe(time.Since(p.since).Seconds())
	}
}
