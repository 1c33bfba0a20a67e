package plan_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// A Service that may have something is not released in an account whose public network cannot be read, though nothing
// of it can be seen there. One that never had anything is.
func TestNothingIsReleasedInAnUnprovenAccount(t *testing.T) {
	written := &corev1.Service{}
	written.Annotations = map[string]string{contract.ServiceIPAddress: "203.0.113.11"}
	published := &corev1.Service{}
	published.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.11"}}
	for name, c := range map[string]struct {
		service *corev1.Service
		want    ipblock.Action
	}{
		"written on":             {written, ipblock.Refuse},
		"with an address":        {published, ipblock.Refuse},
		"that never had a thing": {&corev1.Service{}, ipblock.Done},
	} {
		o := plan.Observed{Service: c.service, Holder: holder("web"),
			Account: ipblock.Account{Network: network.Named{ID: net1}}}
		if got := plan.PlanRelease(o.Complete(), nil).Next(); got.Action != c.want {
			t.Errorf("a Service %s: %+v, want %s", name, got, c.want)
		}
	}
}

// A block that is being released gives no address, also while others still have addresses of it.
func TestAClosedLedgerGivesNothing(t *testing.T) {
	for name, held := range map[string]map[string]string{"empty": nil, "in use": {"203.0.113.11": "web"}} {
		closed := ledger29(held).Close()
		if _, grant, err := closed.Take(holder("api"), ipblock.Ask{Now: noon}); !errors.Is(err, ipblock.ErrClosed) {
			t.Errorf("%s: %+v, %v", name, grant, err)
		}
	}
}
