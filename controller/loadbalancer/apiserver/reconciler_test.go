package apiserver_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/apiserver"
)

func first() string { return fmt.Sprintf("%s:%d true", advertised, cp.Port()) }

func TestTheEndpointLeadsToTheAPIServers(t *testing.T) {
	w := newWorld(t)
	w.start()
	service := w.kept("the Service", anyService)
	port := service.Spec.Ports[0]
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.Spec.Selector != nil ||
		service.Spec.LoadBalancerClass != nil ||
		len(service.Spec.Ports) != 1 || int(port.Port) != cp.Port() || port.Name != "https" {
		t.Errorf("the Service is %+v", service.Spec)
	}
	w.mirrored(first())

	w.second("203.0.113.78", true)
	w.mirrored(first() + ", 203.0.113.78:6443 true")
	w.second("203.0.113.78", false)
	w.mirrored(first() + ", 203.0.113.78:6443 false")
	if err := w.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Delete(t.Context(), "kubernetes-2",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.mirrored(first())
}

func TestTheCertificateIsHeldAgainstThePublishedAddress(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	w.kept("the Service", anyService)
	w.publish(unnamed)
	w.hear("Warning", "CertificateNameMissing", unnamed, "certSANs", "--tls-san")
	w.publish(named)
	w.hear("Normal", "ControlPlaneEndpointPublished", fmt.Sprintf("https://%s:%d", named, cp.Port()))
	stop()
	if len(w.heard) != 2 || len(w.events.Events) != 0 {
		t.Errorf("want one event for each state, got %q", w.heard)
	}
}

// An API server that cannot be reached from here has a certificate all the same.
func TestACertificateThatCannotBeReadIsNotCalledBad(t *testing.T) {
	w := newWorld(t)
	w.start(func(c *apiserver.Config) {
		config := cp.Config()
		config.CAData = nil // so that nothing is trusted
		config.CertData = nil
		config.KeyData = nil
		probe, err := apiserver.NewProbe(config)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = probe
	})
	w.kept("the Service", anyService)
	w.publish(named)
	w.hear("Normal", "CertificateNotChecked", named, "certSANs")
}

//proves:known-bugs/control-plane-port
func TestThePortMayBeChosen(t *testing.T) {
	w := newWorld(t)
	w.start(func(c *apiserver.Config) { c.Port = 443 })
	w.kept("port 443", func(s *corev1.Service) error {
		if s.Spec.Ports[0].Port != 443 {
			return fmt.Errorf("port %d", s.Spec.Ports[0].Port)
		}
		return nil
	})
	w.mirrored(first()) // the API servers' own port stays theirs
}

func TestWhatIsOursIsRestoredAndWhatIsNotIsKept(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.kept("the Service", anyService)
	w.mirrored(first())
	nodePort := w.service().Spec.Ports[0].NodePort
	w.patch(`{"metadata":{"annotations":{"phoenixnap.com/ip-retain":"true"}},
		"spec":{"selector":{"app":"other"},"externalTrafficPolicy":"Local","ports":[{"name":"other","port":1}]}}`)
	service := w.kept("the restored Service", func(s *corev1.Service) error {
		if len(s.Spec.Selector) > 0 || s.Spec.Ports[0].Name != "https" || int(s.Spec.Ports[0].Port) != cp.Port() {
			return fmt.Errorf("%+v", s.Spec)
		}
		return nil
	})
	if service.Annotations["phoenixnap.com/ip-retain"] != "true" ||
		service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		t.Errorf("what the user chose is gone: %v %s", service.Annotations, service.Spec.ExternalTrafficPolicy)
	}
	if service.Spec.Ports[0].NodePort == 0 {
		t.Errorf("the node port is gone, it was %d", nodePort)
	}
	w.patch(`{"spec":{"type":"ClusterIP","externalTrafficPolicy":null,"ports":[{"name":"https","port":7,"nodePort":null}]}}`)
	w.kept("the type", func(s *corev1.Service) error {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer || int(s.Spec.Ports[0].Port) != cp.Port() {
			return fmt.Errorf("%s %v", s.Spec.Type, s.Spec.Ports)
		}
		return nil
	})
	slices, err := w.slices(metav1.NamespaceSystem)
	if err != nil || len(slices) != 1 {
		t.Fatalf("%d slices, %v", len(slices), err)
	}
	slices[0].Endpoints = nil
	if _, err := w.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Update(t.Context(), &slices[0],
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.mirrored(first())
}

func TestADeletedServiceIsCreatedAgain(t *testing.T) {
	w := newWorld(t)
	w.start()
	old := w.kept("the Service", anyService)
	w.mirrored(first())
	if err := w.kube.CoreV1().Services(metav1.NamespaceSystem).Delete(t.Context(), apiserver.ServiceName,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.kept("the new Service", func(s *corev1.Service) error {
		if s.UID == old.UID {
			return fmt.Errorf("still the old one")
		}
		return nil
	})
	w.mirrored(first()) // owned by the new Service
}

func TestSwitchedOffItRemovesWhatIsOurs(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	w.kept("the Service", anyService)
	w.mirrored(first())
	stop()
	foreign := w.foreignSlice()
	w.switchOff()
	slices, err := w.slices(metav1.NamespaceSystem)
	if err != nil || w.service() != nil || len(slices) != 1 || slices[0].Name != foreign {
		t.Errorf("%d slices are left, Service: %t, %v", len(slices), w.service() != nil, err)
	}
}

func TestAForeignServiceIsNotChanged(t *testing.T) {
	w := newWorld(t)
	created, err := w.kube.CoreV1().Services(metav1.NamespaceSystem).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: apiserver.ServiceName},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "x"},
			Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop := w.start()
	w.hear("Warning", "ControlPlaneServiceForeign", "app.kubernetes.io/managed-by=")
	stop()
	w.switchOff()
	if now := w.service(); now == nil || now.ResourceVersion != created.ResourceVersion {
		t.Errorf("the Service was touched: %v", now)
	}
	if slices, err := w.slices(metav1.NamespaceSystem); err != nil || len(slices) != 0 {
		t.Errorf("%d slices, %v", len(slices), err)
	}
}

