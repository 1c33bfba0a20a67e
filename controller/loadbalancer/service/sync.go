package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// sync checks one Service and takes one step. again is when to check again although nothing changes; 0 for never.
func (c *Controller) sync(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	service, err := c.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, c.releaseVanished(ctx, key)
	}
	if err != nil {
		return 0, fmt.Errorf("read Service %s: %w", key, err)
	}
	if c.states.isOld(service) {
		return 0, api.NewRetryError("waiting for the latest version of the Service", conflictPause)
	}
	d := reconcile.NewDraft(c.config.Kube, service)
	defer func() { c.states.supersede(service, d.Superseded()) }()
	owned := ownershipOf(service)
	if owned == wanted {
		return c.serve(ctx, d) // whatever an earlier Service of that name had, it takes over
	}
	if err := c.releaseVanished(ctx, key); err != nil {
		return 0, err
	}
	// What is foreign now was ours if its finalizer was removed while another finalizer keeps it.
	if owned == leaving || c.states.knows(service) {
		return 0, c.release(ctx, d)
	}
	c.states.forget(key)
	return 0, nil
}

// serve takes the next step to a published address.
func (c *Controller) serve(ctx context.Context, d *reconcile.Draft) (again time.Duration, err error) {
	state := c.states.ofServed(d.Service)
	if reason := unsupported(d.Service); reason != "" {
		if state.recordedRefusal != reason {
			state.recordedRefusal = reason
			c.warn(d.Service, eventUnsupported, reason)
		}
		if len(d.Service.Status.LoadBalancer.Ingress) == 0 {
			setNotPublished(d.Service, reasonUnsupported, reason)
			return 0, save(ctx, d, nil)
		}
		// An existing address stays: removing it would not help.
	}
	if err := c.addFinalizer(ctx, d); err != nil {
		return 0, err
	}
	c.recordShortcomings(ctx, d.Service, state)
	c.config.Metrics.syncs.Inc()
	status, err := c.config.Balancer.Ensure(ctx, d)
	if err == nil && status == nil {
		err = fmt.Errorf("the balancer returned no status for Service %s/%s", d.Service.Namespace, d.Service.Name)
	}
	before := d.Service.Status.LoadBalancer.DeepCopy()
	c.setStatus(ctx, d, status)
	if err = save(ctx, d, err); err != nil {
		c.recordFailure(ctx, d.Service, state, "", err)
		return 0, err
	}
	c.recordPublished(ctx, d.Service, state, before, status)
	return sooner(c.checkAnnouncer(ctx, d.Service, state, status), c.checkDistance(ctx, d.Service, state)), nil
}

// save writes what a sync has changed, also when that has failed: the conditions say why. It returns the error that
// decides what to do next: a failure to write them must not hide what failed before.
func save(ctx context.Context, d *reconcile.Draft, failure error) error {
	err := d.Save(ctx)
	switch {
	case errors.Is(err, reconcile.ErrOutdated):
		if failure == nil || isWaiting(failure) || isRefused(failure) {
			return api.NewRetryError("waiting for the latest version of the Service", conflictPause)
		}
	case err == nil:
	case failure == nil || isWaiting(failure):
		return err
	default:
		klog.FromContext(ctx).Error(err, "Failed to write a Service", "service", klog.KObj(d.Service))
	}
	return failure
}

// addFinalizer adds the finalizer to a Service before anything is bought for it, and a condition in the same write: a
// Service with our finalizer always shows why. The answer of the API server counts: a webhook may have removed it.
func (c *Controller) addFinalizer(ctx context.Context, d *reconcile.Draft) error {
	finalizer := finalizerFor(d.Service)
	if slices.Contains(d.Service.Finalizers, finalizer) {
		return nil
	}
	d.Service.Finalizers = append(d.Service.Finalizers, finalizer)
	if meta.FindStatusCondition(d.Service.Status.Conditions, contract.ServiceConditionAddressPublished) == nil {
		setNotPublished(d.Service, reasonPending, "The load balancer is being set up")
	}
	err := d.Save(ctx)
	if errors.Is(err, reconcile.ErrOutdated) || isBeingDeleted(err) {
		return api.NewRetryError("waiting for the latest version of the Service", conflictPause)
	}
	if err == nil && !slices.Contains(d.Service.Finalizers, finalizer) {
		err = fmt.Errorf("the API server did not keep finalizer %s of Service %s/%s, so that nothing is bought; "+
			"exclude Services from the admission webhook that removes it", finalizer, d.Service.Namespace,
			d.Service.Name)
	}
	if err != nil {
		c.recordFailure(ctx, d.Service, c.states.of(d.Service), "", err)
		return err
	}
	klog.FromContext(ctx).Info("Serving a Service", "service", klog.KObj(d.Service), "finalizer", finalizer)
	c.inform(d.Service, eventEnsuring, textEnsuring)
	return nil
}

