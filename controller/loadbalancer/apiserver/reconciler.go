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
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// sync reads everything from the API and corrects what differs. The process may end after any of its steps.
func (r *Reconciler) sync(ctx context.Context) error {
	service, err := r.read(ctx, metav1.NamespaceSystem, ServiceName)
	switch {
	case err != nil:
		return err
	case !r.config.Enabled:
		return r.remove(ctx, service)
	case service != nil && !managed(service):
		r.record(service, corev1.EventTypeWarning, eventForeign,
			"The control-plane endpoint needs a Service of this name, but this one lacks the label "+
				labelManagedBy+"="+ManagedBy+" and is not changed. Rename it, or add the label to hand it over")
		return nil
	case service != nil && service.DeletionTimestamp != nil:
		return nil // its deletion wakes us
	default:
		return r.ensure(ctx, service)
	}
}

// ensure updates the Service and its slices. A Service costs money, so it is created only if it can have endpoints.
func (r *Reconciler) ensure(ctx context.Context, service *corev1.Service) error {
	source, err := r.config.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx,
		metav1.ListOptions{LabelSelector: apiServerSlices})
	if err != nil {
		return fmt.Errorf("list the EndpointSlices of the API servers: %w", err)
	}
	mirrored := mirrors(source.Items)
	servers := backends(mirrored)
	if service == nil && len(servers) == 0 {
		kubernetes, err := r.read(ctx, metav1.NamespaceDefault, kubernetesService)
		if err == nil && kubernetes != nil {
			r.recordNotRoutable(kubernetes)
		}
		return err
	}
	service, err = r.ensureService(ctx, service, portOf(r.config.Port, mirrored))
	if err != nil {
		return err
	}
	if err := r.ensureSlices(ctx, service, mirrored); err != nil {
		return err
	}
	if len(servers) == 0 {
		r.recordNotRoutable(service)
		return nil
	}
	r.inspect(ctx, service, servers)
	return nil
}

// read reads a Service live; nil when there is none.
func (r *Reconciler) read(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	service, err := r.config.Kube.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Service %s/%s: %w", namespace, name, err)
	}
	return service, nil
}

// ensureService creates the Service, or corrects our fields in it. A port of 0 is unknown: an existing one is kept.
func (r *Reconciler) ensureService(ctx context.Context, have *corev1.Service, port int32) (*corev1.Service, error) {
	services := r.config.Kube.CoreV1().Services(metav1.NamespaceSystem)
	if have == nil {
		made, err := services.Create(ctx, newService(port), metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("create Service %s/%s: %w", metav1.NamespaceSystem, ServiceName, err)
		}
		klog.FromContext(ctx).Info("Created the Service of the control-plane endpoint", "service", klog.KObj(made),
			"port", port)
		return made, nil
	}
	if port == 0 && len(have.Spec.Ports) > 0 {
		port = have.Spec.Ports[0].Port
	}
	want, changed := restored(have, port)
	if !changed {
		return have, nil
	}
	updated, err := services.Update(ctx, want, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("update Service %s: %w", klog.KObj(have), err)
	}
	klog.FromContext(ctx).Info("Restored the Service of the control-plane endpoint", "service", klog.KObj(updated),
		"port", port)
	return updated, nil
}

