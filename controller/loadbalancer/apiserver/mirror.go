package apiserver

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// portName is the name of the only port, of the Service and of its EndpointSlices, which belong together by name.
const portName = "https"

const (
	// apiServerSlices selects the EndpointSlices that the API servers write, in the namespace default.
	apiServerSlices = discoveryv1.LabelServiceName + "=" + kubernetesService
	// ourSlices selects the EndpointSlices that we wrote, in the namespace kube-system.
	ourSlices = discoveryv1.LabelManagedBy + "=" + ManagedBy + "," + discoveryv1.LabelServiceName + "=" + ServiceName
)

// mirror is an EndpointSlice to be written, without what depends on the Service.
type mirror struct {
	name      string
	port      int32
	endpoints []discoveryv1.Endpoint
}

// mirrors returns a mirror for each IPv4 slice of the API servers that has a port, by name; one may be empty.
func mirrors(source []discoveryv1.EndpointSlice) []mirror {
	var mirrored []mirror
	for _, slice := range source {
		port, found := apiPort(slice.Ports)
		if slice.AddressType != discoveryv1.AddressTypeIPv4 || slice.DeletionTimestamp != nil || !found {
			continue
		}
		mirrored = append(mirrored, mirror{name: ServiceName + "-" + slice.Name, port: port,
			endpoints: routable(slice.Endpoints)})
	}
	slices.SortFunc(mirrored, func(a, b mirror) int { return strings.Compare(a.name, b.name) })
	return mirrored
}

// apiPort returns the TCP port named https, else the first TCP port.
func apiPort(ports []discoveryv1.EndpointPort) (number int32, found bool) {
	for _, port := range ports {
		if port.Port == nil || (port.Protocol != nil && *port.Protocol != corev1.ProtocolTCP) {
			continue
		}
		if port.Name != nil && *port.Name == portName {
			return *port.Port, true
		}
		if !found {
			number = *port.Port
			found = true
		}
	}
	return number, found
}

// routable returns the endpoints with addresses that an EndpointSlice may contain, by address, without node and zone.
func routable(endpoints []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	kept := make([]discoveryv1.Endpoint, 0, len(endpoints))
	for _, endpoint := range endpoints {
		addresses := slices.DeleteFunc(slices.Clone(endpoint.Addresses), func(a string) bool { return !isRoutable(a) })
		if len(addresses) > 0 {
			kept = append(kept, discoveryv1.Endpoint{Addresses: addresses, Conditions: endpoint.Conditions})
		}
	}
	slices.SortFunc(kept, func(a, b discoveryv1.Endpoint) int {
		return strings.Compare(a.Addresses[0], b.Addresses[0])
	})
	return kept
}

// isRoutable follows ValidateNonSpecialIP of k8s.io/kubernetes.
func isRoutable(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.Is4() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() &&
		!a.IsLinkLocalMulticast()
}

// backends returns the addresses and ports of all API servers.
func backends(mirrored []mirror) []netip.AddrPort {
	var found []netip.AddrPort
	for _, m := range mirrored {
		for _, endpoint := range m.endpoints {
			for _, address := range endpoint.Addresses {
				if a, err := netip.ParseAddr(address); err == nil {
					port := uint16(m.port) //nolint:gosec // the API validates ports
					found = append(found, netip.AddrPortFrom(a, port))
				}
			}
		}
	}
	return found
}

// slice returns the EndpointSlice of the mirror. The Service owns it.
func (m mirror) slice(service *corev1.Service) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: m.name,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: ManagedBy,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Service", Name: service.Name, UID: service.UID,
				Controller: new(true),
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   m.endpoints,
		Ports: []discoveryv1.EndpointPort{
			{Name: new(portName), Protocol: new(corev1.ProtocolTCP), Port: new(m.port)},
		},
	}
}

// outdated reports whether an EndpointSlice of ours must be updated.
func outdated(have, want *discoveryv1.EndpointSlice) bool {
	return !equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) ||
		!equality.Semantic.DeepEqual(have.Ports, want.Ports) ||
		!equality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences)
}

func servicePort(port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: portName, Protocol: corev1.ProtocolTCP, Port: port}
}

// newService returns the Service as it is created: without a selector, because the API servers need not be pods.
func newService(port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: ServiceName, Labels: map[string]string{labelManagedBy: ManagedBy},
		},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeLoadBalancer,
			Ports:      []corev1.ServicePort{servicePort(port)},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
	}
}

// restored returns the Service with our fields as they must be, and whether any was not. All others are the user's:
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
	wanted := servicePort(port)
	if p := service.Spec.Ports; len(p) != 1 || p[0].Name != wanted.Name || p[0].Protocol != wanted.Protocol ||
		p[0].Port != port {
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

// portOf returns the port of the Service: the configured one, else the one that the API servers advertise; 0 for none.
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
