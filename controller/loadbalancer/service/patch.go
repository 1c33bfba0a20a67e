package service

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// fieldManager is the name under which the API server records what the controller writes on Services.
const fieldManager = "phoenixnap-cloud-controller-manager"

// Reasons of the condition contract.ServiceConditionAddressPublished that are known before the balancer is
// asked.
const (
	// reasonPending: the Service was taken on, nothing is known yet.
	reasonPending = "Pending"
	// reasonUnsupported: the Service asks for what load balancers here cannot do.
	reasonUnsupported = "Unsupported"
)

// object is a part of a patch.
type object = map[string]any

// holding is the patch that takes a Service on: the finalizer, and in the same write a condition, so that
// a Service which carries the finalizer of ours always shows that it does.
func holding(service *corev1.Service, now time.Time) object {
	patch := object{"metadata": object{"uid": service.UID, "finalizers": []string{finalizerFor(service)}}}
	if meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionAddressPublished) == nil {
		patch["status"] = object{"conditions": []metav1.Condition{notPublished(reasonPending,
			"The load balancer is being set up", now)}}
	}
	return patch
}

func notPublished(reason, message string, now time.Time) metav1.Condition {
	return metav1.Condition{
		Type: contract.ServiceConditionAddressPublished, Status: metav1.ConditionFalse, Reason: reason,
		Message:            message,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
}

// refusing is the patch that says why a Service is not served; nil when it says so already.
func refusing(service *corev1.Service, reason string, now time.Time) object {
	condition := notPublished(reasonUnsupported, reason, now)
	if old := meta.FindStatusCondition(service.Status.Conditions, condition.Type); old != nil {
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		if *old == condition {
			return nil
		}
	}
	return object{"metadata": object{"uid": service.UID}, "status": object{"conditions": []metav1.Condition{condition}}}
}

// lettingGo is the patch that leaves nothing of ours on a Service; nil when there is nothing. A LoadBalancer that
// is being deleted loses only the finalizers: kube-vip may still be reading the rest. The status of another
// class is not ours.
func lettingGo(service *corev1.Service, finalizers []string) object {
	metadata := object{}
	status := object{}
	if len(finalizers) > 0 {
		metadata["$deleteFromPrimitiveList/finalizers"] = finalizers
	}
	if !contract.Served(service) {
		if annotations := annotationsToDrop(service); len(annotations) > 0 {
			metadata["annotations"] = annotations
		}
		if conditions := conditionsToDrop(service); len(conditions) > 0 {
			status["conditions"] = conditions
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

func annotationsToDrop(service *corev1.Service) object {
	drop := object{}
	for _, name := range contract.OwnedServiceAnnotations() {
		if _, has := service.Annotations[name]; has {
			drop[name] = nil
		}
	}
	return drop
}

func conditionsToDrop(service *corev1.Service) []object {
	var drop []object
	for _, name := range contract.OwnedServiceConditions() {
		if meta.FindStatusCondition(service.Status.Conditions, name) != nil {
			drop = append(drop, object{"$patch": "delete", "type": name})
		}
	}
	return drop
}

// send patches exactly this Service, not another of its name, through the status subresource, which takes
// metadata and status in one write.
func (c *Controller) send(ctx context.Context, service *corev1.Service, patch object) (*corev1.Service, error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch of Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	patched, err := c.kube.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.StrategicMergePatchType,
		raw,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err != nil {
		return nil, fmt.Errorf("patch Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return patched, nil
}

// isGone reports whether a patch came too late: the Service is gone, or another has its name.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// isBeingDeleted reports whether the API server rejected a new finalizer because the Service is being deleted.
func isBeingDeleted(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "object is being deleted")
}
