package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// A brought block stays assigned for a Service that is served, names its IPBlock and may do so.
func TestNamed(t *testing.T) {
	brought := ipblock.BroughtBlocks{{Object: "mine", BlockID: "a", Namespaces: []string{"shop"}},
		{Object: "yours", BlockID: "b"}}
	for name, test := range map[string]struct {
		namespace, names string
		kind             corev1.ServiceType
		want             bool
	}{
		"it":                       {"shop", "mine", corev1.ServiceTypeLoadBalancer, true},
		"it, with blanks":          {"shop", " mine\n", corev1.ServiceTypeLoadBalancer, true},
		"another one":              {"shop", "yours", corev1.ServiceTypeLoadBalancer, false},
		"one that is missing":      {"shop", "gone", corev1.ServiceTypeLoadBalancer, false},
		"none":                     {"shop", "", corev1.ServiceTypeLoadBalancer, false},
		"its ID":                   {"shop", "a", corev1.ServiceTypeLoadBalancer, false},
		"it, in another namespace": {"tools", "mine", corev1.ServiceTypeLoadBalancer, false},
		"it, of another type":      {"shop", "mine", corev1.ServiceTypeNodePort, false},
	} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace, Name: "web",
			Annotations: map[string]string{contract.ServiceIPBlock: test.names}},
			Spec: corev1.ServiceSpec{Type: test.kind}}
		o := plan.Observed{Services: []*corev1.Service{service}, BroughtBlocks: brought}
		if got := o.Named("a"); got != test.want {
			t.Errorf("a Service that names %s: named is %t, want %t", name, got, test.want)
		}
	}
}
