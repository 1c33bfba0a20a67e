package apiserver_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/apiserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

const (
	// advertised is the address of the API server that default/kubernetes holds; connections to it go to loopback.
	advertised = "203.0.113.77"
	// named and unnamed are published addresses that the API server's certificate is valid for, and is not.
	named, unnamed = "198.51.100.10", "198.51.100.11"
	patience       = 20 * time.Second
)

var cp *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run starts an API server that advertises an address which an EndpointSlice may hold, as real ones do.
func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute)
	defer cancel()
	var err error
	cp, err = controlplane.Start(ctx, controlplane.Options{
		Names: []string{named}, APIServerArgs: []string{"--endpoint-reconciler-type=lease",
			"--advertise-address=" + advertised},
	})
	if err == nil {
		err = cp.ApplyFiles(ctx, "../../../deploy/base/controller.yaml")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := cp.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// world is the cluster as an administrator sees it, and a reconciler that runs as the shipped ServiceAccount.
type world struct {
	t      *testing.T
	kube   kubernetes.Interface
	events *record.FakeRecorder
	heard  []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, kube: kubernetes.NewForConfigOrDie(cp.Config()), events: record.NewFakeRecorder(100)}
	w.until("the API server has written its endpoints", func() error {
		slices, err := w.slices(metav1.NamespaceDefault)
		if err == nil && len(slices) != 1 {
			err = fmt.Errorf("%d slices", len(slices))
		}
		return err
	})
	t.Cleanup(w.clean)
	return w
}

// start runs a reconciler; the function that it returns ends it and waits for it.
func (w *world) start(change ...func(*apiserver.Config)) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(testlog.Context(w.t))
	ended := w.run(ctx, change...)
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		ended <- nil
	}
	w.t.Cleanup(stop)
	return stop
}

// switchOff runs a reconciler that is not enabled until it ends by itself.
func (w *world) switchOff() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(testlog.Context(w.t), patience)
	defer cancel()
	err := <-w.run(ctx, func(c *apiserver.Config) { c.Enabled = false })
	if err != nil || ctx.Err() != nil {
		w.t.Fatalf("the reconciler did not end: %v, %v", err, ctx.Err())
	}
}

func (w *world) run(ctx context.Context, change ...func(*apiserver.Config)) (ended chan error) {
	w.t.Helper()
	account, err := cp.ServiceAccount(ctx, metav1.NamespaceSystem, "phoenixnap-cloud-controller-manager")
	if err != nil {
		w.t.Fatal(err)
	}
	kube := kubernetes.NewForConfigOrDie(account)
	factory := informers.NewSharedInformerFactory(kube, 0)
	config := apiserver.Config{Kube: kube, Services: factory.Core().V1().Services(), Events: w.events,
		Certificates: w.probe(account), Enabled: true}
	for _, c := range change {
		c(&config)
	}
	k, err := apiserver.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	watching, stopWatching := context.WithCancel(ctx)
	factory.StartWithContext(watching)
	ended = make(chan error, 1)
	go func() {
		err := k.Run(ctx)
		stopWatching()
		factory.Shutdown()
		ended <- err
	}()
	return ended
}

// probe reads the real certificate; the advertised address is unused, so the connection is led to loopback.
func (w *world) probe(account *rest.Config) *apiserver.Probe {
	config := rest.CopyConfig(account)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host != advertised {
			return nil, fmt.Errorf("no route to %s", address)
		}
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	}
	probe, err := apiserver.NewProbe(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return probe
}

// clean leaves the cluster as it was found. No garbage collector runs here.
func (w *world) clean() {
	ctx := context.Background()
	err := w.kube.CoreV1().Services(metav1.NamespaceSystem).Delete(ctx, apiserver.ServiceName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Error(err)
	}
	for namespace, selector := range map[string]string{metav1.NamespaceSystem: "",
		metav1.NamespaceDefault: "test=true"} {
		if err := w.kube.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: selector}); err != nil {
			w.t.Error(err)
		}
	}
}

// until asks until check finds nothing to complain about.
func (w *world) until(what string, check func() error) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// service returns the Service; nil when there is none.
func (w *world) service() *corev1.Service {
	w.t.Helper()
	service, err := w.kube.CoreV1().Services(metav1.NamespaceSystem).Get(w.t.Context(), apiserver.ServiceName,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return service
}

// kept waits for a Service of which check has no complaint.
func (w *world) kept(what string, check func(*corev1.Service) error) *corev1.Service {
	w.t.Helper()
	var found *corev1.Service
	w.until(what, func() error {
		if found = w.service(); found == nil {
			return fmt.Errorf("no Service")
		}
		return check(found)
	})
	return found
}

func anyService(*corev1.Service) error { return nil }

func (w *world) slices(namespace string) ([]discoveryv1.EndpointSlice, error) {
	list, err := w.kube.DiscoveryV1().EndpointSlices(namespace).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// mirrored waits until the slices of the Service say exactly this: "address:port readiness", separated by commas.
func (w *world) mirrored(want string) {
	w.t.Helper()
	w.until("the slices of the Service", func() error {
		slices, err := w.slices(metav1.NamespaceSystem)
		if err != nil {
			return err
		}
		service := w.service()
		var have []string
		for _, slice := range slices {
			if service == nil || len(slice.OwnerReferences) != 1 || slice.OwnerReferences[0].UID != service.UID {
				return fmt.Errorf("slice %s belongs to %v", slice.Name, slice.OwnerReferences)
			}
			for _, e := range slice.Endpoints {
				have = append(have, fmt.Sprintf("%s:%d %t", e.Addresses[0], *slice.Ports[0].Port, *e.Conditions.Ready))
			}
		}
		if got := strings.Join(have, ", "); got != want {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}

// publish writes an address into the status, as the service controller does.
func (w *world) publish(address string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q,"ipMode":"VIP"}]}}}`, address)
	w.patch(patch, "status")
}

func (w *world) patch(patch string, subresources ...string) {
	w.t.Helper()
	_, err := w.kube.CoreV1().Services(metav1.NamespaceSystem).Patch(w.t.Context(), apiserver.ServiceName,
		types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		w.t.Fatal(err)
	}
}

// hear waits for an event that holds all the words, and keeps what it heard before.
func (w *world) hear(words ...string) {
	w.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case event := <-w.events.Events:
			w.heard = append(w.heard, event)
			if containsAll(event, words) {
				return
			}
		case <-timeout:
			w.t.Fatalf("no event with %q; heard %q", words, w.heard)
		}
	}
}

func containsAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// second adds an API server to default/kubernetes, as that server would.
func (w *world) second(address string, ready bool) {
	w.t.Helper()
	name := "https"
	protocol := corev1.ProtocolTCP
	port := int32(6443)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "kubernetes-2",
			Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes", "test": "true"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	}
	slices := w.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	_, err := slices.Create(w.t.Context(), slice, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = slices.Update(w.t.Context(), slice, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}
