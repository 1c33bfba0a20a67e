package contract

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// OwnedServiceAnnotations are the annotations of a Service that only the controller writes and that it removes when it
// no longer serves the Service. They are output: other values are corrected and have no effect. Annotations of kube-vip
// are not among them, because users write those too.
func OwnedServiceAnnotations() []string {
	return []string{
		ServiceIPAddress, ServiceIPBlockCIDR, ServiceIPGateway, ServiceIPBlockAssigned,
		ServiceIPOwner, ServiceAnnouncedBy, ServiceAnnouncedSince,
	}
}

// OwnedServiceConditions are the types of the Service conditions that the controller writes.
func OwnedServiceConditions() []string {
	return []string{ServiceConditionBlockAssigned, ServiceConditionAddressPublished, ServiceConditionAnnounced}
}

// NewServiceCondition returns a condition of a Service, without a time. Its message is shortened to text.MessageLimit:
// it may repeat what users, phoenixNAP or Kubernetes wrote, of any length.
func NewServiceCondition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: text.Message(message)}
}

// Served reports whether a Service of this spec is ours: of type LoadBalancer, and of no class or of LoadBalancerClass.
func Served(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer && (spec.LoadBalancerClass == nil || HasOwnClass(spec))
}

// HasOwnClass reports whether a Service of this spec names LoadBalancerClass.
func HasOwnClass(spec *corev1.ServiceSpec) bool {
	return spec.LoadBalancerClass != nil && *spec.LoadBalancerClass == LoadBalancerClass
}

// HasOwnedFields reports whether the controller has written on the Service, whether it still serves it or not.
func HasOwnedFields(service *corev1.Service) bool {
	return HasOwnedConditions(service) || slices.ContainsFunc(OwnedServiceAnnotations(), func(name string) bool {
		return service.Annotations[name] != ""
	})
}

// HasOwnedConditions reports whether the Service has a condition that the controller wrote.
func HasOwnedConditions(service *corev1.Service) bool {
	return slices.ContainsFunc(OwnedServiceConditions(), func(name string) bool {
		return meta.FindStatusCondition(service.Status.Conditions, name) != nil
	})
}

// WrittenForThis reports whether the owned annotations were written for this Service. On a Service that was restored
// from a backup or copied, they describe another Service.
func WrittenForThis(service metav1.Object) bool {
	return service.GetUID() != "" && service.GetAnnotations()[ServiceIPOwner] == string(service.GetUID())
}
