package orphans_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// Why the account cannot be read is an event with the first failure, also where it was never read, and again after an
// hour. The first look that succeeds ends it.
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
				w := newWorld(t)
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
				if review := w.config.Account.LastReview(); !review.Since.IsZero() {
					t.Errorf("%+v: the account is said to be read", review)
				}
				over := w.clock.Now()
				w.pass(20 * time.Minute)
				if n := w.count(contract.AccountUnreadable); n != 2 {
					t.Errorf("after it is over, heard %q", w.heard)
				}
				review := w.config.Account.LastReview()
				if review.Since.Before(over) || review.At.Before(review.Since) {
					t.Errorf("after it is over, %+v, want it read since %s", review, over)
				}
			})
		}
	}
}
