package service

import (
	"bytes"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// claim is what there is to do about a Service.
type claim int

const (
	// foreign: nothing, it belongs to another controller or to none.
	foreign claim = iota
	// wanted: it must have a load balancer of ours.
	wanted
	// leaving: what it had of ours must be released.
	leaving
)

// claimOn decides what there is to do about a Service; it reads nothing but the Service.
func claimOn(service *corev1.Service) claim {
	switch {
	case contract.WantsAddress(service):
		return wanted
	case len(ownFinalizers(service)) > 0:
		return leaving
	case !contract.Served(service) && contract.HasOwnedFields(service):
		return leaving
	default:
		return foreign
	}
}

// finalizerFor returns the finalizer that holds a Service while we serve it.
func finalizerFor(service *corev1.Service) string {
	if contract.HasOwnClass(service) {
		return contract.LoadBalancerFinalizer
	}
	return servicehelper.LoadBalancerCleanupFinalizer
}

// ownFinalizers returns those finalizers of the Service that are ours to remove.
//
// contract.LoadBalancerFinalizer always is. The framework's is shared by every provider and class: it is
// ours on a Service that we serve, whatever class it had in another life. On any other Service it may
// be another controller's, because the API server wipes the class when the type changes. There it is ours only if the
// Service shows that we put it there: managed fields say so, or, where they were lost (a restored backup, an
// earlier version), the Service bears our marks and no other class.
func ownFinalizers(service *corev1.Service) []string {
	return slices.DeleteFunc(slices.Clone(service.Finalizers), func(finalizer string) bool {
		switch finalizer {
		case contract.LoadBalancerFinalizer:
			return false
		case servicehelper.LoadBalancerCleanupFinalizer:
			return !contract.Served(service) && !holdsWithOurs(service)
		default:
			return true
		}
	})
}

func holdsWithOurs(service *corev1.Service) bool {
	return addedByUs(service) || (service.Spec.LoadBalancerClass == nil && contract.HasOwnedFields(service))
}

// addedByUs reports whether the API server recorded us as the client that set the framework's finalizer
// (https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management).
func addedByUs(service *corev1.Service) bool {
	path := []byte(`"v:\"` + servicehelper.LoadBalancerCleanupFinalizer + `\""`)
	return slices.ContainsFunc(service.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == fieldManager && entry.FieldsV1 != nil &&
			bytes.Contains(entry.FieldsV1.GetRawBytes(), path)
	})
}
