// Package nodewatch follows the agent's own Node, the Services of the cluster that have addresses of load balancers,
// and the IPBlocks that give these addresses.
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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// watcher follows objects of one kind.
type watcher struct {
	// what is followed, for errors.
	what     string
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerFuncs
}

// Run watches until ctx ends. An API server that cannot be reached is tried again and again.
func (w *watcher) Run(ctx context.Context) error {
	if _, err := w.prepare(); err != nil {
		return err
	}
	w.informer.RunWithContext(ctx)
	return nil
}

// prepare is what is done before the informer runs.
func (w *watcher) prepare() (registration cache.ResourceEventHandlerRegistration, err error) {
	if err = w.informer.SetTransform(strip); err == nil {
		registration, err = w.informer.AddEventHandler(w.handler)
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", w.what, err)
	}
	return registration, nil
}

// NodeWatcher follows one Node. It keeps only what the agent reads of it.
type NodeWatcher struct {
	watcher
	name string
}

// NewNodeWatcher returns a watcher of the Node of that name. onNode is called with each version of the Node, and with
// nil when it is deleted; it must not block. NewNodeWatcher starts nothing.
func NewNodeWatcher(client kubernetes.Interface, name string, onNode func(*corev1.Node)) *NodeWatcher {
	nodes := client.CoreV1().Nodes()
	own := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	observe := func(object any) {
		if node, ok := object.(*corev1.Node); ok && node.Name == name {
			onNode(node)
		}
	}
	return &NodeWatcher{name: name, watcher: watcher{
		what:     "Node " + name,
		informer: newInformer(client, own, &corev1.Node{}, nodes.List, nodes.Watch),
		handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    observe,
			UpdateFunc: func(_, object any) { observe(object) },
			DeleteFunc: func(any) { onNode(nil) },
		},
	}}
}

// Node returns the Node as last seen, nil while it is unknown. It must not be changed.
func (w *NodeWatcher) Node() *corev1.Node {
	object, ok, err := w.informer.GetStore().GetByKey(w.name)
	if err != nil || !ok {
		return nil
	}
	node, _ := object.(*corev1.Node)
	return node
}

// ServiceWatcher follows all Services of the type LoadBalancer. It keeps only what the agent reads of them.
type ServiceWatcher struct{ watcher }

// NewServiceWatcher returns a watcher of Services. onChange is called when one came, went or changed; it must not
// block. NewServiceWatcher starts nothing.
func NewServiceWatcher(client kubernetes.Interface, onChange func()) *ServiceWatcher {
	services := client.CoreV1().Services(metav1.NamespaceAll)
	balanced := fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer))
	return &ServiceWatcher{watcher{
		what:     "Services",
		informer: newInformer(client, balanced, &corev1.Service{}, services.List, services.Watch),
		handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { onChange() },
			UpdateFunc: func(any, any) { onChange() },
			DeleteFunc: func(any) { onChange() },
		},
	}}
}

// Services returns the Services of the type LoadBalancer as last seen; ok is false while they have not been listed yet.
// They must not be changed.
func (w *ServiceWatcher) Services() (services []*corev1.Service, ok bool) {
	if !w.informer.HasSynced() {
		return nil, false
	}
	for _, object := range w.informer.GetStore().List() {
		if service, ok := object.(*corev1.Service); ok {
			services = append(services, service)
		}
	}
	return services, true
}

// newInformer follows the objects that the selector picks. The API server picks, so that nothing else comes over the
// wire. Resync is off: a watch delivers changes, and the checks run on their own timers.
func newInformer[L runtime.Object](client any, selector fields.Selector, example runtime.Object,
	list func(context.Context, metav1.ListOptions) (L, error),
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
	case *v1beta1.IPBlock:
		return stripBlock(o), nil
	default:
		return object, nil // the last state of an object whose deletion was missed
	}
}

func stripNode(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{ObjectMeta: stripMeta(node.ObjectMeta)}
	kept.Spec.PodCIDR = node.Spec.PodCIDR
	kept.Spec.PodCIDRs = node.Spec.PodCIDRs
	kept.Spec.Unschedulable = node.Spec.Unschedulable
	for _, taint := range node.Spec.Taints {
		if contract.MarksDeletion(taint) {
			kept.Spec.Taints = append(kept.Spec.Taints, taint)
		}
	}
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
