package apiserver

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newService returns the Service as it is created: without a selector, for its endpoints are the API servers, which
// need not be pods, and IPv4, for so are public blocks.
func newService(port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: ServiceName, Labels: map[string]string{labelManagedBy: ManagedBy},
		},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeLoadBalancer,
			Ports:      []corev1.ServicePort{{Name: portName, Protocol: corev1.ProtocolTCP, Port: port}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
	}
}

// restored returns the Service with what is ours put right, and whether anything was not. All else is the user's:
// annotations (allocation, retention, …), traffic policy, source ranges.
func restored(have *corev1.Service, port int32) (service *corev1.Service, changed bool) {
	service = have.DeepCopy()
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
		changed = true
	}
	if len(service.Spec.Selector) > 0 {
		service.Spec.Selector = nil
		changed = true
	}
	if p := service.Spec.Ports; len(p) != 1 || p[0].Name != portName || p[0].Protocol != corev1.ProtocolTCP ||
		p[0].Port != port {
		wanted := corev1.ServicePort{Name: portName, Protocol: corev1.ProtocolTCP, Port: port}
		if len(p) == 1 {
			wanted.NodePort = p[0].NodePort
		}
		service.Spec.Ports = []corev1.ServicePort{wanted}
		changed = true
	}
	return service, changed
}

// managed reports whether the Service is ours.
func managed(service *corev1.Service) bool { return service.Labels[labelManagedBy] == ManagedBy }

// publishedAt returns the address in the status of the Service; false when there is none yet.
func publishedAt(service *corev1.Service) (netip.Addr, bool) {
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if address, err := netip.ParseAddr(ingress.IP); err == nil {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// portOf decides the port of the Service: the configured one, else the one that the API servers advertise; 0 when
// none advertises any.
func portOf(configured int, mirrored []mirror) int32 {
	switch {
	case configured > 0:
		return int32(configured) //nolint:gosec // the option is at most 65535
	case len(mirrored) > 0:
		return mirrored[0].port
	default:
		return 0
	}
}
