package service

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// nodeIn is a Node in a location and a public network.
func nodeIn(name, location, networkID string) *corev1.Node {
	return nodeWith(func(n *corev1.Node) {
		n.Name = name
		n.Labels[corev1.LabelTopologyZone] = location
		n.Annotations = nodenet.Member(networkID)
	})
}

// endpointsOn are ready endpoints of a Service on Nodes; an empty name is an endpoint without a Node.
func endpointsOn(service string, nodes ...string) []runtime.Object {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: service,
		Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	for _, name := range nodes {
		e := discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}}
		if name != "" {
			e.NodeName = &name
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	return []runtime.Object{slice}
}

// moveEndpoints has the pods of a Service run on other Nodes.
func (w *clocked) moveEndpoints(service string, nodes ...string) {
	w.t.Helper()
	for _, object := range endpointsOn(service, nodes...) {
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
			if _, err := w.kube.DiscoveryV1().EndpointSlices("shop").Update(w.t.Context(), slice,
				metav1.UpdateOptions{}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// TestDistance: only where it is certain that each request travels it is far.
func TestDistance(t *testing.T) {
	here := nodeIn("here", "ASH", "n")
	there := nodeIn("there", "PHX", "west")
	unknown := nodeIn("unknown", "", "west")
	for name, tc := range map[string]struct {
		nodes     []*corev1.Node
		endpoints []string
		far       bool
	}{
		"there":                          {[]*corev1.Node{here, there}, []string{"there"}, true},
		"here":                           {[]*corev1.Node{here, there}, []string{"here"}, false},
		"both":                           {[]*corev1.Node{here, there}, []string{"there", "here"}, false},
		"none":                           {[]*corev1.Node{here, there}, nil, false},
		"on no Node":                     {[]*corev1.Node{here, there}, []string{"there", ""}, false},
		"on one that is gone":            {[]*corev1.Node{here, there}, []string{"there", "gone"}, false},
		"on one of no zone":              {[]*corev1.Node{here, unknown}, []string{"unknown"}, false},
		"no Node in the network":         {[]*corev1.Node{there}, []string{"there"}, false},
		"one in the network has no zone": {[]*corev1.Node{nodeIn("a", "", "n"), there}, []string{"there"}, false},
	} {
		slice, ok := endpointsOn("web", tc.endpoints...)[0].(*discoveryv1.EndpointSlice)
		if !ok {
			t.Fatal("no EndpointSlice")
		}
		if got := distanceOf("n", tc.nodes, []discoveryv1.EndpointSlice{*slice}); got.isFar() != tc.far {
			t.Errorf("%s: %s", name, got.arrive)
		}
	}
	for _, tc := range [][3]time.Duration{{0, 0, 0}, {time.Second, 0, time.Second}, {0, time.Second, time.Second},
		{time.Minute, time.Second, time.Second}} {
		if got := sooner(tc[0], tc[1]); got != tc[2] {
			t.Errorf("the sooner of %s and %s is %s", tc[0], tc[1], got)
		}
	}
}

// TestPodsThatStartLate: as long as no pod is ready, it is not known where a Service is answered. It is said once.
func TestPodsThatStartLate(t *testing.T) {
	objects := append(endpointsOn("web"), nodeIn("here", "ASH", "n"), nodeIn("there", "PHX", "west"))
	inTime(t, Config{}, func(w *clocked) {
		w.create("web")
		elapse(10 * time.Minute)
		if n := w.events.counts()["Warning "+eventFar]; n > 0 {
			t.Errorf("%d warnings while no pod is ready", n)
		}
		w.moveEndpoints("web", "there")
		elapse(10 * time.Minute)
		w.edit("web", func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		})
		elapse(10 * time.Minute) // another sync
		if n := w.events.counts()["Warning "+eventFar]; n != 1 {
			t.Errorf("%d warnings, want one: %v", n, w.events.all())
		}
	}, objects...)
}
