package service

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// shared is the control plane of all tests of this package.
var shared *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &shared)) }

// cluster is a namespace on a real API server.
type cluster struct {
	t         *testing.T
	kube      kubernetes.Interface
	namespace string
	shop      *shop
	events    *eventLog
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, kube: kubernetes.NewForConfigOrDie(shared.Config()), shop: newShop(), events: newEventLog()}
	namespace, err := c.kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "services-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.namespace = namespace.Name
	return c
}

// start starts a controller, with nothing in its memory, and returns what ends it.
func (c *cluster) start() (stop func()) {
	c.t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(c.kube, 0, informers.WithNamespace(c.namespace))
	return c.run(factory, Config{
		Kube: c.kube, Services: factory.Core().V1().Services(), Nodes: factory.Core().V1().Nodes(),
		Balancer: c.shop, Events: c.events.recorder, Workers: 2,
	})
}

// run starts a controller with its informers and returns what ends both.
func (c *cluster) run(factory informers.SharedInformerFactory, config Config) (stop func()) {
	controller := New(config)
	ctx, cancel := context.WithCancel(context.WithoutCancel(testlog.Context(c.t)))
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("Run ended with %v", err)
		}
		factory.Shutdown()
	}
	c.t.Cleanup(stop)
	return stop
}

func (c *cluster) create(name string, changes ...change) *corev1.Service {
	c.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
			{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}, {Name: "dns", Port: 53,
				Protocol: corev1.ProtocolUDP}, {Name: "http", Port: 80, Protocol: corev1.ProtocolTCP},
		}},
	}
	for _, change := range changes {
		change(service)
	}
	created, err := c.kube.CoreV1().Services(c.namespace).Create(c.t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(service.Status.LoadBalancer.Ingress)+len(service.Status.Conditions) > 0 {
		created.Status = service.Status
		c.writeStatus(created)
	}
	return created
}

// writeStatus writes a status as a client other than the controller.
func (c *cluster) writeStatus(service *corev1.Service) {
	c.t.Helper()
	if _, err := c.kube.CoreV1().Services(c.namespace).UpdateStatus(c.t.Context(), service,
		metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) patch(name, patch string) {
	c.t.Helper()
	if _, err := c.kube.CoreV1().Services(c.namespace).Patch(c.t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) delete(name string) {
	c.t.Helper()
	if err := c.kube.CoreV1().Services(c.namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// read returns a Service; nil for one that is gone.
func (c *cluster) read(ctx context.Context, name string) (*corev1.Service, error) {
	service, err := c.kube.CoreV1().Services(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return service, err
}

func (c *cluster) get(name string) *corev1.Service {
	c.t.Helper()
	service, err := c.read(c.t.Context(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return service
}

// await waits until a Service is as wanted; nil stands for one that is gone.
func (c *cluster) await(name, what string, wanted func(*corev1.Service) bool) *corev1.Service {
	c.t.Helper()
	var last *corev1.Service
	err := wait.PollUntilContextTimeout(c.t.Context(), 20*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			var err error
			last, err = c.read(ctx, name)
			return err == nil && wanted(last), err
		})
	if err != nil {
		c.t.Fatalf("Service %s: %s: %v; it is %s; events: %s", name, what, err, describe(last),
			strings.Join(c.events.all(), " | "))
	}
	return last
}

func describe(service *corev1.Service) string {
	if service == nil {
		return "gone"
	}
	return fmt.Sprintf("type %s finalizers %v annotations %v status %+v", service.Spec.Type, service.Finalizers,
		service.Annotations, service.Status)
}

// awaitCalls waits until the balancer was called so often.
func (c *cluster) awaitCalls(verb, name string, n int) {
	c.t.Helper()
	c.await(name, fmt.Sprintf("%d calls to %s", n, verb),
		func(*corev1.Service) bool { return c.shop.count(verb, name) >= n })
}

// quiet returns when the controller has been given a sign of life twice: a second Service was served from its
// creation to its deletion. What was to happen to others has happened then.
func (c *cluster) quiet() {
	c.t.Helper()
	name := fmt.Sprintf("quiet-%d", time.Now().UnixNano())
	c.create(name)
	c.await(name, "published", isPublished)
	c.delete(name)
	c.await(name, "gone", func(s *corev1.Service) bool { return s == nil })
}

func isPublished(s *corev1.Service) bool { return s != nil && len(s.Status.LoadBalancer.Ingress) == 1 }
