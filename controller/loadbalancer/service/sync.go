package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
)

// longWait is how long a Service waits before an event reports it.
const longWait = 30 * time.Second

// sync checks one Service and takes one step. again is when to check again although nothing changes; 0 for
// never.
func (c *Controller) sync(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	service, err := c.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, c.releaseVanished(ctx, key)
	}
	if err != nil {
		return 0, fmt.Errorf("read Service %s: %w", key, err)
	}
	service = service.DeepCopy()
	claim := claimOn(service)
	if claim == wanted {
		return c.serve(ctx, service) // whatever an earlier Service of that name had, it takes over
	}
	if err := c.releaseVanished(ctx, key); err != nil {
		return 0, err
	}
	// What is foreign now was ours if its finalizer was taken away while something else holds it.
	if claim == leaving || c.lives.knows(service) {
		return 0, c.release(ctx, service)
	}
	c.lives.forget(key)
	return 0, nil
}

// serve takes a Service one step nearer to its published address.
func (c *Controller) serve(ctx context.Context, service *corev1.Service) (again time.Duration, err error) {
	life := c.lives.begin(service)
	if reason := unsupported(service); reason != "" {
		c.tellRefusal(service, life, reason)
		if len(service.Status.LoadBalancer.Ingress) == 0 {
			return 0, c.refuse(ctx, service, reason)
		}
		// What it has stays: taking the address away would not help.
	}
	if service, err = c.hold(ctx, service); err != nil {
		return 0, err
	}
	c.tellShortcomings(ctx, service, life)
	c.metrics.syncs.Inc()
	status, err := c.balancer.Ensure(ctx, service)
	if err == nil && status == nil {
		err = fmt.Errorf("the balancer returned no status for Service %s/%s", service.Namespace, service.Name)
	}
	if status != nil {
		if failure := c.writeStatus(ctx, service, status); failure != nil && (err == nil || isWaiting(err)) {
			err = failure
		}
	}
	if err != nil {
		c.tellFailure(ctx, service, life, "", err)
		return 0, err
	}
	c.tellPublished(ctx, service, life, status)
	return c.judgeAnnouncer(ctx, service, life, status), nil
}

// refuse notes on the Service why it is not served.
func (c *Controller) refuse(ctx context.Context, service *corev1.Service, reason string) error {
	patch := refusing(service, reason, time.Now())
	if patch == nil {
		return nil
	}
	if _, err := c.send(ctx, service, patch); err != nil && !isGone(err) {
		return err
	}
	return nil
}

// hold puts the finalizer on a Service before anything is bought for it.
func (c *Controller) hold(ctx context.Context, service *corev1.Service) (*corev1.Service, error) {
	if slices.Contains(service.Finalizers, finalizerFor(service)) {
		return service, nil
	}
	held, err := c.send(ctx, service, holding(service, time.Now()))
	if isGone(err) || isBeingDeleted(err) {
		return nil, api.NewRetryError("waiting for the latest version of the Service", conflictPause)
	}
	if err != nil {
		c.tellFailure(ctx, service, c.lives.of(service), "", err)
		return nil, err
	}
	klog.FromContext(ctx).Info("Serving a Service", "service", klog.KObj(service), "finalizer", finalizerFor(service))
	c.events.Event(service, corev1.EventTypeNormal, eventEnsuring, textEnsuring)
	return held, nil
}

// writeStatus publishes a status where another one stands.
func (c *Controller) writeStatus(ctx context.Context, service *corev1.Service,
	status *corev1.LoadBalancerStatus) error {
	c.lives.publish(service, status)
	if sameStatus(&service.Status.LoadBalancer, status) {
		return nil
	}
	ingress := status.Ingress
	if ingress == nil {
		ingress = []corev1.LoadBalancerIngress{}
	}
	_, err := c.send(ctx, service, object{
		"metadata": object{"uid": service.UID},
		"status":   object{"loadBalancer": object{"ingress": ingress}},
	})
	if isGone(err) {
		return nil // whatever comes after is another Service
	}
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Wrote a status", "service", klog.KObj(service), "addresses", addressesOf(status))
	return nil
}

// release takes a Service one step nearer to having nothing of ours.
func (c *Controller) release(ctx context.Context, service *corev1.Service) error {
	life := c.lives.of(service)
	finalizers := ownFinalizers(service)
	if !life.leaving && len(finalizers) > 0 {
		life.leaving = true
		c.events.Event(service, corev1.EventTypeNormal, eventDeleting, textDeleting)
	}
	err := c.balancer.Release(ctx, service)
	if err == nil {
		err = c.letGo(ctx, service, finalizers)
	}
	if err != nil {
		c.tellFailure(ctx, service, life, "failed to delete load balancer: ", err)
		return err
	}
	if len(finalizers) > 0 {
		klog.FromContext(ctx).Info("Released a Service", "service", klog.KObj(service), "finalizers", finalizers)
		c.events.Event(service, corev1.EventTypeNormal, eventDeleted, textDeleted)
	}
	c.lives.forget(nameOf(service))
	return nil
}

// letGo removes our last traces from a Service.
func (c *Controller) letGo(ctx context.Context, service *corev1.Service, finalizers []string) error {
	patch := lettingGo(service, finalizers)
	if patch == nil {
		return nil
	}
	_, err := c.send(ctx, service, patch)
	if isGone(err) {
		return nil // whatever comes after is another Service
	}
	return err
}

// releaseVanished gives back what a Service had that went without being released.
func (c *Controller) releaseVanished(ctx context.Context, key types.NamespacedName) error {
	last := c.lives.vanished(key)
	if last == nil {
		return nil
	}
	if err := c.balancer.Release(ctx, last.DeepCopy()); err != nil {
		if !isWaiting(err) && !pnap.IsDryRun(err) && !wasTold(err) && ctx.Err() == nil {
			c.events.Event(last, corev1.EventTypeWarning, eventDeleteFailed,
				"Error deleting load balancer: "+stable(err))
		}
		return err
	}
	klog.FromContext(ctx).Info("Released a Service that is gone", "service", key)
	c.lives.forget(key)
	return nil
}

// tellFailure reports an error that users must know: not that a Service waits a moment, nor that the
// process ends.
func (c *Controller) tellFailure(ctx context.Context, service *corev1.Service, life *life, during string, err error) {
	switch {
	case ctx.Err() != nil:
	case isWaiting(err):
		c.tellWaiting(service, life)
	case pnap.IsDryRun(err):
		if text := stable(err); text != life.toldDryRun {
			life.toldDryRun = text
			c.events.Event(service, corev1.EventTypeNormal, eventDryRun, text)
		}
	case wasTold(err):
	default:
		c.events.Event(service, corev1.EventTypeWarning, eventSyncFailed,
			"Error syncing load balancer: "+during+stable(err))
	}
}