// foreignSlice makes a slice of the Service that another controller keeps.
func (w *world) foreignSlice() string {
	w.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign",
			Labels: map[string]string{discoveryv1.LabelServiceName: apiserver.ServiceName,
				discoveryv1.LabelManagedBy: "someone"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}
	if _, err := w.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(w.t.Context(), slice,
		metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	return slice.Name
}

func TestARestartWritesNothing(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	w.kept("the Service", anyService)
	w.mirrored(first())
	w.publish(named)
	w.hear("ControlPlaneEndpointPublished")
	stop()
	service := w.service()
	slices, err := w.slices(metav1.NamespaceSystem)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		stop := w.start()
		w.hear("ControlPlaneEndpointPublished") // at the end of the first look
		stop()
	}
	again, err := w.slices(metav1.NamespaceSystem)
	if err != nil || len(again) != len(slices) || again[0].ResourceVersion != slices[0].ResourceVersion ||
		w.service().ResourceVersion != service.ResourceVersion {
		t.Errorf("three restarts wrote something: %v", err)
	}
}

// What is left out of the slices is what the API refuses, no more and no less.
func TestRoutableIsWhatTheAPIAccepts(t *testing.T) {
	w := newWorld(t)
	for _, address := range []string{
		"0.0.0.0", "127.0.0.1", "127.9.9.9", "169.254.1.1", "224.0.0.1", "224.0.1.1", "239.1.1.1", "10.0.0.1",
		"192.168.1.1", "100.64.0.1", "255.255.255.255", "203.0.113.1",
	} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "probe"}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}
		_, err := w.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(t.Context(), slice,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		if got, want := apiserver.IsRoutable(address), err == nil; got != want {
			t.Errorf("%s: routable %t, the API says %v", address, got, err)
		}
	}
}
