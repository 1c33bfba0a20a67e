// Package service moves every Service of type LoadBalancer that is ours to a published address and back.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Pauses of the queue. Those after errors are the framework's.
const (
	firstBackoff = 5 * time.Second
	lastBackoff  = 5 * time.Minute
	// leastPause keeps a Service that must be called again at once from spinning.
	leastPause = 50 * time.Millisecond
	// longestPause bounds every other pause, whoever asks for it: no wait is longer than the quarantine of an address.
	longestPause = ipblock.Quarantine
	// conflictPause lets the informer catch up.
	conflictPause     = time.Second
	defaultDriftEvery = time.Minute // how often to check for changes outside of the cluster
)

// Balancer applies one step at a time for a Service. What it changes of the Service it changes in the draft.
type Balancer interface {
	// Ensure takes the next step to a published address. A status is written if it differs, even with an error.
	// *api.RetryError means to wait and call again; *plan.Refusal that a user must act; any other error is retried.
	Ensure(ctx context.Context, d *reconcile.Draft) (*corev1.LoadBalancerStatus, error)
	// Release takes the next step to a Service without anything of ours. nil means that nothing is left.
	Release(ctx context.Context, d *reconcile.Draft) error
	// Drifted returns the Services whose block is not where it should be.
	Drifted(ctx context.Context) ([]types.NamespacedName, error)
	// NetworkOf returns the public network that serves a Service; the zero Named while none does.
	NetworkOf(ctx context.Context, service *corev1.Service) network.Named
}

// Config configures a Controller.
type Config struct {
	// Kube patches Services, and lists EndpointSlices before an event reports that an announcer ignores one.
	Kube kubernetes.Interface
	// Services and Nodes are watched.
	Services coreinformers.ServiceInformer
	Nodes    coreinformers.NodeInformer
	Balancer Balancer
	// Events are recorded on Services.
	Events record.EventRecorder
	// Metrics may be nil.
	Metrics *Metrics
	// Workers is how many Services are synced at a time (--concurrent-service-syncs); 0 means 1.
	Workers int
	// DriftEvery is the time between two checks for changes outside of the cluster; 0 means a minute.
	DriftEvery time.Duration
	// Carriers decides which Nodes may carry traffic of Services; nil for those that each Node names.
	Carriers contract.CarriersOf
	// Announcer is the kind of announcer, see package announcer.
	Announcer string
	// NetworkIn returns the name of a public network in a location, empty without one; nil where there is none.
	NetworkIn func(location string) string
}

// Controller is our service controller, in the place of the framework's
// (k8s.io/cloud-provider/controllers/service). docs/decisions/0002-service-controller.md says why.
type Controller struct {
	config   Config
	services corelisters.ServiceLister
	nodes    corelisters.NodeLister

	announcer announcer.Announcer

	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	states  *stateCache
	changes *nodeChanges
	pass    *pass
}

// New returns a Controller. It registers its informers with their factory and starts nothing.
func New(config Config) *Controller {
	config.Metrics = cmp.Or(config.Metrics, NewMetrics())
	config.DriftEvery = cmp.Or(config.DriftEvery, defaultDriftEvery)
	if config.Carriers == nil {
		config.Carriers = contract.Carriers{}.Everywhere()
	}
	if config.NetworkIn == nil {
		config.NetworkIn = func(string) string { return "" }
	}
	return &Controller{
		config: config, services: config.Services.Lister(), nodes: config.Nodes.Lister(),
		announcer: announcer.For(config.Announcer, announcer.Deps{Kube: config.Kube}),
		states:    newStateCache(), changes: newNodeChanges(), pass: newPass(config.Metrics),
	}
}

// watch puts Services into the queue. It returns functions that report whether the informers have synced.
func (c *Controller) watch() ([]cache.InformerSynced, error) {
	services, err := c.config.Services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.serviceAdded, UpdateFunc: c.serviceChanged, DeleteFunc: c.serviceGone,
	})
	if err != nil {
		return nil, fmt.Errorf("watch Services: %w", err)
	}
	nodes, err := c.config.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.changes.add(true) }, UpdateFunc: c.nodeChanged,
		DeleteFunc: func(any) { c.changes.add(true) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch Nodes: %w", err)
	}
	return []cache.InformerSynced{services.HasSynced, nodes.HasSynced}, nil
}

func (c *Controller) serviceAdded(added any) {
	if service, ok := added.(*corev1.Service); ok && ownershipOf(service) != foreign {
		c.queue.Add(nameOf(service))
	}
}

