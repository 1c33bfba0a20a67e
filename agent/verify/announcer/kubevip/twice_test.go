package kubevip

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
)

// TestLookTwice: a person gets a state at once, although one read of a Lease does not show it.
func TestLookTwice(t *testing.T) {
	for name, tc := range map[string]struct {
		renewals bool
		lease    bool
		want     announcer.State
		takes    time.Duration
	}{
		"renewed":           {true, true, announcer.Held, 5 * time.Second},
		"not renewed":       {false, true, "", 5 * time.Second},
		"there is no Lease": {false, false, announcer.Missing, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newElection(t)
				r := NewReader(e.CoordinationV1(), "kube-system/"+GlobalLease, "srv-x", nil)
				if tc.lease {
					e.renew("shop", "kubevip-web", "srv-a")
				}
				if tc.renewals {
					time.AfterFunc(2*time.Second, func() { e.renew("shop", "kubevip-web", "srv-a") })
				}
				begun := time.Now()
				if got := r.LookTwice(t.Context(), web(nil), 5*time.Second); got.State != tc.want {
					t.Errorf("%+v, want %q", got, tc.want)
				}
				if took := time.Since(begun); took != tc.takes {
					t.Errorf("took %s, want %s", took, tc.takes)
				}
			})
		})
	}
}
