// Package apiserver maintains a Service of type LoadBalancer through which external clients reach the API server.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// ServiceName is the name of the Service, in the namespace kube-system.
	ServiceName = "phoenixnap-control-plane"
	// ManagedBy marks the Service (label app.kubernetes.io/managed-by) and its EndpointSlices (label
	// endpointslice.kubernetes.io/managed-by) as ours. Objects without it are not changed.
	ManagedBy = "phoenixnap-cloud-controller-manager"

	labelManagedBy = "app.kubernetes.io/managed-by" // a recommended label of Kubernetes
	// kubernetesService is the Service in the namespace default whose endpoints the API servers maintain themselves.
	kubernetesService = "kubernetes"

	// resync is how often everything is checked without a cause, for example a renewed certificate.
	resync = 10 * time.Minute
	// firstRetry and lastRetry bound the pauses after errors.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// Certificates checks the names in the API servers' certificates.
type Certificates interface {
	// Names reports whether the API server at endpoint serves a certificate for address; an error if unknown.
	Names(ctx context.Context, endpoint netip.AddrPort, address netip.Addr) (bool, error)
}

// Config configures a Reconciler.
type Config struct {
	Kube kubernetes.Interface
	// Services is the shared informer; its changes wake the reconciler, decisions read the API.
	Services coreinformers.ServiceInformer
	// Events are recorded on the Service.
	Events record.EventRecorder
	// Certificates checks the API servers' certificates.
	Certificates Certificates
	// Port is the port of the Service; 0 means the one that the API servers advertise.
	Port int
	// Enabled reports whether there must be an endpoint. If not, the reconciler removes an existing one.
	Enabled bool
}

// Reconciler maintains the Service and its EndpointSlices.
type Reconciler struct {
	config Config
	synced []cache.InformerSynced
	queue  workqueue.TypedRateLimitingInterface[string]
	// slices watches the API servers' endpoints and ours: two small watches instead of one of the whole cluster.
	slices   []cache.SharedIndexInformer
	recorded string // the last event; it belongs to the goroutine of Run
}

// New returns a Reconciler. It registers with the informer and starts nothing.
func New(config Config) (*Reconciler, error) {
	r := &Reconciler{config: config, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))}
	registration, err := config.Services.Informer().AddEventHandler(r.wakeFor(isOurs))
	if err != nil {
		return nil, fmt.Errorf("watch Services: %w", err)
	}
	r.synced = append(r.synced, registration.HasSynced)
	if !config.Enabled {
		return r, nil
	}
	return r, errors.Join(r.watchSlices(metav1.NamespaceDefault, apiServerSlices),
		r.watchSlices(metav1.NamespaceSystem, ourSlices))
}

// watchSlices prepares the watch of the selected EndpointSlices of a namespace.
func (r *Reconciler) watchSlices(namespace, selector string) error {
	informer := informers.NewSharedInformerFactoryWithOptions(r.config.Kube, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }),
	).Discovery().V1().EndpointSlices().Informer()
	registration, err := informer.AddEventHandler(r.wakeFor(func(any) bool { return true }))
	if err != nil {
		return fmt.Errorf("watch EndpointSlices of namespace %s: %w", namespace, err)
	}
	r.slices = append(r.slices, informer)
	r.synced = append(r.synced, registration.HasSynced)
	return nil
}

// wakeFor returns a handler that queues the only item.
func (r *Reconciler) wakeFor(concerns func(object any) bool) cache.ResourceEventHandler {
	wake := func(any) { r.queue.Add(ServiceName) }
	return cache.FilteringResourceEventHandler{FilterFunc: concerns, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(_, after any) { wake(after) }, DeleteFunc: wake,
	}}
}

// isOurs reports whether an object of the informer is the Service by name.
func isOurs(object any) bool {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	service, ok := object.(*corev1.Service)
	return ok && service.Namespace == metav1.NamespaceSystem && service.Name == ServiceName
}

// Run maintains the endpoint until ctx ends. If it is not enabled, it returns once nothing is left.
func (r *Reconciler) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, informer := range r.slices {
		watches.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), r.synced...) {
		return nil
	}
	r.queue.Add(ServiceName)
	for r.next(ctx) {
	}
	return nil
}

// next syncs once; false means that nothing is left to do.
func (r *Reconciler) next(ctx context.Context) bool {
	item, ended := r.queue.Get()
	if ended {
		return false
	}
	defer r.queue.Done(item)
	err := r.sync(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		klog.FromContext(ctx).Error(err, "Failed to update the control-plane endpoint")
		r.queue.AddRateLimited(item)
	case err == nil && r.config.Enabled:
		r.queue.Forget(item)
		r.queue.AddAfter(item, resync)
	}
	return err != nil || r.config.Enabled
}
