package apiserver

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

func slice(name string, family discoveryv1.AddressType, ports []discoveryv1.EndpointPort,
	addresses ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: kubernetesService}},
		AddressType: family, Ports: ports,
	}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return s
}

func port(name string, protocol corev1.Protocol, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number}
}

func TestMirrors(t *testing.T) {
	api := []discoveryv1.EndpointPort{port("https", corev1.ProtocolTCP, 6443)}
	for name, tc := range map[string]struct {
		source []discoveryv1.EndpointSlice
		want   []string
	}{
		"none": {nil, nil},
		"one": {[]discoveryv1.EndpointSlice{slice("a", "IPv4", api, "192.0.2.1")},
			[]string{"192.0.2.1:6443"}},
		"ordered by name and address": {[]discoveryv1.EndpointSlice{slice("b", "IPv4", api, "192.0.2.3"), slice("a",
			"IPv4", api, "192.0.2.2", "192.0.2.1")}, []string{"192.0.2.1:6443", "192.0.2.2:6443", "192.0.2.3:6443"}},
		"IPv6 is not published": {[]discoveryv1.EndpointSlice{slice("a", "IPv6", api, "2001:db8::1"),
			slice("b", "IPv4", api, "192.0.2.1")}, []string{"192.0.2.1:6443"}},
		"loopback is left out": {[]discoveryv1.EndpointSlice{slice("a", "IPv4", api, "127.0.0.1", "192.0.2.1",
			"169.254.0.1")}, []string{"192.0.2.1:6443"}},
		"only loopback":  {[]discoveryv1.EndpointSlice{slice("a", "IPv4", api, "127.0.0.1")}, nil},
		"without a port": {[]discoveryv1.EndpointSlice{slice("a", "IPv4", nil, "192.0.2.1")}, nil},
		"no TCP port": {[]discoveryv1.EndpointSlice{slice("a", "IPv4",
			[]discoveryv1.EndpointPort{port("https", corev1.ProtocolUDP, 1)}, "192.0.2.1")}, nil},
		"the port named https": {[]discoveryv1.EndpointSlice{slice("a", "IPv4", []discoveryv1.EndpointPort{port("x",
			corev1.ProtocolTCP, 1), port("https", corev1.ProtocolTCP, 2)}, "192.0.2.1")}, []string{"192.0.2.1:2"}},
		"else the first one": {[]discoveryv1.EndpointSlice{slice("a", "IPv4", []discoveryv1.EndpointPort{port("x",
			corev1.ProtocolTCP, 1), port("y", corev1.ProtocolTCP, 2)}, "192.0.2.1")}, []string{"192.0.2.1:1"}},
	} {
		var got []string
		for _, server := range backends(mirrors(tc.source)) {
			got = append(got, server.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestResult(t *testing.T) {
	server := netip.MustParseAddrPort("192.0.2.1:6443")
	address := netip.MustParseAddr("203.0.113.10")
	good := check{server: server, names: true}
	bad := check{server: server}
	unread := check{server: server, err: errors.New("timeout")}
	for name, tc := range map[string]struct {
		checks []check
		want   string
	}{
		"all name it":               {[]check{good, good}, eventPublished},
		"one lacks it":              {[]check{good, bad, unread}, eventCertificateLacksAddress},
		"one could not be read":     {[]check{unread, good}, eventPublished},
		"none could be read":        {[]check{unread, unread}, eventCertificateUnread},
		"no API server to be asked": {nil, eventCertificateUnread},
	} {
		if got := result(tc.checks, address, 6443); got.reason != tc.want {
			t.Errorf("%s: %s, want %s", name, got.reason, tc.want)
		}
	}
}

// bubble is a reconciler on a Kubernetes API in memory, with time that passes at once.
type bubble struct {
	kube   *fake.Clientset
	events *record.FakeRecorder
	ended  chan error
	// certificates are those of the API servers; nil for none.
	certificates Certificates
	issued       *issued
}

func newBubble(t *testing.T, objects ...runtime.Object) *bubble {
	t.Helper()
	kubernetes := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault,
		Name: kubernetesService}}
	b := &bubble{kube: fake.NewClientset(append(objects, kubernetes)...), events: record.NewFakeRecorder(100),
		ended: make(chan error, 1)}
	return b
}

func (b *bubble) run(ctx context.Context, t *testing.T) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(b.kube, 0)
	reconciler, err := New(Config{
		Kube: b.kube, Services: factory.Core().V1().Services(), Events: b.events, Enabled: true,
		Certificates: b.certificates,
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(ctx)
	go func() {
		err := reconciler.Run(ctx)
		factory.Shutdown()
		b.ended <- err
	}()
	synctest.Wait()
}

func (b *bubble) service(t *testing.T) *corev1.Service {
	t.Helper()
	service, err := b.kube.CoreV1().Services(metav1.NamespaceSystem).Get(t.Context(), ServiceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// No address costs money before there is something for it to lead to.
func TestWithoutARoutableAPIServerNothingIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loopback := slice("kubernetes", "IPv4", []discoveryv1.EndpointPort{port("https", corev1.ProtocolTCP, 6443)},
			"127.0.0.1")
		b := newBubble(t, &loopback)
		ctx, cancel := context.WithCancel(testlog.Context(t))
		b.run(ctx, t)
		time.Sleep(3 * resync)
		if b.service(t) != nil {
			t.Error("a Service was made that leads nowhere")
		}
		if len(b.events.Events) != 1 {
			t.Fatalf("%d events, want one", len(b.events.Events))
		}
		if event := <-b.events.Events; !strings.Contains(event, eventNotRoutable) ||
			!strings.Contains(event, "--advertise-address") {
			t.Error(event)
		}
		routable := loopback.DeepCopy()
		routable.Endpoints[0].Addresses = []string{"192.0.2.1"}
		if _, err := b.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Update(ctx, routable,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if b.service(t) == nil {
			t.Error("no Service though there is an API server now")
		}
		cancel()
		if err := <-b.ended; err != nil {
			t.Error(err)
		}
	})
}

// An API that refuses is asked again, ever more rarely; nothing is lost.
func TestErrorsAreRetriedWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := slice("kubernetes", "IPv4", []discoveryv1.EndpointPort{port("https", corev1.ProtocolTCP, 6443)},
			"192.0.2.1")
		b := newBubble(t, &source)
		var recovered atomic.Bool
		var tries atomic.Int64
		b.kube.PrependReactor("create", "services", func(ktesting.Action) (bool, runtime.Object, error) {
			tries.Add(1)
			return !recovered.Load(), nil, apierrors.NewInternalError(errors.New("no"))
		})
		ctx, cancel := context.WithCancel(testlog.Context(t))
		b.run(ctx, t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := tries.Load(); n < 4 || n > 8 {
			t.Errorf("%d tries in a minute", n)
		}
		recovered.Store(true)
		time.Sleep(lastRetry)
		synctest.Wait()
		if b.service(t) == nil {
			t.Error("no Service after the API recovered")
		}
		cancel()
		if err := <-b.ended; err != nil {
			t.Error(err)
		}
	})
}
