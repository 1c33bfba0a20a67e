// Package nodewatch follows the agent's own Node and the Services of the cluster.
package nodewatch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Watcher follows one Node and all Services.
type Watcher struct {
	name     string
	nodes    informers.SharedInformerFactory
	services informers.SharedInformerFactory
	onNode   func(*corev1.Node)
}

// New returns a watcher of the Node of that name. onNode is called with each version of the Node, and with nil when it
// is deleted; it must not block. New starts nothing.
func New(client kubernetes.Interface, name string, onNode func(*corev1.Node)) *Watcher {
	// Resync is off: a watch delivers changes, and the judges run on timers of their own.
	own := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	return &Watcher{
		name:     name,
		nodes:    informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(own)),
		services: informers.NewSharedInformerFactory(client, 0),
		onNode:   onNode,
	}
}

// Run watches until ctx ends. An API server that cannot be reached is tried again and again.
func (w *Watcher) Run(ctx context.Context) error {
	_, err := w.nodes.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.observe(object) },
		UpdateFunc: func(_, object any) { w.observe(object) },
		DeleteFunc: func(any) { w.onNode(nil) },
	})
	if err != nil {
		return fmt.Errorf("watch Node %s: %w", w.name, err)
	}
	w.services.Core().V1().Services().Informer()
	w.nodes.Start(ctx.Done())
	w.services.Start(ctx.Done())
	<-ctx.Done()
	w.nodes.Shutdown()
	w.services.Shutdown()
	return nil
}

func (w *Watcher) observe(object any) {
	if node, isNode := object.(*corev1.Node); isNode && node.Name == w.name {
		w.onNode(node)
	}
}

// Node returns the Node as last seen, nil while it is unknown. It must not be changed.
func (w *Watcher) Node() *corev1.Node {
	node, err := w.nodes.Core().V1().Nodes().Lister().Get(w.name)
	if err != nil {
		return nil
	}
	return node
}

// Services returns the Services as last seen; known is false while they have not been listed yet. They must not be
// changed.
func (w *Watcher) Services() (services []*corev1.Service, known bool) {
	informer := w.services.Core().V1().Services()
	if !informer.Informer().HasSynced() {
		return nil, false
	}
	services, err := informer.Lister().List(labels.Everything())
	return services, err == nil
}
