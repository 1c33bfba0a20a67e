package orphans_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// Why the account cannot be read is an event with the first failure, also where there is no report yet, and again after
// an hour. The first look that succeeds writes a report that is newer than the event.
func TestWhyTheAccountCannotBeReadIsAnEvent(t *testing.T) {
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
		message string
	}{
		"401":             {status(http.StatusUnauthorized), "check the client ID"},
		"403":             {status(http.StatusForbidden), "have the scopes"},
		"429":             {status(http.StatusTooManyRequests), "continues by itself"},
		"500":             {status(http.StatusInternalServerError), "ask the support"},
		"unknown client":  {func(w *world) { w.as = "unknown" }, "check the client ID"},
		"another account": {func(w *world) { w.as = strangerID }, "belong to the account"},
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
				tc.fail(w)
				w.pass(10 * time.Minute)
				if n := w.count("Warning", "AccountUnreadable", tc.message); n != 1 {
					t.Fatalf("%d events with %q, want one; heard %q", n, tc.message, w.heard)
				}
				w.pass(time.Hour)
				if n := w.count(contract.AccountUnreadable); n != 2 {
					t.Errorf("%d events within an hour, want two; heard %q", n, w.heard)
				}
				w.as = clientID
				w.sim.Disarm()
				over := w.clock.Now()
				w.pass(20 * time.Minute)
				if n := w.count(contract.AccountUnreadable); n != 2 {
					t.Errorf("after it is over, heard %q", w.heard)
				}
				if looked := w.reported().Looked; looked.Before(over.Truncate(time.Second)) {
					t.Errorf("after it is over, the report is of %s, want one since %s", looked, over)
				}
			})
		}
	}
}
