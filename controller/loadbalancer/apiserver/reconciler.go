// Package apiserver keeps a Service of type LoadBalancer through which clients outside of the cluster reach the
// API server.
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

	// labelManagedBy is a recommended label of Kubernetes.
	labelManagedBy = "app.kubernetes.io/managed-by"
	// kubernetesService is the Service in the namespace default whose endpoints the API servers keep themselves.
	kubernetesService = "kubernetes"

	// resync is how often everything is looked at without a cause; a renewed certificate is seen then.
	resync = 10 * time.Minute
	// firstRetry and lastRetry bound the pauses after errors.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// Certificates checks the names in the API servers' certificates.
type Certificates interface {
	// Names reports whether the API server at endpoint serves a certificate that is valid for address. An error
	// means that this could not be determined.
	Names(ctx context.Context, endpoint netip.AddrPort, address netip.Addr) (bool, error)
}

// Config is what a Keeper needs.
type Config struct {
	// Kube is the Kubernetes client.
	Kube kubernetes.Interface
	// Services is the informer of Services; its changes wake the keeper, decisions read the API.
	Services coreinformers.ServiceInformer
	// Events takes events on the Service.
	Events record.EventRecorder
	// Certificates checks the API servers' certificates.
	Certificates Certificates
	// Port is the port of the Service; 0 takes the one that the API servers advertise.
	Port int
	// Enabled is whether there is to be an endpoint. A keeper that is not enabled removes what an enabled one made.
	Enabled bool
}

// Reconciler keeps the Service and its EndpointSlices.
type Reconciler struct {
	config Config
	synced []cache.InformerSynced
	queue  workqueue.TypedRateLimitingInterface[string]
	// slices watches the API servers' endpoints and ours; two small watches in the place of one of the whole cluster.
	slices []cache.SharedIndexInformer
	// told is the last event, and what it was about; it belongs to the goroutine of Run.
	told string
}

// New returns a keeper. It registers with the informer and starts nothing.
func New(config Config) (*Reconciler, error) {
	k := &Reconciler{config: config, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))}
	registration, err := config.Services.Informer().AddEventHandler(k.wakeFor(isOurs))
	if err != nil {
		return nil, fmt.Errorf("watch Services: %w", err)
	}
	k.synced = append(k.synced, registration.HasSynced)
	if !config.Enabled {
		return k, nil
	}
	return k, errors.Join(k.watchSlices(metav1.NamespaceDefault, apiServerSlices),
		k.watchSlices(metav1.NamespaceSystem, ourSlices))
}

// watchSlices prepares the watch of the selected EndpointSlices of a namespace.
func (k *Reconciler) watchSlices(namespace, selector string) error {
	informer := informers.NewSharedInformerFactoryWithOptions(k.config.Kube, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }),
	).Discovery().V1().EndpointSlices().Informer()
	registration, err := informer.AddEventHandler(k.wakeFor(func(any) bool { return true }))
	if err != nil {
		return fmt.Errorf("watch EndpointSlices of namespace %s: %w", namespace, err)
	}
	k.slices = append(k.slices, informer)
	k.synced = append(k.synced, registration.HasSynced)
	return nil
}

// Name of the keeper among the framework's controllers.
func (k *Reconciler) Name() string { return "phoenixnap-control-plane" }

// wakeFor returns a handler that asks for a look at everything; there is but one item to be kept.
func (k *Reconciler) wakeFor(concerns func(object any) bool) cache.ResourceEventHandler {
	wake := func(any) { k.queue.Add(ServiceName) }
	return cache.FilteringResourceEventHandler{FilterFunc: concerns, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(any, any) { k.queue.Add(ServiceName) }, DeleteFunc: wake,
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

// Run keeps the endpoint until ctx ends, and then returns nil. A keeper that is not enabled returns as soon as
// nothing is left.
func (k *Reconciler) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, k.queue.ShutDown)
	defer stop()
	if k.config.Enabled {
		var watches sync.WaitGroup
		defer watches.Wait()
		for _, informer := range k.slices {
			watches.Go(func() { informer.RunWithContext(ctx) })
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), k.synced...) {
		return nil
	}
	k.queue.Add(ServiceName)
	for k.next(ctx) {
	}
	return nil
}

// next looks at everything once; false says that there is nothing more to be done.
func (k *Reconciler) next(ctx context.Context) bool {
	item, ended := k.queue.Get()
	if ended {
		return false
	}
	defer k.queue.Done(item)
	err := k.sync(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		klog.FromContext(ctx).Error(err, "Failed to update the control-plane endpoint")
		k.queue.AddRateLimited(item)
	case err == nil && k.config.Enabled:
		k.queue.Forget(item)
		k.queue.AddAfter(item, resync)
	}
	return err != nil || k.config.Enabled
}
