package balancer_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	utilfeature "k8s.io/component-base/featuregate"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/balancer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/pnapsim"
)

// framework is the real service controller of k8s.io/cloud-provider on a real API server, with the
// account on a clock that runs ten times as fast.
type framework struct {
	t    *testing.T
	kube kubernetes.Interface
	sim  *pnapsim.Sim
}

const (
	unassignTakes = 12 * time.Second // of real time
	clockScale    = 10
)

func newFramework(t *testing.T) *framework {
	t.Helper()
	f := &framework{t: t, kube: kubernetes.NewForConfigOrDie(controlplane.ForTest(t).Config())}
	latency := pnapsim.DefaultLatency()
	latency.Unassign = pnapsim.Duration(unassignTakes * clockScale)
	documents, err := specs()
	if err != nil {
		t.Fatal(err)
	}
	f.sim = pnapsim.New(pnapsim.Config{Clock: pnapsim.NewRealClock(clockScale), Latency: &latency, Specs: documents})
	if err := f.sim.Seed(pnapsim.Seed{Accounts: []pnapsim.AccountSeed{{
		ID: accountID, Clients: []pnapsim.ClientSeed{{ID: clientID, Secret: clientSecret, Judged: true}},
		Networks: []pnapsim.NetworkSeed{{ID: networkID, Name: "public", Location: "ASH", VLAN: 20}},
	}}}); err != nil {
		t.Fatal(err)
	}
	f.run()
	return f
}

// run starts what the leader runs, and ends it with the test.
func (f *framework) run() {
	server := httptest.NewServer(f.sim.Handler())
	f.t.Cleanup(server.Close)
	client, err := pnap.New(pnap.Config{
		BaseURL: server.URL, TokenURL: server.URL + pnap.TokenPath,
		Credentials: func() (string, string, error) { return clientID, clientSecret, nil },
	})
	if err != nil {
		f.t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(f.kube, 0)
	core := factory.Core().V1()
	lb := balancer.New(balancer.Config{
		Cloud: client, Kube: f.kube, Services: core.Services().Lister(), Nodes: core.Nodes().Lister(),
		Events: record.NewFakeRecorder(1000), NetworkID: networkID, Location: "ASH", Interval: 200 * time.Millisecond,
	})
	controller, err := servicecontroller.New(cloud.New(nil, lb), f.kube, core.Services(), core.Nodes(), "kubernetes", utilfeature.NewFeatureGate())
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	factory.Start(ctx.Done())
	ended := make(chan error, 2)
	go func() {
		controller.Run(ctx, 2, controllersmetrics.NewControllerManagerMetrics("test"))
		ended <- nil
	}()
	go func() { ended <- lb.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				f.t.Errorf("ended with %v", err)
			}
		}
		factory.Shutdown()
	})
}

func (f *framework) create(name string) {
	f.t.Helper()
	_, err := f.kube.CoreV1().Services("default").Create(f.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
}

// await polls a Service until it is as wanted and returns how long that took; nil stands for one that is gone.
func (f *framework) await(name, what string, limit time.Duration, wanted func(*corev1.Service) bool) time.Duration {
	f.t.Helper()
	start := time.Now()
	var last *corev1.Service
	err := wait.PollUntilContextTimeout(f.t.Context(), 50*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		service, err := f.kube.CoreV1().Services("default").Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			service, err = nil, nil
		}
		last = service
		return err == nil && wanted(service), err
	})
	if err != nil {
		f.t.Fatalf("Service %s: %s: %v; it is %+v and the account holds %v", name, what, err, last, f.sim.State(accountID).Blocks)
	}
	return time.Since(start)
}

func published(s *corev1.Service) bool { return s != nil && len(s.Status.LoadBalancer.Ingress) == 1 }

// TestFrameworkDrivesTheWholeLife: with the real service controller a Service gets its address, may
// become another type and back, and is deleted without waiting for the framework's back-off.
func TestFrameworkDrivesTheWholeLife(t *testing.T) {
	f := newFramework(t)
	f.create("web")
	f.create("api")
	f.await("web", "published", time.Minute, published)
	f.await("api", "published", time.Minute, published)
	web, err := f.kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := web.Annotations[contract.ServiceIPAddress]
	ingress := web.Status.LoadBalancer.Ingress[0]
	if address == "" || ingress.IP != address || web.Spec.LoadBalancerIP != address || len(ingress.Ports) != 1 || *ingress.IPMode != corev1.LoadBalancerIPModeVIP {
		t.Errorf("annotation %q, spec %q, status %+v", address, web.Spec.LoadBalancerIP, ingress)
	}
	if !meta.IsStatusConditionTrue(web.Status.Conditions, contract.ServiceConditionBlockAssigned) {
		t.Errorf("conditions %v", web.Status.Conditions)
	}

	patch := []byte(`{"spec":{"type":"ClusterIP"}}`)
	if _, err := f.kube.CoreV1().Services("default").Patch(t.Context(), "api", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	took := f.await("api", "released after its type changed", time.Minute, func(s *corev1.Service) bool { return s != nil && len(s.Finalizers) == 0 })
	t.Logf("type changed: released after %s, of which the API took %s", took.Round(time.Millisecond), unassignTakes)
	f.await("api", "cleaned up", 10*time.Second, func(s *corev1.Service) bool {
		return s != nil && len(s.Annotations) == 0 && len(s.Status.Conditions) == 0 && s.Spec.LoadBalancerIP == "" && len(s.Status.LoadBalancer.Ingress) == 0
	})

	if err := f.kube.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	took = f.await("web", "deleted", time.Minute, func(s *corev1.Service) bool { return s == nil })
	t.Logf("deleted after %s, of which the API took %s", took.Round(time.Millisecond), unassignTakes)
	if took > unassignTakes+6*time.Second {
		t.Errorf("deletion took %s though the API takes %s: nobody woke the framework", took, unassignTakes)
	}
	if leaks := f.sim.LeakCheck(clientID); len(leaks) != 0 {
		t.Errorf("blocks left: %v", leaks)
	}
	for _, v := range f.sim.Violations() {
		t.Errorf("the account convicts: %s", v)
	}
}

// TestRefusedPurchaseIsNotRepeatedAtOnce: the intent to buy is written on the Service and taken back after a
// refusal. The framework sees a changed Service each time and calls again at once.
func TestRefusedPurchaseIsNotRepeatedAtOnce(t *testing.T) {
	f := newFramework(t)
	const purchase = "POST /ips/v1/ip-blocks"
	if err := f.sim.Arm(pnapsim.Fault{Method: http.MethodPost, Path: "/ips/v1/ip-blocks", Times: -1, Action: pnapsim.FaultStatus, Status: http.StatusNotAcceptable}); err != nil {
		t.Fatal(err)
	}
	f.create("web")
	f.await("web", "refused", 30*time.Second, func(s *corev1.Service) bool {
		condition := meta.FindStatusCondition(s.Status.Conditions, contract.ServiceConditionBlockAssigned)
		return condition != nil && condition.Reason == "PurchaseRefused"
	})
	before := f.sim.Count(purchase)
	_ = wait.PollUntilContextTimeout(t.Context(), time.Second, 4*time.Second, false, func(context.Context) (bool, error) { return false, nil })
	if after := f.sim.Count(purchase); after > before+1 {
		t.Errorf("%d purchases were tried within 4 s after the first refusal", after-before)
	}
	f.sim.Disarm()
	f.create("api")
	f.await("api", "published, for a refusal of one Service is none of another", time.Minute, published)
}
