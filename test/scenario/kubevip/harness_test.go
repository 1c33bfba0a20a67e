//go:build linux

package kubevip

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/labtest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/agentlab"
)

const (
	publicLink  = agentlab.Link
	privateLink = "bond0.4"
	apiServer   = "10.0.0.1"
	nodeGateway = "203.0.113.1"
)

// harness is a cluster whose servers run the shipped agent.
type harness struct{ *agentlab.Cluster }

// newHarness starts everything but kube-vip.
func newHarness(t *testing.T, versions []string, servers int) *harness {
	t.Helper()
	h := &harness{agentlab.New(t, labtest.Servers(servers), "deploy/overlays/kubeadm", "deploy/kube-vip/kube-vip.yaml")}
	files := map[string]string{}
	for _, s := range h.Servers {
		config, err := h.ControlPlane.ServiceAccountOn(t.Context(), metav1.NamespaceSystem, "kube-vip", s.Name)
		files["home-"+s.Name+"/.kube/config"] = h.Kubeconfig("kube-vip-"+s.Name, config, err)
	}
	for _, version := range versions {
		program, err := tools.KubeVIP(t.Context(), version)
		files["kube-vip-"+version] = program
		h.Must("build kube-vip "+version, err)
	}
	h.StartLab(contract.AnnouncerKubeVIP, files, "ip", "setpriv")
	for _, s := range h.Servers {
		h.StartAgent(s.Name, s.Name)
	}
	return h
}

// kubeVIP starts kube-vip for the Services of one namespace, as the shipped manifest sets it, except for the timers of
// its Leases. On a busy machine a Lease of 5 s expires before its holder gets to renew it, so only with -hold they are
// those of the manifest; else they are kube-vip's defaults.
func (h *harness) kubeVIP(version, server, namespace string) int {
	timers := []string{"vip_leaseduration=15", "vip_renewdeadline=10", "vip_retryperiod=2"}
	if limits.Held() {
		timers = []string{"vip_leaseduration=5", "vip_renewdeadline=3", "vip_retryperiod=1"}
	}
	return h.Start(lab.Program{
		Host: server, Name: "kube-vip-" + server + "-" + namespace,
		Args: []string{lab.Path("kube-vip-" + version), "manager"},
		Env: append(timers,
			"HOME="+lab.Path("home-"+server), "vip_arp=true", "vip_interface="+publicLink, "vip_subnet=32",
			"svc_enable=true", "svc_election=true", "cp_enable=false", "cp_namespace=kube-system",
			"vip_nodename="+server, "svc_namespace="+namespace, "prometheus_server=127.0.0.1:0",
		),
	})
}

// serve creates a Service with a published address, as the controller leaves it, without endpoints.
func (h *harness) serve(namespace, name string, annotations map[string]string) netip.Addr {
	h.T.Helper()
	_, err := h.Kube.CoreV1().Namespaces().Create(h.T.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		h.Must("create namespace "+namespace, err)
	}
	address := h.NextAddress()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{
			contract.ServiceIPAddress: address.String(), contract.KubeVIPAddresses: address.String(),
		}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	maps.Copy(service.Annotations, annotations)
	_, err = h.Kube.CoreV1().Services(namespace).Create(h.T.Context(), service, metav1.CreateOptions{})
	h.Must("create Service "+name, err)
	return address
}

// endpoints are ready pods of a Service on some servers, as from the endpoint slice controller: without pods, it leaves
// an empty slice.
func (h *harness) endpoints(namespace, name string, servers ...lab.Server) {
	h.T.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](80), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for i, server := range servers {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.244.%d.2", i)}, NodeName: ptr.To(server.Name),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true),
				Terminating: ptr.To(false)},
		})
	}
	all := h.Kube.DiscoveryV1().EndpointSlices(namespace)
	_, err := all.Update(h.T.Context(), slice, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = all.Create(h.T.Context(), slice, metav1.CreateOptions{})
	}
	h.Must("endpoints of Service "+name, err)
}

// reportNoEndpoints writes the condition that the controller writes when no machine answers and it finds no endpoints.
func (h *harness) reportNoEndpoints(namespace, name string) {
	h.T.Helper()
	services := h.Kube.CoreV1().Services(namespace)
	h.Must("write the condition of Service "+name, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		service, err := services.Get(h.T.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := contract.NewServiceCondition(contract.ServiceConditionAnnounced, metav1.ConditionFalse,
			contract.AnnouncedNoEndpoints, "as the controller writes it")
		condition.LastTransitionTime = metav1.Now()
		service.Status.Conditions = []metav1.Condition{condition}
		_, err = services.UpdateStatus(h.T.Context(), service, metav1.UpdateOptions{})
		return err
	}))
}

func (h *harness) deleteService(namespace, name string) {
	h.T.Helper()
	h.Must("delete Service "+name, h.Kube.CoreV1().Services(namespace).Delete(h.T.Context(), name,
		metav1.DeleteOptions{}))
}

// claim makes a host carry an address and say so, as any announcer does.
func (h *harness) claim(host, link string, address netip.Addr) {
	h.T.Helper()
	h.IP(host, "address", "add", address.String()+"/32", "dev", link)
	h.Sh(host, fmt.Sprintf("busybox arping -U -c 1 -I %s %s", link, address))
}
