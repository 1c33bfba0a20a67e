package service

import (
	"context"
	"encoding/json"
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
	service = service.DeepCopy()
	owned := ownershipOf(service)
	if owned == wanted {
		return c.serve(ctx, service) // whatever an earlier Service of that name had, it takes over
	}
	if err := c.releaseVanished(ctx, key); err != nil {
		return 0, err
	}
	// What is foreign now was ours if its finalizer was removed while another finalizer keeps it.
	if owned == leaving || c.states.knows(service) {
		return 0, c.release(ctx, service)
	}
	c.states.forget(key)
	return 0, nil
}

// serve takes the next step to a published address.
func (c *Controller) serve(ctx context.Context, service *corev1.Service) (again time.Duration, err error) {
	state := c.states.ofServed(service)
	if reason := unsupported(service); reason != "" {
		if state.recordedRefusal != reason {
			state.recordedRefusal = reason
			c.warn(service, eventUnsupported, reason)
		}
		if len(service.Status.LoadBalancer.Ingress) == 0 {
			return 0, c.patch(ctx, service, unsupportedPatch(service, reason, time.Now()))
		}
		// An existing address stays: removing it would not help.
	}
	if service, err = c.addFinalizer(ctx, service); err != nil {
		return 0, err
	}
	c.recordShortcomings(ctx, service, state)
	c.config.Metrics.syncs.Inc()
	status, err := c.config.Balancer.Ensure(ctx, service)
	if err == nil && status == nil {
		err = fmt.Errorf("the balancer returned no status for Service %s/%s", service.Namespace, service.Name)
	}
	if status != nil {
		if failure := c.writeStatus(ctx, service, status); failure != nil && (err == nil || isWaiting(err)) {
			err = failure
		}
	}
	if err != nil {
		c.recordFailure(ctx, service, state, "", err)
		return 0, err
	}
	c.recordPublished(ctx, service, state, status)
	return c.checkAnnouncer(ctx, service, state, status), nil
}

// addFinalizer adds the finalizer to a Service before anything is bought for it. The answer of the API server counts: a
// webhook may have removed it.
func (c *Controller) addFinalizer(ctx context.Context, service *corev1.Service) (*corev1.Service, error) {
	if slices.Contains(service.Finalizers, finalizerFor(service)) {
		return service, nil
	}
	patched, err := c.send(ctx, service, finalizerPatch(service, time.Now()))
	if isGone(err) || isBeingDeleted(err) {
		return nil, api.NewRetryError("waiting for the latest version of the Service", conflictPause)
	}
	if err == nil && !slices.Contains(patched.Finalizers, finalizerFor(service)) {
		err = fmt.Errorf("the API server did not keep finalizer %s of Service %s/%s, so that nothing is bought; "+
			"exclude Services from the admission webhook that removes it", finalizerFor(service), service.Namespace,
			service.Name)
	}
	if err != nil {
		c.recordFailure(ctx, service, c.states.of(service), "", err)
		return nil, err
	}
	klog.FromContext(ctx).Info("Serving a Service", "service", klog.KObj(service), "finalizer", finalizerFor(service))
	c.inform(service, eventEnsuring, textEnsuring)
	return patched, nil
}

// writeStatus publishes a status if it differs.
func (c *Controller) writeStatus(ctx context.Context, service *corev1.Service,
	status *corev1.LoadBalancerStatus) error {
	c.states.publish(service, status)
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
		return nil // any Service of this name is another one
	}
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Wrote a status", "service", klog.KObj(service), "addresses", addressesOf(status))
	return nil
}

// release takes the next step to a Service without anything of ours.
func (c *Controller) release(ctx context.Context, service *corev1.Service) error {
	state := c.states.of(service)
	finalizers := ownFinalizers(service)
	if !state.leaving && len(finalizers) > 0 {
		state.leaving = true
		c.inform(service, eventDeleting, textDeleting)
	}
	err := c.config.Balancer.Release(ctx, service)
	if err == nil {
		err = c.patch(ctx, service, releasePatch(service, finalizers))
	}
	if err != nil {
		c.recordFailure(ctx, service, state, "failed to delete load balancer: ", err)
		return err
	}
	if len(finalizers) > 0 {
		klog.FromContext(ctx).Info("Released a Service", "service", klog.KObj(service), "finalizers", finalizers)
		c.inform(service, eventDeleted, textDeleted)
	}
	c.states.forget(nameOf(service))
	return nil
}

