// Package conditionmetrics exports the conditions of Nodes and Services as metrics, so that alerts can name the object.
package conditionmetrics

import (
	"context"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Metrics are computed when they are collected, only while a Collector runs: only the leader exports them.
type Metrics struct {
	metrics.BaseStableCollector

	source   atomic.Pointer[Collector]
	node     *metrics.Desc
	service  *metrics.Desc
	deletion *metrics.Desc
}

// Collector connects Metrics to the informers.
type Collector struct {
	metrics  *Metrics
	nodes    coreinformers.NodeInformer
	services coreinformers.ServiceInformer
}

// New returns a Collector. It starts nothing.
func New(m *Metrics, nodes coreinformers.NodeInformer, services coreinformers.ServiceInformer) *Collector {
	nodes.Informer() // so that the factory starts it
	services.Informer()
	return &Collector{metrics: m, nodes: nodes, services: services}
}

// Run exports metrics from when the informers are synced until ctx ends, and then returns nil.
func (c *Collector) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.nodes.Informer().HasSynced, c.services.Informer().HasSynced) {
		return nil
	}
	c.metrics.source.Store(c)
	defer c.metrics.source.Store(nil)
	<-ctx.Done()
	return nil
}

// NewMetrics returns metrics that are not registered; register them with CustomRegister of a registry.
func NewMetrics() *Metrics {
	return &Metrics{
		node: metrics.NewDesc("phoenixnap_node_condition",
			"Status and reason of the conditions VLANReady and AnnouncementHealthy of a Node; always 1.",
			[]string{"node", "condition", "status", "reason"}, nil, metrics.ALPHA, ""),
		service: metrics.NewDesc("phoenixnap_service_condition",
			"Status and reason of the conditions BlockAssigned, AddressPublished and Announced of a Service; always 1.",
			[]string{"namespace", "service", "condition", "status", "reason"}, nil, metrics.ALPHA, ""),
		deletion: metrics.NewDesc("phoenixnap_service_deletion_timestamp_seconds",
			"When the deletion of a Service was requested that has not released its address yet, in "+
				"seconds since 1970.",
			[]string{"namespace", "service"}, nil, metrics.ALPHA, ""),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (m *Metrics) DescribeWithStability(out chan<- *metrics.Desc) {
	out <- m.node
	out <- m.service
	out <- m.deletion
}

// CollectWithStability implements metrics.StableCollector.
func (m *Metrics) CollectWithStability(out chan<- metrics.Metric) {
	from := m.source.Load()
	if from == nil {
		return
	}
	nodes, err := from.nodes.Lister().List(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Failed to list Nodes for metrics")
	}
	for _, node := range nodes {
		m.ofNode(node, out)
	}
	services, err := from.services.Lister().List(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Failed to list Services for metrics")
	}
	for _, service := range services {
		m.ofService(service, out)
	}
}

func (m *Metrics) ofNode(node *corev1.Node, out chan<- metrics.Metric) {
	for _, c := range node.Status.Conditions {
		if name, ours := strings.CutPrefix(string(c.Type), contract.Prefix); ours {
			out <- metrics.NewLazyConstMetric(m.node, metrics.GaugeValue, 1, node.Name, name, string(c.Status),
				c.Reason)
		}
	}
}

func (m *Metrics) ofService(service *corev1.Service, out chan<- metrics.Metric) {
	held := false
	for _, c := range service.Status.Conditions {
		name, ours := strings.CutPrefix(c.Type, contract.Prefix)
		if !ours {
			continue
		}
		held = true
		out <- metrics.NewLazyConstMetric(m.service, metrics.GaugeValue, 1, service.Namespace, service.Name, name,
			string(c.Status), c.Reason)
	}
	if held && service.DeletionTimestamp != nil {
		asked := float64(service.DeletionTimestamp.Unix())
		out <- metrics.NewLazyConstMetric(m.deletion, metrics.GaugeValue, asked, service.Namespace, service.Name)
	}
}
