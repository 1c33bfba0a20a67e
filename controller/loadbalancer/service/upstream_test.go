package service

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// The cases of this file follow test/integration/service/loadbalancer_test.go of Kubernetes v1.36: what its API
// server and service controller promise for LoadBalancer Services must hold with ours.

// Test_ServiceLoadBalancerDisableAllocateNodePorts, Test_ServiceUpdateLoadBalancerSwitchToDeallocatedNodePorts: with
// and without node ports, a Service keeps what the API server allocated.
func TestNodePortsAreNotChanged(t *testing.T) {
	c := newCluster(t)
	c.start()
	without := false
	ports := func(s *corev1.Service) []int32 {
		var ports []int32
		for _, port := range s.Spec.Ports {
			ports = append(ports, port.NodePort)
		}
		return ports
	}
	with := ports(c.create("with"))
	c.create("without", func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = &without })
	if got := ports(c.await("with", "published", isPublished)); !slices.Equal(got, with) || slices.Contains(got, 0) {
		t.Errorf("node ports %v were %v", got, with)
	}
	if got := ports(c.await("without", "published", isPublished)); !slices.Equal(got, []int32{0, 0, 0}) {
		t.Errorf("node ports %v, want none", got)
	}
	c.patch("with", `{"spec":{"type":"ClusterIP"}}`)
	if got := ports(c.await("with", "let go",
		func(s *corev1.Service) bool { return len(s.Finalizers) == 0 })); !slices.Equal(got, []int32{0, 0, 0}) {
		t.Errorf("node ports %v of a ClusterIP Service", got)
	}
}

// Test_ServiceLoadBalancerEnableLoadBalancerClass and its neighbours: the class cannot be changed, only left by way
// of another type, and a Service follows it there.
//
//proves:known-bugs/load-balancer-class
//proves:service-changes/class
func TestTheClassChangesByWayOfAnotherType(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("web")
	c.await("web", "published", isPublished)
	_, err := c.kube.CoreV1().Services(c.namespace).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"spec":{"loadBalancerClass":"`+contract.LoadBalancerClass+`"}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("the class of a LoadBalancer can be changed: %v", err)
	}
	c.patch("web", `{"spec":{"type":"NodePort"}}`)
	c.await("web", "let go", func(s *corev1.Service) bool { return len(s.Finalizers) == 0 && !c.shop.holds("web") })
	c.patch("web", `{"spec":{"type":"LoadBalancer","loadBalancerClass":"`+contract.LoadBalancerClass+`"}}`)
	web := c.await("web", "published as one of our class", isPublished)
	if !slices.Equal(web.Finalizers, []string{ours}) {
		t.Errorf("finalizers %v", web.Finalizers)
	}
	c.patch("web", `{"spec":{"type":"ClusterIP","loadBalancerClass":null}}`)
	c.await("web", "let go", func(s *corev1.Service) bool { return len(s.Finalizers) == 0 && !c.shop.holds("web") })
	c.patch("web", `{"spec":{"type":"LoadBalancer","loadBalancerClass":"example.com/other"}}`)
	c.quiet()
	if web = c.get("web"); len(web.Finalizers)+len(web.Status.LoadBalancer.Ingress)+len(web.Status.Conditions) != 0 {
		t.Errorf("it is of another class: %s", describe(web))
	}
}

// Test_ServiceLoadBalancerIPMode: the mode that was published is kept, and kept when ports change.
//
//proves:known-bugs/udp
//proves:known-bugs/traffic-policy
//proves:service-changes/ports
func TestPortsFollowTheSpecInOrder(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("web")
	c.await("web", "published", isPublished)
	c.patch("web",
		`{"spec":{"externalTrafficPolicy":"Local","ports":[{"name":"http","port":8080,"protocol":"TCP"},{"name":"quic","port":443,"protocol":"UDP"}]}}`)
	vip := corev1.LoadBalancerIPModeVIP
	want := []corev1.LoadBalancerIngress{{IP: "203.0.113.10", IPMode: &vip, Ports: []corev1.PortStatus{
		{Port: 8080, Protocol: corev1.ProtocolTCP}, {Port: 443, Protocol: corev1.ProtocolUDP},
	}}}
	web := c.await("web", "published with its new ports",
		func(s *corev1.Service) bool { return cmp.Equal(s.Status.LoadBalancer.Ingress, want) })
	if web.Spec.HealthCheckNodePort == 0 {
		t.Error("the API server gave no health check node port for externalTrafficPolicy Local")
	}
}

// Test_LoadBalancer's finalizer cases of the framework's own tests: other finalizers stay where they are.
//
//proves:known-bugs/other-finalizers
func TestOtherFinalizersStay(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("web", heldBy("example.com/first", "example.com/second"))
	c.await("web", "published", isPublished)
	c.delete("web")
	web := c.await("web", "let go", func(s *corev1.Service) bool { return len(s.Finalizers) == 2 })
	if !slices.Equal(web.Finalizers, []string{"example.com/first", "example.com/second"}) || c.shop.holds("web") {
		t.Errorf("%s", describe(web))
	}
	c.quiet()
	if n := c.shop.count("release", "web"); n != 1 {
		t.Errorf("released %d times while others hold it", n)
	}
}