// releaseVanished releases what a Service had that is gone without being released.
func (c *Controller) releaseVanished(ctx context.Context, key types.NamespacedName) error {
	last := c.states.vanished(key)
	if last == nil {
		return nil
	}
	if err := c.config.Balancer.Release(ctx, last.DeepCopy()); err != nil {
		if !isWaiting(err) && !pnap.IsDryRun(err) && !isReported(err) && ctx.Err() == nil {
			c.warn(last, eventDeleteFailed, "Error deleting load balancer: "+explain(err))
		}
		return err
	}
	klog.FromContext(ctx).Info("Released a Service that is gone", "service", key)
	c.states.forget(key)
	return nil
}

// fieldManager is the name under which the API server records what the controller writes on Services.
const fieldManager = "phoenixnap-cloud-controller-manager"

// Reasons of the condition contract.ServiceConditionAddressPublished before the balancer is called.
const (
	// reasonPending: the Service was taken on, nothing is known yet.
	reasonPending = "Pending"
	// reasonUnsupported: the Service asks for what load balancers here cannot do.
	reasonUnsupported = "Unsupported"
)

// object is a part of a patch.
type object = map[string]any

// finalizerPatch adds the finalizer and a condition in one write: a Service with our finalizer always shows why.
func finalizerPatch(service *corev1.Service, now time.Time) object {
	patch := object{"metadata": object{"uid": service.UID, "finalizers": []string{finalizerFor(service)}}}
	if meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionAddressPublished) == nil {
		patch["status"] = object{"conditions": []metav1.Condition{notPublished(reasonPending,
			"The load balancer is being set up", now)}}
	}
	return patch
}

func notPublished(reason, message string, now time.Time) metav1.Condition {
	condition := contract.NewServiceCondition(contract.ServiceConditionAddressPublished, metav1.ConditionFalse, reason,
		message)
	condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	return condition
}

// unsupportedPatch sets the condition that reports why a Service is not served; nil when it is set already.
func unsupportedPatch(service *corev1.Service, reason string, now time.Time) object {
	conditions := slices.Clone(service.Status.Conditions)
	if !meta.SetStatusCondition(&conditions, notPublished(reasonUnsupported, reason, now)) {
		return nil
	}
	condition := *meta.FindStatusCondition(conditions, contract.ServiceConditionAddressPublished)
	return object{"metadata": object{"uid": service.UID}, "status": object{"conditions": []metav1.Condition{condition}}}
}

// releasePatch removes everything of ours from a Service; nil when there is nothing. A LoadBalancer that is being
// deleted loses only the finalizers: kube-vip may still be reading the rest. The status of another class is not ours.
func releasePatch(service *corev1.Service, finalizers []string) object {
	metadata := object{}
	status := object{}
	if len(finalizers) > 0 {
		metadata["$deleteFromPrimitiveList/finalizers"] = finalizers
	}
	if !contract.Served(service) {
		annotations := object{}
		for _, name := range contract.OwnedServiceAnnotations() {
			if _, found := service.Annotations[name]; found {
				annotations[name] = nil
				metadata["annotations"] = annotations
			}
		}
		var conditions []object
		for _, name := range contract.OwnedServiceConditions() {
			if meta.FindStatusCondition(service.Status.Conditions, name) != nil {
				conditions = append(conditions, object{"$patch": "delete", "type": name})
				status["conditions"] = conditions
			}
		}
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) > 0 {
			status["loadBalancer"] = object{"ingress": nil}
		}
	}
	if len(metadata) == 0 && len(status) == 0 {
		return nil
	}
	metadata["uid"] = service.UID
	return object{"metadata": metadata, "status": status}
}

// patch is send without a result. It ignores a nil patch, and a Service that is gone.
func (c *Controller) patch(ctx context.Context, service *corev1.Service, patch object) error {
	if patch == nil {
		return nil
	}
	if _, err := c.send(ctx, service, patch); err != nil && !isGone(err) {
		return err
	}
	return nil
}

// send patches exactly this Service, not another of its name. The status subresource accepts metadata, too.
func (c *Controller) send(ctx context.Context, service *corev1.Service, patch object) (*corev1.Service, error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch of Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	patched, err := c.config.Kube.CoreV1().Services(service.Namespace).Patch(ctx, service.Name,
		types.StrategicMergePatchType, raw, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err != nil {
		return nil, fmt.Errorf("patch Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return patched, nil
}

// isGone reports whether a patch came too late: the Service is gone, or another has its name.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// isBeingDeleted reports whether the API server rejected a new finalizer because the Service is being deleted.
func isBeingDeleted(err error) bool {
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeForbidden)
	return found && apierrors.IsInvalid(err) && cause.Field == "metadata.finalizers"
}
