// Package conditionmetrics exports the conditions of Nodes and Services as metrics, so that alerts can name the object.
package conditionmetrics

import (
	"context"

	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Collector connects Metrics to the informers.
type Collector struct {
	metrics *Metrics
	source  source
	synced  []cache.InformerSynced
}

// New returns a Collector. It starts nothing.
func New(m *Metrics, nodes coreinformers.NodeInformer, services coreinformers.ServiceInformer) *Collector {
	return &Collector{
		metrics: m, source: source{nodes: nodes.Lister(), services: services.Lister()},
		synced: []cache.InformerSynced{nodes.Informer().HasSynced, services.Informer().HasSynced},
	}
}

// Run exports metrics from when the informers are synced until ctx ends, and then returns nil.
func (c *Collector) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return nil
	}
	c.metrics.source.Store(&c.source)
	defer c.metrics.source.Store(nil)
	<-ctx.Done()
	return nil
}
