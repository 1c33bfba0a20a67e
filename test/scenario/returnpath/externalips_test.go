//go:build linux

package returnpath

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

// freePort is a port of vipOne that no Service has which was given the address.
const freePort = 85

// TestExternalIPs measures what the page about security says: the author of any Service takes ports of a published
// address by naming it in spec.externalIPs, for clients of the Internet and for pods, in both modes of kube-proxy.
func TestExternalIPs(t *testing.T) {
	h := newHarness(t)
	h.createServices()
	h.takePorts(80, freePort)
	h.manage() // or the replies go another way
	for _, mode := range []string{"nftables", "iptables"} {
		h.proxyMode(mode)
		taken := fmt.Sprintf("http://%s:%d/", vipOne, freePort)
		for _, from := range []string{lab.Client, lab.PodOf(holder)} {
			what := fmt.Sprintf("kube-proxy in mode %s: the Service that took %s answers %s", mode, taken, from)
			h.within(2*time.Minute, what, func(ctx context.Context) bool {
				return strings.Contains(h.fetch(ctx, from, taken), other)
			})
		}
		inUse := ways()[0]
		t.Logf("%s: %s, given to a Service on %s, is answered by %v", mode, inUse.url(), inUse.answer,
			h.answering(inUse.url()))
	}
	_, _ = fmt.Fprintln(t.Output(), "figure external_ips_served 2 modes of kube-proxy")
}

// takePorts creates a Service without any address that names the first one of the public network as an external IP.
func (h *harness) takePorts(ports ...int32) {
	h.T.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "taker"},
		Spec: corev1.ServiceSpec{ExternalIPs: []string{vipOne}}}
	slice := endpoints(service.Name, other)
	one := slice.Ports[0]
	slice.Ports = nil
	for _, port := range ports {
		name := fmt.Sprintf("p%d", port)
		service.Spec.Ports = append(service.Spec.Ports,
			corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromInt32(backendPort)})
		one.Name = &name
		slice.Ports = append(slice.Ports, one)
	}
	_, err := h.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(h.T.Context(), service, metav1.CreateOptions{})
	h.Must("create "+service.Name, err)
	_, err = h.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(h.T.Context(), slice,
		metav1.CreateOptions{})
	h.Must("endpoints of "+service.Name, err)
}

// answering are the servers that answer a client of the Internet.
func (h *harness) answering(url string) []string {
	h.T.Helper()
	servers := map[string]bool{}
	for range 12 {
		answer := strings.TrimSpace(strings.TrimPrefix(h.fetch(h.T.Context(), lab.Client, url), "hello from "))
		servers[answer] = true
	}
	return slices.Sorted(maps.Keys(servers))
}
