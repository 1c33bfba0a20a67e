// Package nodewatch follows the agent's own Node and the Services of the cluster that have addresses of load balancers.
package nodewatch

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// NodeWatcher follows one Node. It keeps only what the agent reads of it.
type NodeWatcher struct {
	name     string
	informer cache.SharedIndexInformer
	onNode   func(*corev1.Node)
}

// NewNodeWatcher returns a watcher of the Node of that name. onNode is called with each version of the Node, and with
// nil when it is deleted; it must not block. NewNodeWatcher starts nothing.
func NewNodeWatcher(client kubernetes.Interface, name string, onNode func(*corev1.Node)) *NodeWatcher {
	nodes := client.CoreV1().Nodes()
	own := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	following := informer(client, own, &corev1.Node{}, listing(nodes.List), nodes.Watch)
	return &NodeWatcher{name: name, informer: following, onNode: onNode}
}

// ServiceWatcher follows all Services of the type LoadBalancer. It keeps only what the agent reads of them.
type ServiceWatcher struct {
	informer cache.SharedIndexInformer
	onChange func()
}

// NewServiceWatcher returns a watcher of Services. onChange is called when one came, went or changed; it must not
// block. NewServiceWatcher starts nothing.
func NewServiceWatcher(client kubernetes.Interface, onChange func()) *ServiceWatcher {
	services := client.CoreV1().Services(metav1.NamespaceAll)
	balanced := fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer))
	following := informer(client, balanced, &corev1.Service{}, listing(services.List), services.Watch)
	return &ServiceWatcher{informer: following, onChange: onChange}
}

type list func(context.Context, metav1.ListOptions) (runtime.Object, error)

// listing makes a list of one type a list of any.
func listing[T runtime.Object](typed func(context.Context, metav1.ListOptions) (T, error)) list {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return typed(ctx, o) }
}

// informer follows the objects that the selector picks. The API server picks, so that nothing else comes over the wire.
// Resync is off: a watch delivers changes, and the checks run on their own timers.
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
	return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(source, client), example,
		cache.SharedIndexInformerOptions{})
}

// Run watches until ctx ends. An API server that cannot be reached is tried again and again.
func (w *NodeWatcher) Run(ctx context.Context) error {
	err := run(ctx, w.informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.observe(object) },
		UpdateFunc: func(_, object any) { w.observe(object) },
		DeleteFunc: func(any) { w.onNode(nil) },
	})
	if err != nil {
		return fmt.Errorf("watch Node %s: %w", w.name, err)
	}
	return nil
}

// Run watches until ctx ends. An API server that cannot be reached is tried again and again.
func (w *ServiceWatcher) Run(ctx context.Context) error {
	err := run(ctx, w.informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.onChange() },
		UpdateFunc: func(any, any) { w.onChange() },
		DeleteFunc: func(any) { w.onChange() },
	})
	if err != nil {
		return fmt.Errorf("watch Services: %w", err)
	}
	return nil
}

func run(ctx context.Context, informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	if err := informer.SetTransform(strip); err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return err
	}
	informer.RunWithContext(ctx)
	return nil
}

func (w *NodeWatcher) observe(object any) {
	if node, isNode := object.(*corev1.Node); isNode && node.Name == w.name {
		w.onNode(node)
	}
}

// Node returns the Node as last seen, nil while it is unknown. It must not be changed.
func (w *NodeWatcher) Node() *corev1.Node {
	object, known, err := w.informer.GetStore().GetByKey(w.name)
	if err != nil || !known {
		return nil
	}
	node, _ := object.(*corev1.Node)
	return node
}

// Services returns the Services of the type LoadBalancer as last seen; known is false while they have not been listed
// yet. They must not be changed.
func (w *ServiceWatcher) Services() (services []*corev1.Service, known bool) {
	if !w.informer.HasSynced() {
		return nil, false
	}
	for _, object := range w.informer.GetStore().List() {
		if service, isService := object.(*corev1.Service); isService {
			services = append(services, service)
		}
	}
	return services, true
}

// kubeVIPPrefix begins the annotations of kube-vip, such as the one that names the node that it announces from.
const kubeVIPPrefix = "kube-vip.io/"

// strip keeps what the agent reads of a Node or a Service and drops the rest: of a Node in service that is most of it,
// the list of its images above all.
func strip(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Node:
		return stripNode(o), nil
	case *corev1.Service:
		return stripService(o), nil
	default:
		return object, nil // the last state of an object whose deletion was missed
	}
}

func stripNode(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{ObjectMeta: stripMeta(node.ObjectMeta)}
	kept.Spec.PodCIDR = node.Spec.PodCIDR
	kept.Spec.PodCIDRs = node.Spec.PodCIDRs
	kept.Status.Addresses = node.Status.Addresses
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady || strings.HasPrefix(string(c.Type), contract.Prefix) {
			kept.Status.Conditions = append(kept.Status.Conditions, c)
		}
	}
	return kept
}

func stripService(service *corev1.Service) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: stripMeta(service.ObjectMeta),
		Spec: corev1.ServiceSpec{
			Type:                  service.Spec.Type,
			LoadBalancerClass:     service.Spec.LoadBalancerClass,
			ExternalTrafficPolicy: service.Spec.ExternalTrafficPolicy,
			HealthCheckNodePort:   service.Spec.HealthCheckNodePort,
		},
		Status: corev1.ServiceStatus{LoadBalancer: service.Status.LoadBalancer,
			Conditions: announced(service.Status.Conditions)},
	}
}

// announced keeps the condition that the controller sets on the announcement: a node need not report what is reported
// already.
func announced(conditions []metav1.Condition) []metav1.Condition {
	for _, c := range conditions {
		if c.Type == contract.ServiceConditionAnnounced {
			return []metav1.Condition{c}
		}
	}
	return nil
}

func stripMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Annotations: ours(m.Annotations), Labels: ours(m.Labels),
	}
}

func ours(all map[string]string) map[string]string {
	var kept map[string]string
	for key, value := range all {
		if strings.HasPrefix(key, contract.Prefix) || strings.HasPrefix(key, kubeVIPPrefix) ||
			key == corev1.LabelNodeExcludeBalancers {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}
