package service

import (
	"bytes"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// claim is what there is to do about a Service.
type claim int

const (
	// foreign: nothing, it is somebody else's or nobody's.
	foreign claim = iota
	// wanted: it is to have a load balancer of ours.
	wanted
	// leaving: what it had of ours is to be given back.
	leaving
)

// claimOn decides what there is to do about a Service, from the Service alone.
func claimOn(service *corev1.Service) claim {
	switch {
	case service.DeletionTimestamp == nil && isServed(service):
		return wanted
	case len(ownFinalizers(service)) > 0:
		return leaving
	case !isServed(service) && bearsMarks(service):
		return leaving
	default:
		return foreign
	}
}

// isServed tells whether the Service asks for a load balancer of a class that is ours: none, or
// contract.LoadBalancerClass.
func isServed(service *corev1.Service) bool {
	return service.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(service.Spec.LoadBalancerClass == nil || isOwnClass(service))
}

func isOwnClass(service *corev1.Service) bool {
	return service.Spec.LoadBalancerClass != nil && *service.Spec.LoadBalancerClass == contract.LoadBalancerClass
}

// finalizerFor returns the finalizer that holds a Service while we serve it.
func finalizerFor(service *corev1.Service) string {
	if isOwnClass(service) {
		return contract.LoadBalancerFinalizer
	}
	return servicehelper.LoadBalancerCleanupFinalizer
}

// ownFinalizers returns those finalizers of the Service that are ours to remove.
//
// contract.LoadBalancerFinalizer always is. The framework's is shared by every provider and class: it is
// ours on a Service that we serve, whatever class it had in another life. On any other Service it may
// be somebody else's, because the API server wipes the class when the type changes. There it is ours only if the
// Service shows that we put it there: managed fields say so, or, where they were lost (a restored backup, an
// earlier version), the Service bears our marks and no class of somebody else.
func ownFinalizers(service *corev1.Service) []string {
	return slices.DeleteFunc(slices.Clone(service.Finalizers), func(finalizer string) bool {
		switch finalizer {
		case contract.LoadBalancerFinalizer:
			return false
		case servicehelper.LoadBalancerCleanupFinalizer:
			return !isServed(service) && !holdsWithOurs(service)
		default:
			return true
		}
	})
}

func holdsWithOurs(service *corev1.Service) bool {
	return addedByUs(service) || (service.Spec.LoadBalancerClass == nil && bearsMarks(service))
}

// addedByUs tells whether the API server recorded us as the one who set the framework's finalizer
// (https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management).
func addedByUs(service *corev1.Service) bool {
	path := []byte(`"v:\"` + servicehelper.LoadBalancerCleanupFinalizer + `\""`)
	return slices.ContainsFunc(service.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == fieldManager && entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), path)
	})
}

// marks are the annotations that only the controller writes and that go when the Service leaves.
// Annotations of kube-vip are not among them: users write those too.
func marks() []string {
	return []string{
		contract.ServiceIPAddress, contract.ServiceIPBlock, contract.ServiceIPGateway,
		contract.ServiceIPBlockAssigned, contract.ServiceIPPurchase, contract.ServiceIPOwner,
		contract.ServiceAnnouncedBy, contract.ServiceAnnouncedSince,
	}
}

// conditions are the types of the conditions that the controller writes on Services.
func conditions() []string {
	return []string{
		contract.ServiceConditionBlockAssigned, contract.ServiceConditionAddressPublished, contract.ServiceConditionAnnounced,
	}
}

// bearsMarks tells whether the controller has written on the Service.
func bearsMarks(service *corev1.Service) bool {
	return slices.ContainsFunc(marks(), func(name string) bool { return service.Annotations[name] != "" }) ||
		slices.ContainsFunc(conditions(), func(name string) bool { return meta.FindStatusCondition(service.Status.Conditions, name) != nil })
}
