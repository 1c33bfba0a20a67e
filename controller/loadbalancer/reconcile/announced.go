package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// explained is the condition of the announcement, with the reason why the announcer leaves an address silent if it
// knows one.
func (b *Balancer) explained(ctx context.Context, service *corev1.Service, c metav1.Condition) metav1.Condition {
	if c.Reason != string(contract.AddressSilent) {
		return c
	}
	reason, why := b.announcer.Silence(ctx, service)
	if reason == "" {
		return c
	}
	return reports.Announced(metav1.ConditionFalse, reason, c.Message+", and "+why)
}
