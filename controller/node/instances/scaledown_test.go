package instances

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

const (
	// networkOfMemory is the public network that proves the account.
	networkOfMemory = "60473c2509268bc77fd06d29"
	// silentAfter is how long Kubernetes waits for a silent kubelet before its Node's Ready is Unknown: the default of
	// kube-controller-manager --node-monitor-grace-period.
	silentAfter = 50 * time.Second
)

// memory is an account with some servers of a cluster, and what can be wrong with its answers.
type memory struct {
	account.Cloud

	mu      sync.Mutex
	servers map[string]bool
	// like is what the servers have in common.
	like pnap.Server
	// omitted are missing from the list, although they may exist.
	omitted map[string]bool
	// empty makes the list empty, refused every read by ID fail, foreign all answers those of another account.
	empty, refused, foreign bool
}

// newMemory returns an account with the servers of the cluster and one without a Node.
func newMemory(count int) *memory {
	m := &memory{servers: map[string]bool{"5fa54d1e91867c03a0a7ffff": true}, omitted: map[string]bool{},
		like: pnap.Server{Status: pnap.ServerPoweredOn}}
	for i := range count {
		m.servers[memoryID(i)] = true
	}
	return m
}

func memoryID(i int) string { return fmt.Sprintf("5fa54d1e91867c03a0a7%04x", i) }

// change changes the account.
func (m *memory) change(change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *memory) Servers(context.Context) ([]pnap.Server, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []pnap.Server
	switch {
	case m.empty:
	case m.foreign:
		for i := range max(10, len(m.servers)) {
			list = append(list, pnap.Server{ID: fmt.Sprintf("aaaaaaaaaaaaaaaaaaaa%04x", i)})
		}
	default:
		for id := range m.servers {
			if !m.omitted[id] {
				list = append(list, m.server(id))
			}
		}
	}
	return list, nil
}

func (m *memory) Server(_ context.Context, id string) (pnap.Server, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.foreign || m.refused || !m.servers[id] {
		return pnap.Server{}, &pnap.Error{Op: "read server", Object: id, StatusCode: http.StatusForbidden}
	}
	return m.server(id), nil
}

func (m *memory) server(id string) pnap.Server {
	server := m.like
	server.ID = id
	return server
}

func (m *memory) Network(_ context.Context, id string) (network.Network, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.foreign {
		return network.Network{}, &pnap.Error{Op: "read network", Object: id, StatusCode: http.StatusForbidden}
	}
	return network.Network{ID: id}, nil
}

// framework is the part of the provider that the framework's lifecycle controller uses.
type framework struct {
	cloudprovider.Interface
	instances *Instances
}

func (f framework) Instances() (cloudprovider.Instances, bool)     { return nil, false }
func (f framework) InstancesV2() (cloudprovider.InstancesV2, bool) { return f.instances, true }

// monitored is a cluster whose Nodes the framework's own lifecycle controller deletes, in virtual time.
type monitored struct {
	t    *testing.T
	api  *memory
	kube kubernetes.Interface
}

// monitor starts the lifecycle controller with its default period for a cluster of Ready Nodes.
func monitor(t *testing.T, count int) *monitored {
	t.Helper()
	m := &monitored{t: t, api: newMemory(count), kube: kubefake.NewStore().Client()}
	for i := range count {
		node := newNode(fmt.Sprintf("n%d", i))
		node.Spec.ProviderID = contract.ProviderID(memoryID(i))
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if _, err := m.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, m.kube, m.api, func(nodes coreinformers.NodeInformer, cloud framework) (loop, error) {
		watching, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, m.kube, cloud, monitorPeriod, 1)
		return func(ctx context.Context) {
			watching.Run(ctx, controllersmetrics.NewControllerManagerMetrics("scaledown"))
		}, err
	})
	return m
}

// loop is a controller of the framework at work.
type loop func(context.Context)

