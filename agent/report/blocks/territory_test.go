package blocks_test

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestTerritory: a Service is one of the network with its block, else one of the default network. A Node has nothing to
// do with those of networks that it does not list.
func TestTerritory(t *testing.T) {
	of := func(name, address string, status ...string) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{contract.ServiceIPAddress: address}}}
		for _, ip := range status {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		return s
	}
	all := []*corev1.Service{of("one", "192.0.2.3"), of("two", "203.0.113.3"), of("none", ""),
		of("elsewhere", "198.51.100.1"), of("published", "", "203.0.113.4")}
	block := func(cidr string) []contract.NetworkBlock {
		return []contract.NetworkBlock{{CIDR: netip.MustParsePrefix(cidr)}}
	}
	a := blocks.Area{ID: "a", Name: "default", Blocks: block("192.0.2.0/28")}
	b := blocks.Area{ID: "b", Name: "west", Blocks: block("203.0.113.0/29")}
	both := blocks.Territory{a, b}
	known := map[string][]contract.NetworkBlock{a.Name: a.Blocks, b.Name: b.Blocks}
	for _, tc := range []struct {
		t    blocks.Territory
		id   string
		want []string
	}{
		{both, "a", []string{"one", "none", "elsewhere"}}, {both, "b", []string{"two", "published"}},
		{both.With(known), "a", []string{"one", "none", "elsewhere"}},
		{both.With(known), "b", []string{"two", "published"}},
		{blocks.Territory{b}, "b", []string{"two", "published"}},
		{blocks.Territory{b}.With(known), "b", []string{"two", "published"}},
		{blocks.Territory{a}, "a", []string{"one", "two", "none", "elsewhere", "published"}},
		{blocks.Territory{a}.With(known), "a", []string{"one", "none", "elsewhere"}},
		{nil, "", []string{"one", "two", "none", "elsewhere", "published"}},
	} {
		var got []string
		for _, s := range tc.t.Services(all, tc.id) {
			got = append(got, s.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("of %q in %v: %q, want %q", tc.id, tc.t, got, tc.want)
		}
	}
}
