package walk

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// rule is a case of a rule of the protocol between Services, IPBlocks and the account.
type rule struct {
	// name says what holds, after the number of the rule.
	name string
	// bought is how many blocks are bought in all.
	bought int
	// live makes what the rule is about happen.
	live func(*world)
}

// rules are the cases of all rules that do not depend on several networks. Decision 0023 lists them.
var rules = slices.Concat(rulesOfSpending, rulesOfWriting, rulesOfAddresses, rulesOfTheAccount)

const (
	// lateBy is how late each change of the cluster reaches the controller.
	lateBy = 20 * time.Second
	// soon is within what time a Service has to have its address, whatever happened before.
	soon = 15 * time.Minute
)

// watched are the resources whose watches are late. Nothing watches IPBlocks today: each decision that counts reads
// them. A cache of them would have to pass these tests, too.
var watched = []string{"services", "nodes", "ipblocks"}

// TestTheRulesOfTheProtocol: each rule holds where the controller learns late of Services, Nodes and IPBlocks.
func TestTheRulesOfTheProtocol(t *testing.T) {
	specs := simtest.Specs(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := ruledWorld(t, specs)
				r.live(w)
				w.endRule(r)
			})
		})
	}
}

// ruledWorld is a cluster with two Nodes, which waits for the first Service, and whose watches are late.
func ruledWorld(t *testing.T, specs *pnapsim.Specs) *world {
	t.Helper()
	w := emptyWorld(t, 1, &counts{})
	w.nodes = 2
	w.collect = true
	w.manages = false
	w.latencies = pnapsim.DefaultLatency()
	w.simulate(pnapsim.Switches{}, specs)
	w.heard = w.judgeWrites
	for i := range w.nodes {
		w.register(i)
	}
	w.process = w.live(0)
	time.Sleep(2 * time.Minute)
	w.lagBehind()
	return w
}

// lagBehind lets all watches be a little late.
func (w *world) lagBehind() { w.setLags(kubefake.Lag{By: lateBy}, watched) }

// endRule compares what was paid for.
func (w *world) endRule(r rule) {
	w.t.Helper()
	w.look()
	w.bought(r.bought)
	for _, violation := range w.sim.Violations() {
		w.fail("rule of the API broken: %s", violation)
	}
	w.process.bury()
	if w.t.Failed() {
		w.t.Log(strings.Join(w.history, "\n"))
	}
	time.Sleep(10 * time.Minute) // for what sleeps where nothing can wake it
}

// bought compares how many blocks were bought so far.
func (w *world) bought(want int) {
	w.t.Helper()
	if bought := w.sim.Money(accountID).Purchases; bought != want {
		w.fail("%d blocks are bought, want %d: %v", bought, want, w.ours())
	}
}

// hear passes a request of a process on to a test.
func (w *world) hear(request *http.Request) {
	if w.heard != nil {
		w.heard(request)
	}
}

// once lets something happen just before the first request that matches is carried out.
func (w *world) once(matches func(*http.Request) bool, happen func()) {
	judge := w.heard
	done := false
	w.heard = func(request *http.Request) {
		judge(request)
		if !done && matches(request) {
			done = true
			happen()
		}
	}
}

// to matches requests by their method and path.
func to(method, path string) func(*http.Request) bool {
	return func(request *http.Request) bool { return request.Method == method && request.URL.Path == path }
}

// objectPath is the path of an IPBlock.
func objectPath(name string) string {
	return "/apis/" + v1beta1.GroupVersion.String() + "/ipblocks/" + name
}

// judgeWrites: a block is bought only for a recorded intent, and whatever is written of a Service or an IPBlock, or
// deleted, is of the version that the decision was made on.
func (w *world) judgeWrites(request *http.Request) {
	what := request.Method + " " + request.URL.Path
	recorded := strings.Contains(request.URL.Path, "/ipblocks/") || strings.Contains(request.URL.Path, "/services/")
	var sent struct {
		Metadata      metav1.ObjectMeta
		Preconditions metav1.Preconditions
	}
	switch body := w.bodyOf(request); {
	case request.Method == http.MethodPost && request.URL.Path == blocksPath:
		if !w.isRecorded(string(body)) {
			w.fail("a block is bought without a recorded intent: %s", body)
		}
	case !recorded || request.Method == http.MethodGet:
	case json.Unmarshal(body, &sent) != nil:
		w.fail("%s: %s", what, body)
	case request.Method == http.MethodDelete:
		if sent.Preconditions.UID == nil || sent.Preconditions.ResourceVersion == nil {
			w.fail("%s deletes any version: %s", what, body)
		}
	case sent.Metadata.UID == "" || sent.Metadata.ResourceVersion == "":
		w.fail("%s writes to any version: %s", what, body)
	}
}

// bodyOf is all that a request sends.
func (w *world) bodyOf(request *http.Request) []byte {
	if request.GetBody == nil {
		return nil
	}
	body, err := request.GetBody()
	if err != nil {
		w.t.Error(err)
		return nil
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		w.t.Error(err)
	}
	return raw
}

// service reads a Service; false if there is none.
func (w *world) service(name string) (*corev1.Service, bool) {
	service, err := w.kube.CoreV1().Services(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	return service, err == nil
}

// ordered creates a Service with annotations.
func (w *world) ordered(name string, annotations map[string]string) {
	w.place(namespace, name, func(s *corev1.Service) { s.Annotations = annotations })
	w.did("Service %s is created: %v", name, annotations)
}

// served waits until a Service has an address of an assigned block, and returns it.
func (w *world) served(name string) string {
	w.t.Helper()
	var last []metav1.Condition
	for began := time.Now(); time.Since(began) < soon; time.Sleep(time.Second) {
		w.look()
		service, found := w.service(name)
		if !found {
			continue
		}
		if address := addressOf(service); w.isServed(address) {
			return address
		}
		last = service.Status.Conditions
	}
	w.t.Fatalf("Service %s has no address: %v\n%s", name, last, strings.Join(w.history, "\n"))
	return ""
}

// keeps checks that a Service has an address still.
func (w *world) keeps(name, address string) {
	w.t.Helper()
	w.look()
	service, found := w.service(name)
	if !found || addressOf(service) != address || !w.isServed(address) {
		w.fail("Service %s has lost %s: %v", name, address, service)
	}
}

// refused checks that a Service has no address.
func (w *world) refused(name string) {
	w.t.Helper()
	w.look()
	if service, found := w.service(name); !found || addressOf(service) != "" {
		w.fail("Service %s has an address: %v", name, service)
	}
}

// gone waits until a Service is released.
func (w *world) gone(name string) {
	w.t.Helper()
	for began := time.Now(); time.Since(began) < soon; time.Sleep(time.Second) {
		w.look()
		if _, found := w.service(name); !found {
			return
		}
	}
	w.fail("Service %s is not released", name)
}

// everyNode edits all Nodes.
func (w *world) everyNode(what string, change func(*corev1.Node)) {
	for i := range w.nodes {
		w.editNode(nodeName(i), what, change)
	}
}

// object reads the IPBlock of a Service's own block.
func (w *world) object(service *corev1.Service) *v1beta1.IPBlock {
	w.t.Helper()
	object, err := w.ipBlocks.Get(w.t.Context(), objectOf(service), metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return object
}

func objectOf(service *corev1.Service) string { return v1beta1.ServicePrefix + string(service.UID) }

// only is the one block that was bought.
func (w *world) only() block {
	w.t.Helper()
	ours := w.ours()
	if len(ours) != 1 {
		w.t.Fatalf("want one block: %v", ours)
	}
	return ours[0]
}
