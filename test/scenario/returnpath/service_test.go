//go:build linux

package returnpath

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// way is one way in which a client of the Internet is served.
type way struct {
	name string
	// address and port are what the client asks for.
	address string
	port    int
	// answer is the server that must answer.
	answer string
	// policy and endpoint describe the Service behind it; a program of the node has none.
	policy   corev1.ServiceExternalTrafficPolicy
	endpoint string
}

func ways() []way {
	const cluster, local = corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal
	return []way{
		{"Service, policy Cluster, endpoint on this node", vipOne, 80, holder, cluster, holder},
		{"Service, policy Cluster, endpoint on another node", vipOne, 81, other, cluster, other},
		{"Service, policy Local", vipOne, 82, holder, local, holder},
		{"Service in a second block, policy Cluster", vipTwo, 80, other, cluster, other},
		{"Service in a second block, policy Local", vipTwo, 81, holder, local, holder},
		{"program of the node, a Service's address", vipOne, hostPort, "the node", "", ""},
		{"program of the node, the node's own address", nodeIP, hostPort, "the node", "", ""},
	}
}

func (w way) url() string { return fmt.Sprintf("http://%s:%d/", w.address, w.port) }

// createServices makes a Service of type LoadBalancer for every way that needs one, as the controller publishes it.
func (h *harness) createServices() {
	h.T.Helper()
	services := h.Kube.CoreV1().Services(metav1.NamespaceDefault)
	for i, w := range ways() {
		if w.endpoint == "" {
			continue
		}
		name := fmt.Sprintf("way-%d", i)
		service, err := services.Create(h.T.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: w.policy,
				Ports: []corev1.ServicePort{{Name: "http", Port: int32(w.port),
					TargetPort: intstr.FromInt32(backendPort)}},
			},
		}, metav1.CreateOptions{})
		h.Must("create "+name, err)
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: w.address,
			IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)}}
		_, err = services.UpdateStatus(h.T.Context(), service, metav1.UpdateOptions{})
		h.Must("publish "+name, err)
		_, err = h.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(h.T.Context(),
			endpoints(name, w.endpoint), metav1.CreateOptions{})
		h.Must("endpoints of "+name, err)
	}
}

func endpoints(service, server string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(backendPort)),
			Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{podOf(server).String()}, NodeName: ptr.To(server),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		}},
	}
}

// podOf is the address of a server's backend.
func podOf(server string) netip.Addr {
	for _, s := range servers() {
		if s.Name == server {
			host := s.Pods.Masked().Addr().As4()
			host[3] = 10
			return netip.AddrFrom4(host)
		}
	}
	return netip.Addr{}
}
