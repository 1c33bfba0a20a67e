package walk

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// doom is at which of its requests a process dies.
type doom struct {
	// at is the number of the request, from 1; 0 is none. after says that it dies after the effect, before the answer.
	at    int
	after bool
	// reads says that requests count that change nothing, too.
	reads bool
	// sent is how many requests were counted, and patches how many of them change a Service.
	sent, patches int
	// fulfilled is what the process died of; empty while it lives.
	fulfilled string
}

// begins counts a request that is about to be sent, and reports whether the process dies after its effect. It may die
// of it at once.
func (p *process) begins(request *http.Request) (diesAfter bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doom == nil || request.Method == http.MethodGet && !p.doom.reads || request.URL.Path == pnap.TokenPath {
		return false
	}
	p.doom.sent++
	if request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/services/") {
		p.doom.patches++
	}
	if p.doom.sent != p.doom.at {
		return false
	}
	p.doom.fulfilled = request.Method + " " + request.URL.Path
	if !p.doom.after {
		p.die()
	}
	return p.doom.after
}

// mode is a way in which a Service gets its address.
type mode struct {
	wish map[string]string
	buys int
	// left is how many blocks of ours are left when the Service is gone.
	left int
}

var modes = map[string]mode{
	"dedicated": {buys: 1},
	"shared":    {buys: 1, wish: map[string]string{contract.ServiceIPAllocation: contract.AllocationShared}},
	"retained":  {buys: 1, left: 1, wish: map[string]string{contract.ServiceIPRetain: contract.TagTrue}},
	"brought":   {wish: map[string]string{contract.ServiceIPBlock: broughtObject}},
}

// mostPatches is how often a Service may be written from its creation to its release.
const mostPatches = 8

// TestCrashAtAnyRequest ends the process before and after each request that changes something in either API, once each,
// in the whole life of a Service; in a long run at those that only read, too. For every third request lists lag, for
// every third the next process has the credentials of another account for a while, for every fourth its watches stand
// still. By default every fourth place is tried, others in each mode.
//
//proves:known-bugs/lost-purchase-answer
//proves:known-bugs/mark-removed-first
//proves:service-changes/restart
func TestCrashAtAnyRequest(t *testing.T) {
	stride := 4
	long := seeds.Count(t, 1) > 1
	if long {
		stride = 1
	}
	specs := simtest.Specs(t)
	var tried atomic.Int64
	t.Run("requests", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(modes)) {
			undisturbed := &doom{reads: long}
			synctest.Test(t, func(t *testing.T) { liveWith(t, specs, name, undisturbed) })
			if undisturbed.sent < 15 {
				t.Fatalf("%s: only %d requests; the test does not see them all", name, undisturbed.sent)
			}
			t.Logf("%s: %d requests", name, undisturbed.sent)
			_, _ = fmt.Fprintf(t.Output(), "figure service_patches_%s %d requests\n", name, undisturbed.patches)
			if undisturbed.patches > mostPatches {
				t.Errorf("%s: %d patches of the Service, want at most %d", name, undisturbed.patches, mostPatches)
			}
			for place := len(name) % stride; place < 2*undisturbed.sent; place += stride {
				t.Run(fmt.Sprint(name, " ", place), func(t *testing.T) {
					t.Parallel()
					end := &doom{at: 1 + place/2, after: place%2 == 1, reads: long}
					synctest.Test(t, func(t *testing.T) { liveWith(t, specs, name, end) })
					if end.fulfilled != "" {
						tried.Add(1)
					}
				})
			}
		}
	})
	_, _ = fmt.Fprintf(t.Output(), "figure crash_requests_tried %d requests\n", tried.Load())
	if tried.Load() < 30 {
		t.Errorf("the process died of %d requests only", tried.Load())
	}
}

// liveWith lets a Service live and go while the process dies of one of its requests, and others follow.
func liveWith(t *testing.T, specs *pnapsim.Specs, name string, end *doom) {
	t.Helper()
	seed := uint64(4) // without lags and skews
	if end.at%3 == 1 {
		seed = 12 // lists lag
	}
	count := &counts{}
	w := newWorld(t, seed, count, specs)
	w.collect = true
	w.manages = false
	for i := range w.nodes {
		w.register(i)
	}
	w.process = w.live(0)
	time.Sleep(2 * time.Minute)
	first := w.process
	first.mu.Lock()
	first.doom = end
	first.mu.Unlock()
	w.createWith("web", modes[name].wish)
	w.passUntil(end, func() bool {
		service := w.services()[0]
		return w.isServed(addressOf(&service))
	})
	w.remove("web")
	w.passUntil(end, func() bool { return len(w.services()) == 0 })
	time.Sleep(w.patience())
	w.look()
	if bought := count.purchases.Load(); bought != int64(modes[name].buys) {
		w.fail("%d blocks were bought, want %d", bought, modes[name].buys)
	}
	if left := w.ours(); len(left) != modes[name].left {
		w.fail("blocks are left, want %d: %v", modes[name].left, left)
	}
	w.checkRecords()
	for _, violation := range w.sim.Violations() {
		w.fail("rule broken: %s", violation)
	}
	w.process.bury()
	if t.Failed() {
		t.Logf("the process died of request %d, %q, after its effect: %t\n%s", end.at, end.fulfilled, end.after,
			strings.Join(w.history, "\n"))
	}
	time.Sleep(10 * time.Minute) // for what sleeps where nothing can wake it
}

// passUntil lets time pass until something is so. Who follows a process that died has its trouble.
func (w *world) passUntil(end *doom, done func() bool) {
	w.t.Helper()
	for range 6 * 60 * 12 {
		time.Sleep(5 * time.Second)
		if w.process.isLost() {
			w.trip(end)
		}
		w.look()
		if done() {
			return
		}
	}
	w.t.Fatalf("six hours are not enough; the account has %v\n%s", w.blocks(), strings.Join(w.history, "\n"))
}

// trip troubles the process after the one that died.
func (w *world) trip(end *doom) {
	w.did("the process died of %s", end.fulfilled)
	if end.at%3 == 2 {
		w.use(otherKeys)
		time.AfterFunc(2*time.Minute, func() { w.use(w.own) })
	}
	if end.at%4 == 3 {
		w.setLags(kubefake.Lag{Until: time.Now().Add(5 * time.Minute)}, []string{"services", "nodes"})
	}
}

// checkRecords: no record of an address outlives the Service that had it.
func (w *world) checkRecords() {
	list, err := w.ipBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, one := range list.Items {
		if status, err := json.Marshal(one.Status); err != nil || strings.Contains(string(status), `"web"`) {
			w.fail("IPBlock %s is left: %s", one.Name, status)
		}
	}
}
