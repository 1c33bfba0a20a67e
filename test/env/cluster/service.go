//go:build linux

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// The Service of the lab.
const (
	Namespace = "default"
	Service   = "web"
)

// CreateService creates a Service of type LoadBalancer with the servers' backends as its endpoints.
func (c *Cluster) CreateService(ctx context.Context) error {
	return c.CreateServiceOn(ctx, Service, c.Servers, nil)
}

// CreateServiceOn creates a Service of a name with annotations, whose endpoints are the backends of some servers.
func (c *Cluster) CreateServiceOn(ctx context.Context, name string, servers []Server,
	annotations map[string]string) error {
	var class *string
	if c.options.Class != "" {
		class = ptr.To(c.options.Class)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Annotations: annotations},
		Spec: corev1.ServiceSpec{
			Type:              corev1.ServiceTypeLoadBalancer,
			LoadBalancerClass: class,
			Ports: []corev1.ServicePort{{Name: "http", Port: servicePort,
				TargetPort: intstr.FromInt32(BackendPort)}},
		},
	}
	if err := c.createEndpoints(ctx, name, service.Spec.Ports[0].Name, servers); err != nil {
		return err
	}
	if _, err := c.Kube.CoreV1().Services(Namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Service %s/%s: %w", Namespace, name, err)
	}
	return nil
}

// CreateEndpoints lists the servers' backends behind the named port of the Service.
func (c *Cluster) CreateEndpoints(ctx context.Context, port string) error {
	return c.createEndpoints(ctx, Service, port, c.Servers)
}

func (c *Cluster) createEndpoints(ctx context.Context, service, port string, servers []Server) error {
	if _, err := c.Kube.DiscoveryV1().EndpointSlices(Namespace).Create(ctx, endpoints(service, port, servers),
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the endpoints of Service %s/%s: %w", Namespace, service, err)
	}
	return nil
}

// endpoints are the backends as the endpoint slice controller would list them.
func endpoints(service, port string, servers []Server) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: service, Namespace: Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To(port), Port: ptr.To(int32(BackendPort)),
			Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, s := range servers {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{s.PodAddress().String()}, NodeName: ptr.To(s.Name),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return slice
}

// setEndpointReady marks the backend of a server.
func (c *Cluster) setEndpointReady(ctx context.Context, server string, ready bool) error {
	slices := c.Kube.DiscoveryV1().EndpointSlices(Namespace)
	slice, err := slices.Get(ctx, Service, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("endpoints of %s: %w", server, err)
	}
	for i := range slice.Endpoints {
		if e := &slice.Endpoints[i]; ptr.Deref(e.NodeName, "") == server {
			e.Conditions.Ready = ptr.To(ready)
		}
	}
	if _, err := slices.Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("endpoints of %s: %w", server, err)
	}
	return nil
}
