package zone

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/utils/ptr"
)

// run does what kubelets do: the pods of a Deployment get addresses and become ready.
func (w *world) run(deployment string) {
	w.Helper()
	pods, err := w.pods(deployment)
	w.ok(err)
	address := netip.MustParseAddr("10.244.0.10")
	for _, pod := range pods {
		address = address.Next()
		pod.Status.Phase = corev1.PodRunning
		pod.Status.PodIP = address.String()
		pod.Status.PodIPs = []corev1.PodIP{{IP: address.String()}}
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		_, err := w.kube.CoreV1().Pods(pod.Namespace).UpdateStatus(w.Context(), &pod, metav1.UpdateOptions{})
		w.ok(err)
	}
}

// kept returns no error if the nodes of each location send the requests for a Service to the endpoints there:
// kube-proxy uses those whose hints name the zone of its Node, if any do.
func (w *world) kept(service string) error {
	slices, err := w.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(w.Context(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return err
	}
	got := map[string]int{}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Hints == nil || len(endpoint.Hints.ForZones) != 1 ||
				endpoint.Hints.ForZones[0].Name != ptr.Deref(endpoint.Zone, "") {
				return fmt.Errorf("endpoint %v in zone %s has the hints %v", endpoint.Addresses,
					ptr.Deref(endpoint.Zone, ""), endpoint.Hints)
			}
			got[endpoint.Hints.ForZones[0].Name]++
		}
	}
	if want := map[string]int{"ASH": replicas / 2, "PHX": replicas / 2}; !maps.Equal(got, want) {
		return fmt.Errorf("endpoints by the zone for which they are: %v, want %v", got, want)
	}
	return nil
}

// A Service with trafficDistribution PreferSameZone has its requests answered in the location where they arrive,
// because the controller makes the location the zone of a Node.
func TestRequestsStayInTheirLocation(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		w.node(name, func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true",
				Effect: corev1.TaintEffectNoSchedule}}
		})
	}
	w.startController()
	const name = "stable"
	w.deploy(name, deployments[name])
	w.until(func() error { return w.spread(name) })
	w.run(name)
	_, err := w.kube.CoreV1().Services(metav1.NamespaceDefault).Create(w.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports:               []corev1.ServicePort{{Port: 80}},
			TrafficDistribution: ptr.To(corev1.ServiceTrafficDistributionPreferSameZone),
		},
	}, metav1.CreateOptions{})
	w.ok(err)
	w.until(func() error { return w.kept(name) })
}