// run runs a controller of the framework, with the instances of an account, until the test ends.
func run(t *testing.T, kube kubernetes.Interface, api *memory,
	build func(coreinformers.NodeInformer, framework) (loop, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(testlog.Context(t))
	shared := informers.NewSharedInformerFactory(kube, 0)
	nodes := shared.Core().V1().Nodes()
	controller, err := build(nodes, framework{instances: New(Config{
		Inventory: NewInventory(InventoryConfig{Source: api}), Nodes: nodes.Lister(), Live: kube.CoreV1(),
		Events:   record.NewFakeRecorder(10_000),
		Networks: account.New(account.Config{Cloud: api}), Network: network.Named{ID: networkOfMemory},
	})})
	if err != nil {
		t.Fatal(err)
	}
	nodes.Informer()
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	var ended sync.WaitGroup
	ended.Go(func() { controller(ctx) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
		shared.Shutdown()
	})
}

// silence makes the Nodes not ready whose kubelets do not report any more.
func (m *monitored) silence(numbers ...int) {
	m.t.Helper()
	for _, i := range numbers {
		node, err := m.kube.CoreV1().Nodes().Get(m.t.Context(), fmt.Sprintf("n%d", i), metav1.GetOptions{})
		if err != nil {
			m.t.Fatal(err)
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		if _, err := m.kube.CoreV1().Nodes().UpdateStatus(m.t.Context(), node, metav1.UpdateOptions{}); err != nil {
			m.t.Fatal(err)
		}
	}
}

// deprovision removes servers, whose kubelets fall silent.
func (m *monitored) deprovision(numbers ...int) {
	m.t.Helper()
	m.remove(numbers...)
	time.Sleep(silentAfter)
	m.silence(numbers...)
}

// remove removes servers from the account.
func (m *monitored) remove(numbers ...int) {
	m.api.change(func(api *memory) {
		for _, i := range numbers {
			delete(api.servers, memoryID(i))
		}
	})
}

// names are those of the Nodes that exist.
func (m *monitored) names() []string {
	m.t.Helper()
	list, err := m.kube.CoreV1().Nodes().List(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	var names []string
	for _, node := range list.Items {
		names = append(names, node.Name)
	}
	slices.Sort(names)
	return names
}

// await returns when only so many Nodes are left, or that it never happened.
func (m *monitored) await(left int, limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Second) {
		if len(m.names()) == left {
			return nil
		}
	}
	return errors.New("the Nodes stay")
}

func upTo(count int) []int {
	var numbers []int
	for i := range count {
		numbers = append(numbers, i)
	}
	return numbers
}

// Up to half of the Nodes of a cluster go within five minutes of the deprovisioning of their servers.
func TestScaleDown(t *testing.T) {
	for _, test := range []struct{ nodes, leave int }{
		{1, 1}, {2, 1}, {3, 1}, {4, 2}, {8, 1}, {8, 2}, {8, 4}, {10, 5}, {100, 50},
	} {
		t.Run(fmt.Sprintf("%d of %d", test.leave, test.nodes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := monitor(t, test.nodes)
				time.Sleep(time.Minute)
				began := time.Now()
				m.deprovision(upTo(test.leave)...)
				if err := m.await(test.nodes-test.leave, 5*time.Minute-silentAfter); err != nil {
					t.Fatalf("after %s: %v: %v", time.Since(began), err, m.names())
				}
				if test.nodes == 8 {
					t.Logf("figure scale_down_nodes_gone_seconds %.0f s, %d of 8 Nodes", time.Since(began).Seconds(),
						test.leave)
				}
				time.Sleep(time.Hour)
				if left := len(m.names()); left != test.nodes-test.leave {
					t.Errorf("later %d Nodes are left", left)
				}
			})
		})
	}
}

// Whatever the API shows of the account while all servers exist and no Node is ready: none is deleted.
func TestPartOfAnAccountDeletesNoNode(t *testing.T) {
	omit := func(count int) func(*memory) {
		return func(api *memory) {
			for i := range count {
				api.omitted[memoryID(i)] = true
			}
		}
	}
	both := func(changes ...func(*memory)) func(*memory) {
		return func(api *memory) {
			for _, change := range changes {
				change(api)
			}
		}
	}
	refuse := func(api *memory) { api.refused = true }
	for _, count := range []int{1, 2, 3, 8, 10, 50} {
		for name, change := range map[string]func(*memory){
			"another account":                     func(api *memory) { api.foreign = true },
			"empty list":                          func(api *memory) { api.empty = true },
			"empty list, reads refused":           both(refuse, func(api *memory) { api.empty = true }),
			"half a list":                         omit((count + 1) / 2),
			"half a list, reads refused":          both(refuse, omit((count+1)/2)),
			"all but one of the list":             omit(count),
			"one of the list, reads refused":      both(refuse, omit(1)),
			"most of the list, reads refused":     both(refuse, omit(max(1, count-1))),
			"reads refused, while all are listed": refuse,
		} {
			t.Run(fmt.Sprintf("%s, %d Nodes", name, count), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := monitor(t, count)
					time.Sleep(time.Minute)
					m.silence(upTo(count)...)
					m.api.change(change)
					time.Sleep(2 * breakerWindow)
					if left := m.names(); len(left) != count {
						t.Errorf("of %d Nodes only %v are left", count, left)
					}
				})
			})
		}
	}
}

