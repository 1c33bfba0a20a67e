package service

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// concerns reports whether an update may change what there is to do about a Service. Conditions are not
// compared: they are ours, and writing one must not be the cause of the next. published is the status
// that must be there; nil when that is not known.
func concerns(before, after *corev1.Service, published *corev1.LoadBalancerStatus) bool {
	if claimOn(before) == foreign && claimOn(after) == foreign {
		return false
	}
	return before.ResourceVersion == after.ResourceVersion || // the informer's periodic resync
		before.UID != after.UID ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
		!maps.Equal(before.Annotations, after.Annotations) ||
		lostFinalizer(before, after) ||
		statusEdited(before, after, published)
}

// lostFinalizer reports whether someone removed our finalizer from a Service. Only we add it.
func lostFinalizer(before, after *corev1.Service) bool {
	return slices.Contains(before.Finalizers, finalizerFor(after)) &&
		!slices.Contains(after.Finalizers, finalizerFor(after))
}

// statusEdited reports whether someone replaced the published address. kube-vip
// writes the same status as we do.
func statusEdited(before, after *corev1.Service, published *corev1.LoadBalancerStatus) bool {
	if sameStatus(&before.Status.LoadBalancer, &after.Status.LoadBalancer) {
		return false
	}
	return published == nil || !sameStatus(&after.Status.LoadBalancer, published)
}

// sameStatus compares addresses, modes and ports, in order. An ingress without ipMode has the mode VIP:
// the API server sets it, older ones do not know it.
func sameStatus(a, b *corev1.LoadBalancerStatus) bool {
	return equality.Semantic.DeepEqual(withModes(a), withModes(b))
}

func withModes(status *corev1.LoadBalancerStatus) []corev1.LoadBalancerIngress {
	vip := corev1.LoadBalancerIPModeVIP
	ingress := slices.Clone(status.Ingress)
	for i := range ingress {
		if ingress[i].IP != "" && ingress[i].IPMode == nil {
			ingress[i].IPMode = &vip
		}
	}
	return ingress
}

// addressesOf returns the addresses in the status.
func addressesOf(status *corev1.LoadBalancerStatus) []string {
	addresses := make([]string, len(status.Ingress))
	for i, ingress := range status.Ingress {
		addresses[i] = ingress.IP
	}
	return addresses
}
