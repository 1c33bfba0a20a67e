package service

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	networkID    = "60473c2509268bc77fd06d29"
	accountID    = "shop-account"
	clientID     = "ccm"
	clientSecret = "a-secret-that-must-not-leak"
	// clockScale is how much faster than real time the account lives.
	clockScale = 20
	// unassignTakes is how long the account takes to unassign a block, in real time.
	unassignTakes = 2 * time.Second
)

// withAccount is a cluster whose Services get their addresses from a phoenixNAP account behind HTTP.
type withAccount struct {
	*cluster
	sim *pnapsim.Sim
	url string
}

func newWithAccount(t *testing.T) *withAccount {
	t.Helper()
	w := &withAccount{cluster: newCluster(t)}
	latency := pnapsim.DefaultLatency()
	latency.Unassign = pnapsim.Duration(unassignTakes * clockScale)
	w.sim, w.url = simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(clockScale), Latency: &latency},
		pnapsim.Seed{Accounts: []pnapsim.AccountSeed{{
			ID: accountID, Clients: []pnapsim.ClientSeed{{ID: clientID, Secret: clientSecret, Judged: true}},
			Networks: []pnapsim.NetworkSeed{{ID: networkID, Name: "public", Location: "ASH", VLAN: 20}},
		}}})
	w.member()
	return w
}

// member creates a Node that may carry the traffic.
func (w *withAccount) member() {
	w.t.Helper()
	nodes := w.kube.CoreV1().Nodes()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace, Annotations: nodenet.Member(networkID)},
		Spec:       corev1.NodeSpec{ProviderID: contract.ProviderID("60473c2509268bc77fd06d31")},
	}
	if _, err := nodes.Create(w.t.Context(), node, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = nodes.Delete(context.WithoutCancel(w.t.Context()), node.Name, metav1.DeleteOptions{})
	})
}