// When more than half of the servers are gone, all Nodes stay until a person deletes so many that at most half of the
// others are missing.
func TestMoreThanHalfIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := monitor(t, 8)
		time.Sleep(time.Minute)
		m.deprovision(upTo(5)...)
		time.Sleep(time.Hour)
		if left := len(m.names()); left != 8 {
			t.Fatalf("%d Nodes are left, want 8", left)
		}
		for _, name := range []string{"n0", "n1"} {
			if err := m.kube.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.await(3, 5*time.Minute); err != nil {
			t.Errorf("after a person deleted two Nodes: %v: %v", err, m.names())
		}
	})
}

// A Node that was not ready for long is only checked now and then, and still goes soon when its server does.
func TestScaleDownOfNodesThatWereNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := monitor(t, 8)
		m.silence(0, 1)
		time.Sleep(time.Hour)
		began := time.Now()
		m.remove(0, 1)
		if err := m.await(6, 5*time.Minute-silentAfter); err != nil {
			t.Fatalf("%v: %v", err, m.names())
		}
		t.Logf("figure scale_down_nodes_gone_seconds %.0f s, 2 of 8 Nodes, not ready before",
			time.Since(began).Seconds())
	})
}

// What is only checked now and then decides nothing: a server that is back, which the list does not show yet, keeps its
// Node when other Nodes go.
func TestOldAnswersDeleteNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := monitor(t, 8)
		time.Sleep(time.Minute)
		m.deprovision(upTo(5)...)
		time.Sleep(time.Hour)
		m.api.change(func(api *memory) {
			api.servers[memoryID(4)] = true
			api.omitted[memoryID(4)] = true
		})
		for _, name := range []string{"n0", "n1"} {
			if err := m.kube.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if left := m.names(); !slices.Equal(left, []string{"n4", "n5", "n6", "n7"}) {
			t.Errorf("%v are left, want n4, whose server is back, and the others that have one", left)
		}
	})
}

// For any sequence of what the account has and what the API shows of it: a Node is deleted only if its server does not
// exist, and never more than half of the Nodes within ten minutes. Once the API shows the account again, the Nodes of
// missing servers go, if they are at most half.
func TestScaleDownWalks(t *testing.T) {
	for n := range seeds.Count(t, 50) {
		synctest.Test(t, func(t *testing.T) { walkScaleDown(t, uint64(n)) })
	}
}

func walkScaleDown(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 2))
	count := 1 + random.IntN(12)
	m := monitor(t, count)
	m.silence(upTo(count)...)
	deleted := map[string]time.Time{}
	check := func() {
		left := m.names()
		recently := 0
		for i := range count {
			name := fmt.Sprintf("n%d", i)
			_, before := deleted[name]
			if !before && !slices.Contains(left, name) {
				deleted[name] = time.Now()
				if m.api.has(i) {
					t.Errorf("seed %d: Node %s is deleted, whose server exists", seed, name)
				}
			}
			// The window is between lists, of which a Node may be deleted a while later.
			if at, ok := deleted[name]; ok && time.Since(at) < breakerWindow-DefaultWindow {
				recently++
			}
		}
		if recently > max(1, (len(left)+recently)/2) {
			t.Errorf("seed %d: %d Nodes deleted within ten minutes, %d left", seed, recently, len(left))
		}
	}
	pass := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(monitorPeriod) {
			check()
		}
	}
	for range 15 {
		m.api.change(func(api *memory) { api.spoil(random, count) })
		pass(confirmAfter + time.Duration(random.IntN(300))*time.Second)
		if random.IntN(3) == 0 {
			m.remove(random.IntN(count))
		}
	}
	m.api.change(func(api *memory) { api.heal() })
	pass(breakerWindow + 5*time.Minute)
	missing := 0
	left := m.names()
	for i := range count {
		if !m.api.has(i) && slices.Contains(left, fmt.Sprintf("n%d", i)) {
			missing++
		}
	}
	if missing > 0 && 2*missing <= max(2, len(left)) {
		t.Errorf("seed %d: %d of %d Nodes have no server and stay", seed, missing, len(left))
	}
}

// has reports whether a server exists.
func (m *memory) has(i int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.servers[memoryID(i)]
}

// heal makes the API show the account as it is.
func (m *memory) heal() {
	m.omitted = map[string]bool{}
	m.empty = false
	m.refused = false
	m.foreign = false
}

// spoil makes the API show another part of the account.
func (m *memory) spoil(random *rand.Rand, count int) {
	m.heal()
	switch random.IntN(6) {
	case 0:
		m.foreign = true
	case 1:
		m.empty = true
	case 2, 3:
		for i := range count {
			m.omitted[memoryID(i)] = random.IntN(2) == 0
		}
		m.refused = random.IntN(2) == 0
	case 4:
		m.refused = true
	}
}
