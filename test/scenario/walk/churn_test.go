package walk

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	// churnFor is how long an author edits Services, churnEvery how often.
	churnFor, churnEvery = 10 * time.Minute, 200 * time.Millisecond
	// maxChurnCalls is how many calls of the API a minute may cost in which an author edits one Service, those of the
	// steady state included, and maxChurnRatio how much longer the address of another tenant's Service may take.
	maxChurnCalls, maxChurnRatio = 12, 1.1
	// otherNamespace is that of the other tenant.
	otherNamespace = "other"
	// defaultRate is the limit of requests a second by default.
	defaultRate = 10
)

// churnWorld is a cluster with the options and an API with the latencies of the defaults, in which nothing happens.
func churnWorld(t *testing.T, specs *pnapsim.Specs) *world {
	t.Helper()
	w := emptyWorld(t, 1, &counts{})
	w.nodes = 2
	w.collect = false
	w.manages = false
	w.skews = false
	w.rate = defaultRate
	w.crowded = true
	w.latencies = pnapsim.DefaultLatency()
	w.simulate(pnapsim.Switches{}, specs)
	for i := range w.nodes {
		w.register(i)
	}
	w.process = w.live(0)
	time.Sleep(10 * time.Minute)
	return w
}

// author is what one author does to Services again and again.
type author struct {
	// services are how many there are, with what they ask for.
	services int
	asks     func(*corev1.Service)
	// settle is how long the author waits before the first edit.
	settle time.Duration
	// edit changes a Service for the n-th time; nil deletes it and creates it again.
	edit func(s *corev1.Service, n int)
	// calls are how many each minute may have; 0 is maxChurnCalls.
	calls float64
	// changes reports that the edits change the public network, which takes in one change at a time.
	changes bool
}

func alternate(name string, values ...string) func(*corev1.Service, int) {
	return func(s *corev1.Service, n int) { s.Annotations[name] = values[n%len(values)] }
}

// impossible asks for an address that is not for sale.
func impossible(s *corev1.Service) { s.Spec.LoadBalancerIP = "203.0.113.200" }

func authors() map[string]author {
	anyEdit := func(s *corev1.Service, n int) { s.Annotations["example.com/edit"] = strconv.Itoa(n) }
	shared := func(s *corev1.Service) { s.Annotations[contract.ServiceIPAllocation] = contract.AllocationShared }
	return map[string]author{
		"labels": {services: 1, settle: 5 * time.Minute, edit: func(s *corev1.Service, n int) {
			s.Labels = map[string]string{"edit": strconv.Itoa(n)}
		}},
		"annotations":    {services: 1, settle: 5 * time.Minute, edit: anyEdit},
		"while it waits": {services: 1, edit: anyEdit},
		"shared":         {services: 1, asks: shared, settle: 5 * time.Minute, edit: anyEdit},
		"refused":        {services: 1, asks: impossible, settle: time.Minute, edit: anyEdit},
		"ten refused":    {services: 10, asks: impossible, settle: time.Minute, edit: anyEdit, calls: 60},
		"ports": {services: 1, settle: 5 * time.Minute, edit: func(s *corev1.Service, n int) {
			s.Spec.Ports[0].Port = int32(80 + n%2)
		}},
		"retained, or not": {services: 1, settle: 5 * time.Minute,
			edit: alternate(contract.ServiceIPRetain, contract.TagTrue, "false")},
		"shared, or not": {services: 1, asks: impossible, settle: time.Minute,
			edit: alternate(contract.ServiceIPAllocation, contract.AllocationShared, contract.AllocationDedicated)},
		"another address": {services: 1, settle: 5 * time.Minute, edit: func(s *corev1.Service, n int) {
			s.Spec.LoadBalancerIP = fmt.Sprintf("203.0.113.%d", n%200)
		}},
		"the controller's annotations": {services: 1, settle: 5 * time.Minute, edit: func(s *corev1.Service, n int) {
			s.Annotations[contract.ServiceIPOwner] = strconv.Itoa(n)
		}},
		"type": {services: 1, asks: impossible, settle: time.Minute, edit: func(s *corev1.Service, n int) {
			s.Spec.Type = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer}[n%2]
		}},
		"type, with a block": {services: 1, settle: 5 * time.Minute, changes: true,
			edit: func(s *corev1.Service, n int) {
				s.Spec.Type = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer}[n%2]
			}},
		"deleted and created again":               {services: 1, asks: impossible, settle: time.Minute},
		"deleted and created again, with a block": {services: 1, settle: 5 * time.Minute, changes: true},
	}
}

