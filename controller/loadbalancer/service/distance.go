package service

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// endpointsAfter is how long the pods of a Service have to become ready before anyone asks where they are, and how
// long after that until the next look while none is ready.
const endpointsAfter = time.Minute

// distance is where requests for a Service arrive and where they are answered, as zones of Nodes. The controller makes
// the location of a server the zone of its Node.
type distance struct{ arrive, answer sets.Set[string] }

// distanceOf finds it. An endpoint of which the zone is not known is answered in the zone "".
func distanceOf(networkID string, nodes []*corev1.Node, endpoints []discoveryv1.EndpointSlice) distance {
	d := distance{arrive: sets.New[string](), answer: sets.New[string]()}
	zones := map[string]string{}
	for _, node := range nodes {
		zone := node.Labels[corev1.LabelTopologyZone]
		zones[node.Name] = zone
		// A list that cannot be read is an obstacle of the Node, and reported as such.
		if n, listed, _ := contract.NodeNetworkOf(node.Annotations, networkID); listed && n.Member {
			d.arrive.Insert(zone)
		}
	}
	for _, slice := range endpoints {
		for _, e := range slice.Endpoints {
			switch {
			case e.Conditions.Ready != nil && !*e.Conditions.Ready:
			case e.NodeName == nil:
				d.answer.Insert("")
			default:
				d.answer.Insert(zones[*e.NodeName])
			}
		}
	}
	return d
}

// isFar reports whether each request travels to another location.
func (d distance) isFar() bool {
	return d.arrive.Len() > 0 && d.answer.Len() > 0 && !d.arrive.Has("") && !d.answer.Has("") &&
		d.arrive.Intersection(d.answer).Len() == 0
}

// describe says how requests travel, and what to do: the Service can be where its endpoints are if a public network is.
func (d distance) describe(networkIn func(location string) string) string {
	list := func(zones sets.Set[string]) string { return text.Clean(strings.Join(sets.List(zones), ", ")) }
	said := fmt.Sprintf("requests arrive in %s, and all ready endpoints are in %s, so each request travels there; run "+
		"pods in %s as well", list(d.arrive), list(d.answer), list(d.arrive))
	for _, location := range sets.List(d.answer) {
		if name := networkIn(location); name != "" {
			return said + ", or delete the Service and create it again with annotation " +
				contract.ServiceNetwork + ": " + name
		}
	}
	return said
}

// isSpread reports whether Nodes are in several zones.
func isSpread(nodes []*corev1.Node) bool {
	zones := sets.New[string]()
	for _, node := range nodes {
		zones.Insert(node.Labels[corev1.LabelTopologyZone])
	}
	return zones.Len() > 1
}

// checkDistance warns once when all requests for a Service travel to another location. again is when to check next; 0
// for never. Where all Nodes are in one location, it costs nothing.
func (c *Controller) checkDistance(ctx context.Context, service *corev1.Service, state *serviceState,
) (again time.Duration) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil || state.distanceChecked || state.publishedAt.IsZero() || !isSpread(nodes) {
		return 0
	}
	if rest := endpointsAfter - time.Since(state.publishedAt); rest > 0 {
		return rest
	}
	slices, err := c.config.Kube.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: service.Name}.String(),
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list EndpointSlices", "service", klog.KObj(service))
		return endpointsAfter
	}
	d := distanceOf(c.config.Balancer.NetworkOf(ctx, service).ID, nodes, slices.Items)
	if d.answer.Len() == 0 {
		return endpointsAfter
	}
	state.distanceChecked = true
	if d.isFar() {
		c.warn(service, eventFar, text.Message(d.describe(c.config.NetworkIn)))
	}
	return 0
}

// sooner is the sooner of two delays, of which 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}
