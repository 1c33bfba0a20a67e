package orphans_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// failure returns what is published about the account; nil when nothing is.
func (w *world) failure() *contract.AccountFailure {
	w.t.Helper()
	stored, err := w.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(w.t.Context(), contract.BlockReportName,
		metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	failure, err := contract.ParseAccountFailure(stored.Data[contract.AccountFailureKey])
	if err != nil {
		w.t.Fatal(err)
	}
	return failure
}

// Why the account cannot be read, and since when, is published with the first failure, also where there is no report
// yet. A successor keeps the time; the first look that succeeds removes it all.
func TestWhyTheAccountCannotBeReadIsPublished(t *testing.T) {
	status := func(code int) func(*world) {
		return func(w *world) {
			if err := w.sim.Arm(pnapsim.Fault{Path: "/ips/v1/ip-blocks", Action: pnapsim.FaultStatus, Status: code,
				Times: -1}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		fail    func(*world)
		reason  string
		message string
	}{
		"401":             {status(http.StatusUnauthorized), contract.FailureCredentials, "check the client ID"},
		"403":             {status(http.StatusForbidden), contract.FailureAccess, "have the scopes"},
		"429":             {status(http.StatusTooManyRequests), contract.FailurePaused, "continues by itself"},
		"500":             {status(http.StatusInternalServerError), contract.FailureOther, "ask the support"},
		"unknown client":  {func(w *world) { w.as = "unknown" }, contract.FailureCredentials, "check the client ID"},
		"another account": {func(w *world) { w.as = strangerID }, contract.FailureAccess, "belong to the account"},
	} {
		for begins, passes := range map[string]int{"with the first look": 0, "later": 10} {
			t.Run(name+" "+begins, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, func(_ *pnapsim.Config, _ *pnapsim.AccountSeed, c *orphans.Config) { c.MaxBlocks = 1 })
				for range passes {
					if err := w.look(); err != nil {
						t.Fatal(err)
					}
				}
				from := w.clock.Now()
				tc.fail(w)
				w.pass(10 * time.Minute)
				first := w.failure()
				if first == nil || first.Reason != tc.reason || !strings.Contains(first.Message, tc.message) ||
					first.Since.Before(from) || first.Since.After(from.Add(3*time.Minute)) {
					t.Fatalf("since %s it fails; published is %+v, want %s and %q", from, first, tc.reason, tc.message)
				}
				w.restart()
				w.pass(5 * time.Minute)
				if now := w.failure(); now == nil || !now.Since.Equal(first.Since) {
					t.Errorf("a successor publishes %+v, before it was %+v", now, first)
				}
				w.as = clientID
				w.sim.Disarm()
				w.pass(20 * time.Minute)
				if now := w.failure(); now != nil || w.reported().MaxBlocks != 1 {
					t.Errorf("after it is over, %+v is published", now)
				}
			})
		}
	}
}