// start starts a controller with the real balancer and returns what ends it.
func (w *withAccount) start() (stop func()) {
	w.t.Helper()
	client, err := pnap.New(pnap.Config{
		BaseURL: w.url, TokenURL: w.url + pnap.TokenPath,
		Credentials: func() (string, string, error) { return clientID, clientSecret, nil },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(w.kube, 0, informers.WithNamespace(w.namespace))
	core := factory.Core().V1()
	load := reconcile.New(reconcile.Config{
		Cloud: client, Account: account.New(account.Config{Cloud: client}),
		Ledgers: allocation.NewStore(shared.IPBlocks(), nil), Buyer: purchase.New(purchase.Config{Cloud: client}),
		Kube: w.kube, Services: core.Services().Lister(), Nodes: core.Nodes().Lister(), Events: w.events.recorder,
		Network: network.Named{Name: v1beta1.DefaultNetwork, ID: networkID}, Options: plan.Options{
			Location: "ASH", Announcer: contract.AnnouncerKubeVIP, MaxRetained: 9, MaxRetainedPerNamespace: 9,
		},
	})
	return w.run(factory, Config{
		Kube: w.kube, Services: core.Services(), Nodes: core.Nodes(), Balancer: load, Events: w.events.recorder,
		Workers: 5, DriftEvery: time.Second, Announcer: contract.AnnouncerKubeVIP,
	})
}

func (w *withAccount) blocks() int { return len(w.sim.State(accountID).Blocks) }

func TestTheRealBalancerFromPurchaseToRelease(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWithAccount(t)
	stop := w.start()
	w.create("web")
	w.create("class", ofClass(contract.LoadBalancerClass))
	for _, name := range []string{"web", "class"} {
		service := w.await(name, "published", isPublished)
		ingress := service.Status.LoadBalancer.Ingress[0]
		if address := service.Annotations[contract.ServiceIPAddress]; address == "" || ingress.IP != address ||
			service.Annotations[contract.KubeVIPAddresses] != address || service.Spec.LoadBalancerIP != address ||
			len(ingress.Ports) != 3 {
			t.Errorf("%s: %s", name, describe(service))
		}
		w.await(name, "with a condition that says so", func(s *corev1.Service) bool {
			return meta.IsStatusConditionTrue(s.Status.Conditions, contract.ServiceConditionAddressPublished)
		})
	}
	counts := w.events.counts()
	if counts["Normal "+eventWaiting] > 2 || counts["Normal "+eventEnsured] != 2 {
		t.Errorf("events %v", counts)
	}
	for reason := range counts {
		if strings.HasPrefix(reason, "Warning ") && reason != "Warning "+eventUnavailable {
			t.Errorf("a normal purchase is reported as %s: %v", reason, w.events.all())
		}
	}
	w.checkRestart(stop)
	w.checkRelease()
	if leaks := w.sim.LeakCheck(clientID); len(leaks) != 0 {
		t.Errorf("blocks left: %v", leaks)
	}
}

// checkRestart starts another process: it writes nothing, in the cluster or in the account.
func (w *withAccount) checkRestart(stop func()) {
	w.t.Helper()
	stop()
	versions := func() []string {
		var all []string
		for _, name := range []string{"web", "class"} {
			all = append(all, w.get(name).ResourceVersion)
		}
		return all
	}
	before := versions()
	lists := w.sim.Count("GET /ips/v1/ip-blocks")
	w.start()
	w.await("web", "looked at", func(*corev1.Service) bool { return w.sim.Count("GET /ips/v1/ip-blocks") > lists+1 })
	if after := versions(); !slices.Equal(before, after) {
		w.t.Errorf("a restart wrote on Services: %v, %v", before, after)
	}
}

// checkRelease changes the type of one Service, deletes the other, and expects all blocks to be gone soon.
func (w *withAccount) checkRelease() {
	w.t.Helper()
	start := time.Now()
	w.patch("web", `{"spec":{"type":"ClusterIP"}}`)
	w.delete("class")
	web := w.await("web", "let go", func(s *corev1.Service) bool { return len(s.Finalizers) == 0 })
	if len(web.Annotations)+len(web.Status.Conditions)+len(web.Status.LoadBalancer.Ingress) != 0 ||
		web.Spec.LoadBalancerIP != "" {
		w.t.Errorf("something of ours is left: %s", describe(web))
	}
	w.await("class", "gone", hasGone)
	// The network takes one change at a time.
	_, _ = fmt.Fprintf(w.t.Output(), "figure two_releases_overhead %.2f s\n",
		(time.Since(start) - 2*unassignTakes).Seconds())
}

// TestARefusalBacksOffThoughTheServiceIsWrittenOn: the intent to buy is written on the Service and taken back, which
// are updates of the Service; they must not lead to the next attempt.
func TestARefusalBacksOffThoughTheServiceIsWrittenOn(t *testing.T) {
	t.Parallel() // most of it is waiting
	const purchases = "POST /ips/v1/ip-blocks"
	w := newWithAccount(t)
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodPost, Path: "/ips/v1/ip-blocks", Times: -1,
		Action: pnapsim.FaultStatus, Status: http.StatusNotAcceptable}); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.create("web")
	const refused = "Warning IPBlockRefused"
	w.await("web", "refused", func(s *corev1.Service) bool { return w.events.counts()[refused] > 0 })
	before := w.sim.Count(purchases)
	_ = wait.PollUntilContextTimeout(t.Context(), time.Second, 3*time.Second, false,
		func(context.Context) (bool, error) { return false, nil })
	if after := w.sim.Count(purchases); after > before+1 {
		t.Errorf("%d purchases were tried within 3 s after the first refusal", after-before)
	}
	if counts := w.events.counts(); counts[refused] != 1 || counts["Warning "+eventSyncFailed] != 0 {
		t.Errorf("the rejected request is reported more than once: %v", counts)
	}
	w.sim.Disarm()
	w.create("api")
	w.await("api", "published, for a refusal of one Service is none of another", isPublished)
	w.delete("web")
	w.delete("api")
	w.await("web", "gone", hasGone)
	w.await("api", "gone", hasGone)
	if n := w.blocks(); n != 0 {
		t.Errorf("%d blocks left", n)
	}
}
