package plan

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// claiming is a Service whose annotations claim an address, which its status has, too, if it is published.
func claiming(name, address string, published bool) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name),
			Annotations: map[string]string{contract.ServiceIPAddress: address, contract.ServiceIPOwner: name}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
	if published {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	}
	return s
}

// TestLostAllocationsAreRebuiltAllAtOnce: the Services have their addresses, whoever asks first.
func TestLostAllocationsAreRebuiltAllAtOnce(t *testing.T) {
	restored := claiming("restored", "203.0.113.6", true)
	restored.Annotations[contract.ServiceIPOwner] = "another UID"
	asks := claiming("asks", "", false)
	obs := Observed{Service: asks, Holder: HolderOf(asks), Services: []*corev1.Service{
		asks, claiming("forged", "203.0.113.2", false), claiming("web", "203.0.113.2", true),
		claiming("api", "203.0.113.3", true), claiming("gateway", "203.0.113.1", true),
		claiming("elsewhere", "198.51.100.2", true), restored,
	}}
	rebuilt := obs.proven(network.Block{ID: "60473c2509268bc77fd06d40", CIDR: netip.MustParsePrefix("203.0.113.0/29")})
	want := map[string]string{"203.0.113.2": "shop/web", "203.0.113.3": "shop/api"}
	for address, holder := range rebuilt.Held {
		if want[address.String()] != holder.String() {
			t.Errorf("%s has %s", holder, address)
		}
	}
	if len(rebuilt.Held) != len(want) || rebuilt.Check() != nil {
		t.Errorf("allocations %v, want %v: %v", rebuilt.Held, want, rebuilt.Check())
	}
}