func (c *Controller) serviceChanged(before, after any) {
	was, ok := before.(*corev1.Service)
	is, ok2 := after.(*corev1.Service)
	if !ok || !ok2 || !concerns(was, is, c.states.published(is)) {
		return
	}
	if ownershipOf(was) == foreign && ownershipOf(is) == wanted {
		c.states.start(is, time.Now())
	}
	c.queue.Add(nameOf(is))
	c.neighboursChanged(was, is)
}

// neighboursChanged queues the Services that have the key of a shared address in common with one whose ports, or key,
// are others: one of them may have to leave the address, and another one may get it.
func (c *Controller) neighboursChanged(was, is *corev1.Service) {
	key := contract.ServiceSharedAddress
	if equality.Semantic.DeepEqual(was.Spec, is.Spec) && was.Annotations[key] == is.Annotations[key] {
		return
	}
	c.queueSharing(was.Annotations[key])
	c.queueSharing(is.Annotations[key])
}

// queueSharing queues the Services with a key of a shared address.
func (c *Controller) queueSharing(key string) {
	if key == "" {
		return
	}
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return // the cache has no errors; the check for drift would find the rest
	}
	for _, service := range all {
		if service.Annotations[contract.ServiceSharedAddress] == key && ownershipOf(service) != foreign {
			c.queue.Add(nameOf(service))
		}
	}
}

// serviceGone queues Services that disappeared before their release: someone removed the finalizer. One that only is
// missing in a new list, a cache.DeletedFinalStateUnknown, may be younger than a backup from which etcd was restored:
// what it has is found by the search for orphans, which waits.
func (c *Controller) serviceGone(last any) {
	if service, ok := last.(*corev1.Service); ok && c.states.vanish(service) {
		c.queue.Add(nameOf(service))
	}
	if service, ok := last.(*corev1.Service); ok {
		c.queueSharing(service.Annotations[contract.ServiceSharedAddress])
	}
}

// Run syncs Services until ctx ends. Then it waits for running syncs and returns nil. It may be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstBackoff, lastBackoff),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "service"},
	)
	defer c.queue.ShutDown()
	synced, err := c.watch()
	if err != nil {
		if ctx.Err() != nil {
			return nil // the informers have ended with everything else
		}
		return err
	}
	if !cache.WaitForNamedCacheSyncWithContext(ctx, synced...) {
		return nil
	}
	var running sync.WaitGroup
	for range max(c.config.Workers, 1) {
		running.Go(func() { c.work(ctx) })
	}
	running.Go(func() { c.watchNodes(ctx) })
	running.Go(func() { c.watchDrift(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

// work takes Services from the queue, one at a time.
func (c *Controller) work(ctx context.Context) {
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			began := time.Now()
			again, err := c.sync(ctx, key)
			c.pass.done(key, time.Since(began), err != nil && !isWaiting(err))
			c.requeue(ctx, key, again, err)
		}
		c.queue.Done(key)
	}
}

// requeue decides when a Service is checked again.
func (c *Controller) requeue(ctx context.Context, key types.NamespacedName, again time.Duration, err error) {
	logger := klog.FromContext(ctx)
	pause, waits := waitOf(err)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		c.queue.Forget(key)
		if again > 0 {
			c.queue.AddAfter(key, min(again, longestPause))
		}
	case waits:
		c.queue.Forget(key)
		c.queue.AddAfter(key, pause)
		logger.V(2).Info("Service waits", "service", key, "again", pause, "reason", err.Error())
	case pnap.IsDryRun(err):
		c.queue.Forget(key)
		logger.Info("Dry run", "service", key, "reason", err.Error())
	default:
		c.queue.AddRateLimited(key)
		logger.Error(err, "Failed to sync Service", "service", key, "failures", c.queue.NumRequeues(key))
	}
}

// waitOf reports whether an error only requests another call, and after how long. A lost compare-and-swap does: another
// client has written, and the informer is about to deliver its change.
func waitOf(err error) (pause time.Duration, waits bool) {
	var retry *api.RetryError
	switch {
	case errors.As(err, &retry):
		return min(max(retry.RetryAfter(), leastPause), longestPause), true
	case apierrors.IsConflict(err):
		return conflictPause, true
	default:
		return 0, false
	}
}

func isWaiting(err error) bool {
	_, waits := waitOf(err)
	return waits
}

// watchDrift checks periodically for changes outside of the cluster.
func (c *Controller) watchDrift(ctx context.Context) {
	ticker := time.NewTicker(c.config.DriftEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		drifted, err := c.config.Balancer.Drifted(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to check for drift")
		}
		for _, key := range drifted {
			klog.FromContext(ctx).V(2).Info("IP block drifted", "service", key)
			c.queue.Add(key)
		}
	}
}
