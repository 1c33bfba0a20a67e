package reconcile_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// failingAPI are the ways in which the phoenixNAP API fails, and what a Service says then.
var failingAPI = map[string]struct {
	fault  pnapsim.Fault
	reason string
	// says are the API's words, and the remedy.
	says []string
}{
	"401": {pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusUnauthorized}, "LookupFailed",
		[]string{"401", "check the client ID and the client secret"}},
	"403": {pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusForbidden, Path: "/ips/v1/*"}, "LookupFailed",
		[]string{"list IP blocks", "403", "scopes bmc, bmc.read, tags and tags.read"}},
	"429": {pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusTooManyRequests, RetryAfter: 90,
		Path: "/ips/v1/*"}, "APIPaused", []string{"until 2026-03-01T1", "--api-requests-per-second"}},
	"429 without Retry-After": {pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusTooManyRequests,
		Path: "/ips/v1/*"}, "APIPaused", []string{"429", "--api-requests-per-second"}},
	"500": {pnapsim.Fault{Action: pnapsim.FaultStatus, Status: http.StatusInternalServerError, Path: "/ips/v1/*"},
		"LookupFailed", []string{"list IP blocks", "500", "tries again"}},
	"HTML of a proxy": {pnapsim.Fault{Action: pnapsim.FaultHTML, Path: "/ips/v1/*"}, "LookupFailed",
		[]string{"list IP blocks", "502", "tries again"}},
	"half an answer": {pnapsim.Fault{Action: pnapsim.FaultTruncate, Path: "/ips/v1/*"}, "LookupFailed",
		[]string{"list IP blocks", "invalid answer", "tries again"}},
	"reset": {pnapsim.Fault{Action: pnapsim.FaultReset, Path: "/ips/v1/*"}, "LookupFailed",
		[]string{"list IP blocks", "no answer", "DNS, proxy, firewall"}},
}

// TestServicesSayHowTheAPIFails: a Service that is new, published or going names the API's words and the remedy; what
// is published stays, and once the API works again all is as if it had always worked.
func TestServicesSayHowTheAPIFails(t *testing.T) {
	driven := 0
	for kind, ask := range map[string]func(*corev1.Service){"dedicated": annotated(), "shared": inPool()} {
		for how, failing := range failingAPI {
			for _, when := range []string{"new", "published", "going"} {
				driven++
				t.Run(when+", "+kind+", "+how, func(t *testing.T) {
					t.Parallel()
					w := newWorld(t)
					w.service("web", ask)
					if when != "new" {
						w.settle("web")
						w.clock.Advance(time.Hour)
					}
					if when == "going" {
						w.delete("web")
					}
					address := w.address("web")
					fault := failing.fault
					fault.Times = -1
					w.arm(fault)
					w.restart()
					w.fails("web", 5*time.Minute)
					w.saysOfFailure("web", failing.reason, failing.says...)
					if got := w.address("web"); got != address {
						t.Errorf("the address is %q and was %q", got, address)
					}
					w.sim.Disarm()
					w.settle("web")
					if when == "going" {
						w.wantBlocks()
						return
					}
					w.wantPurchases(1)
					if c := w.condition("web"); c.Reason != "BlockAssigned" || c.Status != metav1.ConditionTrue {
						t.Errorf("after the failure it says %+v", c)
					}
				})
			}
		}
	}
	t.Logf("figure failing_api_conditions %d cases", driven)
}

// fails syncs a Service for a while, which must not succeed.
func (w *world) fails(name string, during time.Duration) {
	w.t.Helper()
	for end := w.clock.Now().Add(during); w.clock.Now().Before(end); {
		done, err := w.sync(name)
		if done {
			w.t.Fatalf("Service %s is settled; it should fail", name)
		}
		w.said = append(w.said, err.Error())
		w.clock.Advance(w.pauseAfter(err))
	}
	if _, err := w.sync(name); err == nil {
		w.t.Fatalf("Service %s is settled; it should fail", name)
	}
}

// saysOfFailure demands both conditions of a Service while the API fails.
func (w *world) saysOfFailure(name, reason string, says ...string) {
	w.t.Helper()
	block := w.condition(name)
	published := meta.FindStatusCondition(w.get(name).Status.Conditions, contract.ServiceConditionAddressPublished)
	wantPublished := "False BlockNotAssigned"
	if w.address(name) != "" {
		wantPublished = "True Published"
	}
	if block.Reason != reason || block.Status != metav1.ConditionUnknown {
		w.t.Errorf("BlockAssigned is %s %s %q, want Unknown %s", block.Status, block.Reason, block.Message, reason)
	}
	for _, part := range says {
		if !strings.Contains(block.Message, part) {
			w.t.Errorf("the message lacks %q: %s", part, block.Message)
		}
	}
	if published == nil || string(published.Status)+" "+published.Reason != wantPublished {
		w.t.Errorf("AddressPublished is %+v, want %s", published, wantPublished)
	}
	if len(block.Message) > text.MessageLimit || len(w.sim.FindSecrets(block.Message)) > 0 {
		w.t.Errorf("the message has %d bytes, or a secret: %s", len(block.Message), block.Message)
	}
}