// TestAnAuthorSpendsNoMoreThanAShare: what one author does to Services costs few calls, and does not delay others.
func TestAnAuthorSpendsNoMoreThanAShare(t *testing.T) {
	specs := simtest.Specs(t)
	var idle time.Duration
	synctest.Test(t, func(t *testing.T) {
		w := churnWorld(t, specs)
		idle = w.publishOther()
		w.process.bury()
	})
	highest := 0.0
	slowest := 0.0
	for name, a := range authors() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := churnWorld(t, specs)
				w.editors(a)
				began := time.Now()
				over := &atomic.Bool{}
				done := make(chan struct{})
				go func() { defer close(done); w.act(over, a) }()
				time.Sleep(churnFor)
				calls := w.callsSince(began)
				perMinute := float64(len(calls)) / churnFor.Minutes()
				took := w.publishOther()
				over.Store(true)
				<-done
				ratio := took.Seconds() / idle.Seconds()
				t.Logf("%.1f calls/min; address of another tenant after %v, %v beside idle ones", perMinute, took, idle)
				if limit := max(a.calls, maxChurnCalls); perMinute > limit {
					t.Errorf("%.1f calls/min, at most %.0f are right: %v", perMinute, limit, tally(calls))
				}
				if ratio > maxChurnRatio && !a.changes {
					t.Errorf("the address took %.2f times as long", ratio)
				}
				if a.services == 1 {
					highest = max(highest, perMinute)
				}
				if !a.changes {
					slowest = max(slowest, ratio)
				}
				w.process.bury()
				time.Sleep(10 * time.Minute) // for what sleeps where nothing can wake it
			})
		})
	}
	_, _ = fmt.Fprintf(t.Output(), "figure churn_cloud_calls_per_minute %.1f calls/min\n", highest)
	_, _ = fmt.Fprintf(t.Output(), "figure churn_other_publication_ratio %.2f ratio\n", slowest)
}

// callsSince are the operations of the API that were called since then, but for tokens.
func (w *world) callsSince(began time.Time) []string {
	var calls []string
	for _, entry := range w.sim.Log(0) {
		if entry.Time.After(began) && !strings.Contains(entry.Operation, "token") {
			calls = append(calls, entry.Operation)
		}
	}
	return calls
}

// tally counts each operation.
func tally(calls []string) map[string]int {
	counted := map[string]int{}
	for _, call := range calls {
		counted[call]++
	}
	return counted
}

func editorName(i int) string { return fmt.Sprintf("edited-%d", i) }

// editors creates the Services of an author.
func (w *world) editors(a author) {
	for i := range a.services {
		w.place(namespace, editorName(i), a.asks)
	}
	time.Sleep(a.settle)
}

// place creates a Service.
func (w *world) place(namespace, name string, asks func(*corev1.Service)) {
	w.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
	if asks != nil {
		asks(service)
	}
	if _, err := w.kube.CoreV1().Services(namespace).Create(w.t.Context(), service,
		metav1.CreateOptions{}); err != nil {
		w.t.Log(err) // the last of this name is not gone yet
	}
}

// act does what an author does until that is over.
func (w *world) act(over *atomic.Bool, a author) {
	for n := 0; !over.Load(); n++ {
		name := editorName(n % a.services)
		switch {
		case a.edit != nil:
			w.edit(name, "again", func(s *corev1.Service) { a.edit(s, n/a.services) })
		case w.lacks(name):
			w.place(namespace, name, a.asks)
		default:
			w.remove(name)
		}
		time.Sleep(churnEvery)
	}
}

// lacks reports whether no Service has a name.
func (w *world) lacks(name string) bool {
	_, err := w.kube.CoreV1().Services(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	return err != nil
}

// publishOther returns how long the Service of another tenant waits for its address.
func (w *world) publishOther() time.Duration {
	w.t.Helper()
	began := time.Now()
	w.place(otherNamespace, "web", nil)
	var last []metav1.Condition
	for time.Since(began) < 10*time.Minute {
		service, err := w.kube.CoreV1().Services(otherNamespace).Get(w.t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		if addressOf(service) != "" {
			return time.Since(began)
		}
		last = service.Status.Conditions
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatalf("no address: %v", last)
	return 0
}

const (
	// massDeleted is how many Services are deleted at once; most of them have never had a block, because the network
	// holds ten.
	massDeleted = 1000
	// massDeletionWithin is within what time those are gone after the first deletion.
	massDeletionWithin = time.Minute
	// betweenDeletions is how long the API server takes for one.
	betweenDeletions = 10 * time.Millisecond
)

// TestServicesWithoutABlockGoTogether: when a thousand Services are deleted, those that never had a block do not wait
// for a look at the account each, and nothing of the others is left behind.
func TestServicesWithoutABlockGoTogether(t *testing.T) {
	specs := simtest.Specs(t)
	synctest.Test(t, func(t *testing.T) {
		w := churnWorld(t, specs)
		for i := range massDeleted {
			w.place(namespace, fmt.Sprintf("many-%d", i), nil)
			synctest.Wait() // the fake's watches hold a hundred events
		}
		time.Sleep(20 * time.Minute)
		served := map[string]bool{}
		for _, service := range w.services() {
			served[service.Name] = addressOf(&service) != ""
		}
		began := time.Now()
		for name := range served {
			w.remove(name)
			time.Sleep(betweenDeletions)
		}
		time.Sleep(massDeletionWithin - time.Since(began))
		calls := w.callsSince(began)
		left := 0
		withBlock := 0
		for _, service := range w.services() {
			if served[service.Name] {
				withBlock++
			} else {
				left++
			}
		}
		_, _ = fmt.Fprintf(t.Output(), "figure mass_deletion_left %d Services\n", left)
		t.Logf("%d calls; %d of those with a block are left: %v", len(calls), withBlock, tally(calls))
		if left > 0 || len(served) != massDeleted {
			t.Errorf("%d of %d Services that never had a block are left after %v", left, len(served),
				massDeletionWithin)
		}
		time.Sleep(20 * time.Minute)
		if services, blocks := w.services(), w.ours(); len(services) > 0 || len(blocks) > 0 {
			t.Errorf("left: %d Services, blocks %v", len(services), blocks)
		}
		w.process.bury()
		time.Sleep(10 * time.Minute) // for what sleeps where nothing can wake it
	})
}
