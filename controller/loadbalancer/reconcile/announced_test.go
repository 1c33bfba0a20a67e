package reconcile

import (
	"cmp"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestStaleness: an address is reported once it has answered for long enough, once, and again only after it was silent.
func TestStaleness(t *testing.T) {
	s := newStaleness()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := netip.MustParseAddr("203.0.113.10")
	b := netip.MustParseAddr("203.0.113.11")
	for i, step := range []struct {
		after     time.Duration
		answering []netip.Addr
		due       int
	}{
		{0, []netip.Addr{a}, 0},
		{plan.WithdrawalAllowed - time.Second, []netip.Addr{a}, 0},
		{time.Second, []netip.Addr{a, b}, 1},
		{plan.WithdrawalAllowed, []netip.Addr{a, b}, 1},
		{time.Hour, []netip.Addr{a, b}, 0},
		{0, nil, 0},
		{0, []netip.Addr{a}, 0},
		{plan.WithdrawalAllowed, []netip.Addr{a}, 1},
	} {
		now = now.Add(step.after)
		if due := s.due(step.answering, now); len(due) != step.due {
			t.Errorf("step %d: due are %v, want %d", i, due, step.due)
		}
	}
}

// TestNoEndpoints: an address that kube-vip does not announce, because its Service has no endpoints, is silent for that
// reason, by the rule of kube-vip 1.2.
func TestNoEndpoints(t *testing.T) {
	const service = "web"
	slice := func(name string, serving ...*bool) runtime.Object {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
		for _, serves := range serving {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"},
				Conditions: discoveryv1.EndpointConditions{Ready: serves, Serving: serves}})
		}
		return s
	}
	const silent, none = string(contract.AddressSilent), contract.AnnouncedNoEndpoints
	for name, tc := range map[string]struct {
		announcer, annotation string
		local                 bool
		said                  string
		slices                []runtime.Object
		want                  string
	}{
		"no slice":       {said: silent, want: none},
		"an empty slice": {said: silent, slices: []runtime.Object{slice("a")}, want: none},
		"a ready pod": {said: silent, slices: []runtime.Object{slice("a"), slice("b", ptr.To(true))},
			want: silent},
		"a pod that is not ready": {said: silent, slices: []runtime.Object{slice("a", ptr.To(false))}, want: silent},
		"local, a serving pod": {said: silent, local: true, slices: []runtime.Object{slice("a", ptr.To(true))},
			want: silent},
		"local, none serves": {said: silent, local: true, slices: []runtime.Object{slice("a", ptr.To(false), nil)},
			want: none},
		"announced without endpoints": {said: silent, annotation: "True", want: silent},
		"local, with the annotation":  {said: silent, annotation: "true", local: true, want: none},
		"the agents announce":         {said: silent, announcer: contract.AnnouncerAgent, want: silent},
		"it answers":                  {said: string(contract.AddressAnswered), want: string(contract.AddressAnswered)},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Balancer{announcer: announcer.For(cmp.Or(tc.announcer, contract.AnnouncerKubeVIP),
				announcer.Deps{Kube: fake.NewClientset(tc.slices...)})}
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: service,
				Annotations: map[string]string{"kube-vip.io/allow-reconcile-without-endpoints": tc.annotation}}}
			if tc.local {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			}
			said := reports.Announced(metav1.ConditionFalse, tc.said, "as before")
			got := b.explained(t.Context(), s, said)
			if got.Reason != tc.want || !strings.HasPrefix(got.Message, "as before") ||
				strings.Contains(got.Message, "endpoints") != (tc.want == none) {
				t.Errorf("%s: %q, want %s", got.Reason, got.Message, tc.want)
			}
		})
	}
}

// TestEndpointsNotRead: where the endpoints cannot be read, the condition says what the agents report.
func TestEndpointsNotRead(t *testing.T) {
	kube := fake.NewClientset()
	kube.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no answer")
	})
	b := &Balancer{announcer: announcer.For(contract.AnnouncerKubeVIP, announcer.Deps{Kube: kube})}
	said := reports.Announced(metav1.ConditionFalse, string(contract.AddressSilent), "as before")
	if got := b.explained(t.Context(), &corev1.Service{}, said); got != said {
		t.Errorf("condition %+v, want it as it was", got)
	}
}
