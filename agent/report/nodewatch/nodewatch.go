// Package nodewatch follows the agent's own Node and the Services of the cluster that have addresses of load balancers.
package nodewatch

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Watcher follows one Node and all Services of the type LoadBalancer. It keeps only what the agent reads of them.
type Watcher struct {
	name     string
	nodes    cache.SharedIndexInformer
	services cache.SharedIndexInformer
	onNode   func(*corev1.Node)
	// onServices is called when a Service came, went or changed.
	onServices func()
}

// New returns a watcher of the Node of that name. onNode is called with each version of the Node, and with nil when it
// is deleted; it must not block. New starts nothing.
func New(client kubernetes.Interface, name string, onNode func(*corev1.Node)) *Watcher {
	nodes, services := client.CoreV1().Nodes(), client.CoreV1().Services(metav1.NamespaceAll)
	return &Watcher{
		name:       name,
		nodes:      informer(client, fields.OneTermEqualSelector(metav1.ObjectNameField, name), &corev1.Node{}, listing(nodes.List), nodes.Watch),
		services:   informer(client, fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer)), &corev1.Service{}, listing(services.List), services.Watch),
		onNode:     onNode,
		onServices: func() {},
	}
}

// OnServices sets what is called when a Service came, went or changed; it must not block. It is to be set before Run.
func (w *Watcher) OnServices(changed func()) { w.onServices = changed }

type list func(context.Context, metav1.ListOptions) (runtime.Object, error)

// listing makes a list of one type a list of any.
func listing[T runtime.Object](typed func(context.Context, metav1.ListOptions) (T, error)) list {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return typed(ctx, o) }
}

// informer follows the objects that the selector picks. The API server picks, so that nothing else comes over the wire.
// Resync is off: a watch delivers changes, and the judges run on timers of their own.
func informer(client any, selector fields.Selector, example runtime.Object, list list,
	open func(context.Context, metav1.ListOptions) (watch.Interface, error),
) cache.SharedIndexInformer {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector.String()
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector.String()
			return open(ctx, o)
		},
	}
	return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(source, client), example, cache.SharedIndexInformerOptions{})
}

// Run watches until ctx ends. An API server that cannot be reached is tried again and again.
func (w *Watcher) Run(ctx context.Context) error {
	if err := w.register(); err != nil {
		return err
	}
	var group errgroup.Group
	for _, informer := range []cache.SharedIndexInformer{w.nodes, w.services} {
		group.Go(func() error {
			informer.RunWithContext(ctx)
			return nil
		})
	}
	return group.Wait()
}

func (w *Watcher) register() error {
	for _, informer := range []cache.SharedIndexInformer{w.nodes, w.services} {
		if err := informer.SetTransform(strip); err != nil {
			return fmt.Errorf("watch Node %s and Services: %w", w.name, err)
		}
	}
	_, err := w.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.observe(object) },
		UpdateFunc: func(_, object any) { w.observe(object) },
		DeleteFunc: func(any) { w.onNode(nil) },
	})
	if err != nil {
		return fmt.Errorf("watch Node %s: %w", w.name, err)
	}
	_, err = w.services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.onServices() },
		UpdateFunc: func(any, any) { w.onServices() },
		DeleteFunc: func(any) { w.onServices() },
	})
	if err != nil {
		return fmt.Errorf("watch Services: %w", err)
	}
	return nil
}

func (w *Watcher) observe(object any) {
	if node, isNode := object.(*corev1.Node); isNode && node.Name == w.name {
		w.onNode(node)
	}
}

// Node returns the Node as last seen, nil while it is unknown. It must not be changed.
func (w *Watcher) Node() *corev1.Node {
	object, known, err := w.nodes.GetStore().GetByKey(w.name)
	if err != nil || !known {
		return nil
	}
	node, _ := object.(*corev1.Node)
	return node
}

// Services returns the Services of the type LoadBalancer as last seen; known is false while they have not been listed yet.
// They must not be changed.
func (w *Watcher) Services() (services []*corev1.Service, known bool) {
	if !w.services.HasSynced() {
		return nil, false
	}
	for _, object := range w.services.GetStore().List() {
		if service, isService := object.(*corev1.Service); isService {
			services = append(services, service)
		}
	}
	return services, true
}