// setStatus publishes a status if it differs; nil for no change.
func (c *Controller) setStatus(ctx context.Context, d *reconcile.Draft, status *corev1.LoadBalancerStatus) {
	if status == nil {
		return
	}
	c.states.publish(d.Service, status)
	if sameStatus(&d.Service.Status.LoadBalancer, status) {
		return
	}
	status.DeepCopyInto(&d.Service.Status.LoadBalancer)
	d.AfterSave(func() {
		klog.FromContext(ctx).Info("Wrote a status", "service", klog.KObj(d.Service), "addresses", addressesOf(status))
	})
}

// release takes the next step to a Service without anything of ours.
func (c *Controller) release(ctx context.Context, d *reconcile.Draft) error {
	state := c.states.of(d.Service)
	finalizers := ownFinalizers(d.Service) // what shows that they are ours may be removed below
	if !state.leaving && len(finalizers) > 0 {
		state.leaving = true
		c.inform(d.Service, eventDeleting, textDeleting)
	}
	err := c.config.Balancer.Release(ctx, d)
	if err == nil {
		removeOwned(d.Service, finalizers)
	}
	if err = save(ctx, d, err); err != nil {
		c.recordFailure(ctx, d.Service, state, "failed to delete load balancer: ", err)
		return err
	}
	if len(finalizers) > 0 {
		klog.FromContext(ctx).Info("Released a Service", "service", klog.KObj(d.Service), "finalizers", finalizers)
		c.inform(d.Service, eventDeleted, textDeleted)
	}
	c.states.forget(nameOf(d.Service))
	return nil
}

// releaseVanished releases what a Service had that is gone without being released.
func (c *Controller) releaseVanished(ctx context.Context, key types.NamespacedName) error {
	last := c.states.vanished(key)
	if last == nil {
		return nil
	}
	if err := c.config.Balancer.Release(ctx, reconcile.NewDraft(c.config.Kube, last)); err != nil {
		if !isWaiting(err) && !pnap.IsDryRun(err) && !isReported(err) && ctx.Err() == nil {
			c.warn(last, eventDeleteFailed, "Error deleting load balancer: "+explain(err))
		}
		return err
	}
	klog.FromContext(ctx).Info("Released a Service that is gone", "service", key)
	c.states.forget(key)
	return nil
}

// Reasons of the condition contract.ServiceConditionAddressPublished before the balancer is called.
const (
	// reasonPending: the Service was taken on, nothing is known yet.
	reasonPending = "Pending"
	// reasonUnsupported: the Service asks for what load balancers here cannot do.
	reasonUnsupported = "Unsupported"
)

// setNotPublished sets the condition that says why a Service has no address.
func setNotPublished(service *corev1.Service, reason, message string) {
	meta.SetStatusCondition(&service.Status.Conditions, contract.NewServiceCondition(
		contract.ServiceConditionAddressPublished, metav1.ConditionFalse, reason, message))
}

// removeOwned removes everything of ours from a Service. A LoadBalancer that is being deleted loses only the
// finalizers: kube-vip may still be reading the rest. The status of another class is not ours.
func removeOwned(service *corev1.Service, finalizers []string) {
	service.Finalizers = slices.DeleteFunc(service.Finalizers,
		func(finalizer string) bool { return slices.Contains(finalizers, finalizer) })
	if contract.Served(&service.Spec) {
		return
	}
	for _, name := range contract.OwnedServiceAnnotations() {
		delete(service.Annotations, name)
	}
	for _, name := range contract.OwnedServiceConditions() {
		meta.RemoveStatusCondition(&service.Status.Conditions, name)
	}
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		service.Status.LoadBalancer.Ingress = nil
	}
}

// isBeingDeleted reports whether the API server rejected a new finalizer because the Service is being deleted.
func isBeingDeleted(err error) bool {
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeForbidden)
	return found && apierrors.IsInvalid(err) && cause.Field == "metadata.finalizers"
}
