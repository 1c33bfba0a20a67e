package service

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// ownership is what to do about a Service.
type ownership int

const (
	foreign ownership = iota // nothing, it belongs to another controller or to none
	// wanted: it must have a load balancer of ours.
	wanted
	// leaving: what it had of ours must be released.
	leaving
)

// ownershipOf decides what to do about a Service from the Service only.
func ownershipOf(service *corev1.Service) ownership {
	switch {
	case plan.WantsAddress(service):
		return wanted
	case len(ownFinalizers(service)) > 0, !contract.Served(&service.Spec) && contract.HasOwnedFields(service):
		return leaving
	default:
		return foreign
	}
}

// finalizerFor returns the finalizer that a Service has while we serve it.
func finalizerFor(service *corev1.Service) string {
	if contract.HasOwnClass(&service.Spec) {
		return contract.LoadBalancerFinalizer
	}
	return servicehelper.LoadBalancerCleanupFinalizer
}

// ownFinalizers returns those finalizers of the Service that are ours to remove.
//
// contract.LoadBalancerFinalizer always is. The framework's is shared by every provider and class: it is ours on a
// Service that we serve, whatever class it had before. On any other Service it may be another controller's, because the
// API server wipes the class when the type changes. There it is ours only if the Service shows that we added it:
// managed fields say so, or, where they were lost (a restored backup, an earlier version), the Service has fields of
// ours and no other class.
func ownFinalizers(service *corev1.Service) []string {
	return slices.DeleteFunc(slices.Clone(service.Finalizers), func(finalizer string) bool {
		switch finalizer {
		case contract.LoadBalancerFinalizer:
			return false
		case servicehelper.LoadBalancerCleanupFinalizer:
			return !contract.Served(&service.Spec) && !addedByUs(service) &&
				(service.Spec.LoadBalancerClass != nil || !contract.HasOwnedFields(service))
		default:
			return true
		}
	})
}

// addedByUs reports whether the API server recorded us as the client that set the framework's finalizer
// (https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management).
func addedByUs(service *corev1.Service) bool {
	path := []byte(`"v:\"` + servicehelper.LoadBalancerCleanupFinalizer + `\""`)
	return slices.ContainsFunc(service.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == reconcile.FieldManager && entry.FieldsV1 != nil &&
			bytes.Contains(entry.FieldsV1.GetRawBytes(), path)
	})
}

// concerns reports whether an update may change what to do about a Service. Conditions are not compared: they are ours,
// and writing one must not cause the next. published is the status that must be there; nil when that is not known.
func concerns(before, after *corev1.Service, published *corev1.LoadBalancerStatus) bool {
	if ownershipOf(before) == foreign && ownershipOf(after) == foreign {
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

// lostFinalizer reports whether another client removed our finalizer from a Service.
func lostFinalizer(before, after *corev1.Service) bool {
	return slices.Contains(before.Finalizers, finalizerFor(after)) &&
		!slices.Contains(after.Finalizers, finalizerFor(after))
}

// statusEdited reports whether another client replaced the published address. kube-vip writes the same status as we do.
func statusEdited(before, after *corev1.Service, published *corev1.LoadBalancerStatus) bool {
	if sameStatus(&before.Status.LoadBalancer, &after.Status.LoadBalancer) {
		return false
	}
	return published == nil || !sameStatus(&after.Status.LoadBalancer, published)
}

// sameStatus compares addresses, modes and ports, in order. No ipMode means VIP, which old API servers do not set.
func sameStatus(a, b *corev1.LoadBalancerStatus) bool {
	return equality.Semantic.DeepEqual(withModes(a), withModes(b))
}

func withModes(status *corev1.LoadBalancerStatus) []corev1.LoadBalancerIngress {
	ingress := slices.Clone(status.Ingress)
	for i := range ingress {
		if ingress[i].IP != "" && ingress[i].IPMode == nil {
			ingress[i].IPMode = new(corev1.LoadBalancerIPModeVIP)
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

// requestsProxyProtocol reports whether an annotation requests the PROXY protocol, as those of many providers do by its
// name, of AWS also by an attribute and of cloudscale by the protocol of the pool. An address that is announced over
// ARP has no proxy; a backend that waits for the header would drop every connection.
func requestsProxyProtocol(name, value string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "-", "")
	value = strings.ToLower(strings.TrimSpace(value))
	switch {
	case strings.Contains(name, "proxyprotocol"), strings.Contains(name, "ppv2"):
		return !slices.Contains([]string{"", "false", "none", "off", "no", "0", "disabled"}, value)
	case strings.HasSuffix(name, "targetgroupattributes"):
		return strings.Contains(value, "proxy_protocol_v2.enabled=true")
	default:
		return strings.HasSuffix(name, "poolprotocol") && strings.Contains(value, "proxy")
	}
}

// unsupported returns why the Service cannot be served and what to do instead; empty when it can.
func unsupported(service *corev1.Service) string {
	if policy := service.Spec.IPFamilyPolicy; policy != nil && *policy == corev1.IPFamilyPolicyRequireDualStack {
		return "ipFamilyPolicy RequireDualStack: load balancers are IPv4 only; set SingleStack or PreferDualStack"
	}
	if families := service.Spec.IPFamilies; len(families) > 0 && !slices.Contains(families, corev1.IPv4Protocol) {
		return "ipFamilies [IPv6]: load balancers are IPv4 only; set ipFamilies to [IPv4]"
	}
	for _, name := range slices.Sorted(maps.Keys(service.Annotations)) {
		if requestsProxyProtocol(name, service.Annotations[name]) {
			return fmt.Sprintf("annotation %s=%s: there is no proxy that could send the PROXY protocol; remove the "+
				"annotation, and set externalTrafficPolicy: Local to keep the clients' addresses", name,
				text.Quote(service.Annotations[name]))
		}
	}
	return ""
}

// servedInPart reports whether the Service requests IPv6 too, which it does not get.
func servedInPart(service *corev1.Service) bool {
	return slices.Contains(service.Spec.IPFamilies, corev1.IPv6Protocol)
}
