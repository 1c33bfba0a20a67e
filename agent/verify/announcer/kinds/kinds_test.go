package kinds

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
)

// TestEveryFaultIsRepaired: each kind says what repairs each fault, and elects no node of which nothing is known.
func TestEveryFaultIsRepaired(t *testing.T) {
	for kind, a := range All(nil) {
		for fault := announcer.Silent; fault <= announcer.Unguarded; fault++ {
			fixes := a.Fixes(announcer.Fault{Kind: fault, Address: netip.MustParseAddr("203.0.113.3"),
				Interface: "bond0.100", Carried: []string{"bond0.100"}, Election: announcer.Election{Owner: "srv-b"}})
			if len(fixes) == 0 || fixes[0].Note == "" {
				t.Errorf("%s: fault %d has the fixes %+v", kind, fault, fixes)
			}
		}
		if got := a.Elected(&corev1.Service{}, time.Time{}); got.State != "" || got.Source != "" {
			t.Errorf("%s: elected is %+v, which nothing was read for", kind, got)
		}
	}
}
