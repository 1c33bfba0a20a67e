package apiserver

import (
	"context"
	"crypto/x509"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// issued is the certificate of every API server; kubeadm and k3s add names to it.
type issued struct {
	sync.Mutex
	x509.Certificate
}

// add adds an address, in the form of text.
func (i *issued) add(address string) {
	i.Lock()
	defer i.Unlock()
	i.IPAddresses = append(i.IPAddresses, netip.MustParseAddr(address).AsSlice())
}

// Names implements Certificates.
func (i *issued) Names(_ context.Context, _ netip.AddrPort, address netip.Addr) (bool, error) {
	i.Lock()
	defer i.Unlock()
	return i.VerifyHostname(address.String()) == nil, nil
}

// advertised is what default/kubernetes leads to.
func advertised(address string) *discoveryv1.EndpointSlice {
	s := slice("kubernetes", "IPv4", []discoveryv1.EndpointPort{port("https", corev1.ProtocolTCP, 6443)}, address)
	return &s
}

// TestWarningsEndByTheirRemedy does what a Warning says: then the endpoint leads to the API servers, their certificate
// is valid for it, and no Warning follows.
func TestWarningsEndByTheirRemedy(t *testing.T) {
	foreign := func() *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: ServiceName},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	}
	for name, test := range map[string]struct {
		objects []runtime.Object
		reason  string
		// advice is a part of the text, with the parameters of remedy.
		advice string
		remedy func(b *bubble, t *testing.T, advised []string)
	}{
		"a certificate without the address": {[]runtime.Object{advertised("192.0.2.1")}, eventCertificateLacksAddress,
			`Add it to the certificate .* apiServer\.certSANs, .* --tls-san=(\S+)`,
			func(b *bubble, _ *testing.T, advised []string) { b.issued.add(advised[1]) }},
		"an API server that advertises loopback": {[]runtime.Object{advertised("127.0.0.1")}, eventNotRoutable,
			`Start kube-apiserver with --advertise-address set to an address of the node`,
			func(b *bubble, t *testing.T, _ []string) {
				_, err := b.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Update(t.Context(),
					advertised("192.0.2.1"), metav1.UpdateOptions{})
				if err != nil {
					t.Fatal(err)
				}
			}},
		"a Service of this name, renamed": {[]runtime.Object{advertised("192.0.2.1"), foreign()}, eventForeign,
			"Rename it", func(b *bubble, t *testing.T, _ []string) {
				services := b.kube.CoreV1().Services(metav1.NamespaceSystem)
				err := services.Delete(t.Context(), ServiceName, metav1.DeleteOptions{})
				if err == nil {
					renamed := foreign()
					renamed.Name = "theirs"
					_, err = services.Create(t.Context(), renamed, metav1.CreateOptions{})
				}
				if err != nil {
					t.Fatal(err)
				}
			}},
		"a Service of this name, handed over": {[]runtime.Object{advertised("192.0.2.1"), foreign()}, eventForeign,
			`label (\S+)=(\S+) and .* add the label`, func(b *bubble, t *testing.T, advised []string) {
				service := b.service(t)
				service.Labels = map[string]string{advised[1]: advised[2]}
				if _, err := b.kube.CoreV1().Services(metav1.NamespaceSystem).Update(t.Context(), service,
					metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, test.objects...)
				b.issued = &issued{}
				b.certificates = b.issued
				if test.reason != eventCertificateLacksAddress {
					b.issued.add(published)
				}
				ctx, cancel := context.WithCancel(testlog.Context(t))
				b.run(ctx, t)
				time.Sleep(resync)
				b.publish(t)
				time.Sleep(2 * resync)
				said := strings.Join(b.heard(), "\n")
				advised := regexp.MustCompile("Warning " + test.reason + " .*" + test.advice).FindStringSubmatch(said)
				if advised == nil {
					t.Fatalf("events %q, want one that advises %s", said, test.advice)
				}
				test.remedy(b, t, advised)
				time.Sleep(2 * resync)
				b.publish(t)
				time.Sleep(10 * resync)
				said = strings.Join(b.heard(), "\n")
				if strings.Contains(said, "Warning") || !strings.Contains(said, eventPublished) {
					t.Errorf("after the remedy there are %q", said)
				}
				cancel()
				if err := <-b.ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// published is the address that the Service gets.
const published = "203.0.113.10"

// publish gives the Service of the endpoint its address, if it is there and managed.
func (b *bubble) publish(t *testing.T) {
	t.Helper()
	service := b.service(t)
	if service == nil || !managed(service) {
		return
	}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: published}}
	_, err := b.kube.CoreV1().Services(metav1.NamespaceSystem).UpdateStatus(t.Context(), service,
		metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// heard are the events since the last call.
func (b *bubble) heard() (all []string) {
	for len(b.events.Events) > 0 {
		all = append(all, <-b.events.Events)
	}
	return all
}