// ensureSlices writes the slices that are missing or outdated, and then deletes those that no API server needs.
func (r *Reconciler) ensureSlices(ctx context.Context, service *corev1.Service, mirrored []mirror) error {
	slices := r.config.Kube.DiscoveryV1().EndpointSlices(service.Namespace)
	listed, err := slices.List(ctx, metav1.ListOptions{LabelSelector: ourSlices})
	if err != nil {
		return fmt.Errorf("list the EndpointSlices of Service %s: %w", klog.KObj(service), err)
	}
	have := map[string]*discoveryv1.EndpointSlice{}
	for i := range listed.Items {
		have[listed.Items[i].Name] = &listed.Items[i]
	}
	for _, m := range mirrored {
		if err := r.ensureSlice(ctx, have[m.name], m.slice(service)); err != nil {
			return err
		}
		delete(have, m.name)
	}
	for _, stale := range have {
		if err := r.deleteSlice(ctx, stale); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) ensureSlice(ctx context.Context, have, want *discoveryv1.EndpointSlice) error {
	slices := r.config.Kube.DiscoveryV1().EndpointSlices(want.Namespace)
	var err error
	switch {
	case have == nil:
		_, err = slices.Create(ctx, want, metav1.CreateOptions{})
	case outdated(have, want):
		want.ResourceVersion = have.ResourceVersion
		want.Annotations = have.Annotations
		_, err = slices.Update(ctx, want, metav1.UpdateOptions{})
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("write EndpointSlice %s: %w", klog.KObj(want), err)
	}
	klog.FromContext(ctx).Info("The control-plane endpoint follows the API servers", "slice", klog.KObj(want),
		"endpoints", addressesOf(want))
	return nil
}

// exactly returns options that delete exactly the version that was read.
func exactly(meta metav1.ObjectMeta) metav1.DeleteOptions {
	return metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &meta.UID, ResourceVersion: &meta.ResourceVersion},
	}
}

func (r *Reconciler) deleteSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	err := r.config.Kube.DiscoveryV1().EndpointSlices(slice.Namespace).Delete(ctx, slice.Name,
		exactly(slice.ObjectMeta))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete EndpointSlice %s: %w", klog.KObj(slice), err)
	}
	klog.FromContext(ctx).Info("Deleted an EndpointSlice that no API server needs", "slice", klog.KObj(slice))
	return nil
}

// remove deletes what the controller created while the endpoint was enabled, and nothing else.
func (r *Reconciler) remove(ctx context.Context, service *corev1.Service) error {
	if service != nil && !managed(service) {
		return nil
	}
	if service != nil && service.DeletionTimestamp == nil {
		err := r.config.Kube.CoreV1().Services(service.Namespace).Delete(ctx, service.Name, exactly(service.ObjectMeta))
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete Service %s: %w", klog.KObj(service), err)
		}
		klog.FromContext(ctx).Info("Deleted the Service of the control-plane endpoint, which is switched off",
			"service", klog.KObj(service))
	}
	listed, err := r.config.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: ourSlices})
	if err != nil {
		return fmt.Errorf("list the EndpointSlices of the control-plane endpoint: %w", err)
	}
	for i := range listed.Items {
		if err := r.deleteSlice(ctx, &listed.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// inspect reports whether clients will accept the API servers' certificates at the published address.
func (r *Reconciler) inspect(ctx context.Context, service *corev1.Service, servers []netip.AddrPort) {
	address, published := publishedAt(service)
	if !published {
		r.recorded = ""
		return
	}
	found := result(r.checkAll(ctx, servers, address), address, service.Spec.Ports[0].Port)
	r.record(service, found.eventType, found.reason, found.text)
}

// record records an event unless it is the last one.
func (r *Reconciler) record(service *corev1.Service, eventType, reason, text string) {
	if next := string(service.UID) + reason + text; next != r.recorded {
		r.recorded = next
		r.config.Events.Event(service, eventType, reason, text)
	}
}

func (r *Reconciler) recordNotRoutable(service *corev1.Service) {
	r.record(service, corev1.EventTypeWarning, eventNotRoutable,
		"No API server advertises an IPv4 address that other machines can reach (Service default/kubernetes), "+
			"so the control-plane endpoint leads nowhere. Start kube-apiserver with --advertise-address set to an "+
			"address of the node")
}

func addressesOf(slice *discoveryv1.EndpointSlice) []string {
	var addresses []string
	for _, endpoint := range slice.Endpoints {
		addresses = append(addresses, endpoint.Addresses...)
	}
	return addresses
}
