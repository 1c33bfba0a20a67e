package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func TestWantsAddress(t *testing.T) {
	class := contract.LoadBalancerClass
	other := "example.com/x"
	for name, tc := range map[string]struct {
		spec corev1.ServiceSpec
		want bool
	}{
		"without a class": {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}, true},
		"our class":       {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class}, true},
		"another class":   {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &other}, false},
		"another type":    {corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}, false},
	} {
		service := &corev1.Service{Spec: tc.spec}
		if got := plan.WantsAddress(service); got != tc.want {
			t.Errorf("%s: wants an address: %v", name, got)
		}
		service.DeletionTimestamp = &metav1.Time{}
		if plan.WantsAddress(service) {
			t.Errorf("%s: wants an address while it is deleted", name)
		}
	}
}
