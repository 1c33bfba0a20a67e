package reconcile

import (
	"cmp"
	"errors"
	"fmt"
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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	early    = "2026-03-01T12:00:00Z"
	later    = "2026-03-01T12:05:00Z"
	macOne   = "02:00:00:00:00:01"
	macTwo   = "02:00:00:00:00:02"
	stranger = "02:00:00:00:00:99"
)

// witness is a Node whose agent reports of 203.0.113.10; identity are its MACs.
func witness(name, identity, report string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		contract.NodeReportedAddresses: `{"203.0.113.10":` + report + `}`,
	}}}
	if identity != "" {
		node.Annotations[contract.NodeReportedIdentity] = fmt.Sprintf(`{"hostname":%q,"addresses":[],"macs":[%q]}`,
			name, identity)
	}
	return node
}

func entrySaid(state, mac, since string, held bool) string {
	return fmt.Sprintf(`{"state":%q,"mac":%q,"held":%t,"since":%q}`, state, mac, held, since)
}

// out makes a Node one whose agent has fallen silent.
func out(node *corev1.Node) *corev1.Node {
	node.Status.Conditions = []corev1.NodeCondition{{Type: contract.ConditionVLANReady, Status: corev1.ConditionUnknown,
		Reason: "AgentSilent"}}
	return node
}

// TestWhoAnnounces: the condition names the Node that answers, from what all agents say.
func TestWhoAnnounces(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes          []*corev1.Node
		status         metav1.ConditionStatus
		reason, within string
	}{
		"the holder says so": {[]*corev1.Node{witness("a", macOne, entrySaid("Answered", macOne, early, true))},
			"True", "Answered", "Node a announces the address since " + early},
		"another hears it": {[]*corev1.Node{witness("a", macOne, `{"state":"Silent","since":"`+early+`"}`),
			witness("b", macTwo, entrySaid("Answered", macOne, early, false))},
			"True", "Answered", "Node a announces the address since " + early},
		"the holder counts, not who heard it first": {[]*corev1.Node{witness("a", macOne, entrySaid("Answered", macOne,
			later, true)), witness("b", macTwo, entrySaid("Answered", macOne, early, false))},
			"True", "Answered", "Node a announces the address since " + later},
		"it moved, the old holder has not said so": {[]*corev1.Node{
			witness("a", macOne, entrySaid("Answered", macOne, early, true)), witness("b", macTwo, entrySaid("Answered",
				macTwo, later, true)), witness("c", "", entrySaid("Answered", macTwo, later, false)),
		}, "True", "Answered", "Node b announces the address since " + later},
		"an agent of before, without a MAC": {[]*corev1.Node{witness("a", macOne,
			entrySaid("Answered", "", early, false))}, "True", "Answered", "one machine answers"},
		"no identity is known": {[]*corev1.Node{witness("a", "", entrySaid("Answered", stranger, early, false))},
			"True", "Answered", "one machine answers"},
		"a stranger answers": {[]*corev1.Node{witness("a", macOne, entrySaid("Answered", stranger, early, false))},
			"False", contract.AnnouncedForeign, stranger + " answers"},
		"the holder is not heard": {[]*corev1.Node{witness("a", macOne, entrySaid("Answered", macOne, early, true)),
			witness("b", macTwo, entrySaid("Silent", "", later, false))},
			"False", contract.AnnouncedHolderSilent, "Node a holds the address, but the agents of b do not hear it"},
		"the holder is heard by one of two": {[]*corev1.Node{
			witness("a", macOne, entrySaid("Answered", macOne, early, true)), witness("b", macTwo,
				entrySaid("Silent", "", later, false)), witness("c", "", entrySaid("Answered", macOne, later, false)),
		}, "True", "Answered", "Node a announces the address since " + early},
		"two answer": {[]*corev1.Node{witness("a", macOne, entrySaid("Duplicate", macTwo, early, true)),
			witness("b", macTwo, entrySaid("Answered", macTwo, early, true))},
			"False", "Duplicate", "(reported by a)"},
		"the holder's agent has fallen silent": {[]*corev1.Node{out(witness("a", macOne,
			entrySaid("Answered", macOne, early, true))), witness("b", macTwo, entrySaid("Silent", "", later, false))},
			"False", "Silent", "no machine answers for the address (reported by b)"},
		"all agents have fallen silent": {[]*corev1.Node{out(witness("a", macOne,
			entrySaid("Answered", macOne, early, true)))}, "Unknown", "NotReported", "no agent"},
		"the MAC is in no list of its own": {[]*corev1.Node{witness("a", stranger+"0",
			entrySaid("Answered", stranger, early, false))},
			"False", contract.AnnouncedForeign, stranger},
	} {
		t.Run(name, func(t *testing.T) {
			got := announcement(tc.nodes, netip.MustParseAddr("203.0.113.10"), nil)
			if got.Status != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.within) {
				t.Errorf("condition %s %s %q, want %s %s with %q", got.Status, got.Reason, got.Message, tc.status,
					tc.reason, tc.within)
			}
			reversed := make([]*corev1.Node, 0, len(tc.nodes))
			for i := range tc.nodes {
				reversed = append(reversed, tc.nodes[len(tc.nodes)-1-i])
			}
			if again := announcement(reversed, netip.MustParseAddr("203.0.113.10"), nil); again != got {
				t.Errorf("in another order: %+v, want %+v", again, got)
			}
		})
	}
}

// TestAnnouncedIsNotRewritten: who else comes to report the same changes nothing; another announcer does.
func TestAnnouncedIsNotRewritten(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	heard := []*corev1.Node{witness("b", macTwo, entrySaid("Answered", macOne, early, false)),
		witness("a", macOne, entrySaid("Silent", "", early, false))}
	first := announcement(heard, address, nil)
	both := []*corev1.Node{heard[0], witness("a", macOne, entrySaid("Answered", macOne, later, true))}
	if second := announcement(both, address, &first); second != first {
		t.Errorf("the holder reports, too: %+v, want it as it was: %+v", second, first)
	}
	moved := []*corev1.Node{witness("b", macTwo, entrySaid("Answered", macTwo, later, true))}
	if third := announcement(moved, address, &first); !strings.Contains(third.Message,
		"Node b announces the address since "+later) {
		t.Errorf("another holder: %+v", third)
	}
}

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

// TestAnnouncedBy: where the agents announce, the Service names the Node that answers and since when; another Node
// takes its place, and in doubt, or where kube-vip announces, no node is named.
func TestAnnouncedBy(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	byA := []*corev1.Node{witness("a", macOne, entrySaid("Answered", macOne, early, true))}
	byB := []*corev1.Node{byA[0], witness("b", macTwo, entrySaid("Answered", macTwo, later, true))}
	byB[0] = witness("a", macOne, entrySaid("Silent", "", later, false))
	silent := []*corev1.Node{byB[0]}
	service := &corev1.Service{}
	for i, step := range []struct {
		announcer   string
		nodes       []*corev1.Node
		name, since string
	}{
		{contract.AnnouncerAgent, nil, "", ""},
		{contract.AnnouncerAgent, byA, "a", early},
		{contract.AnnouncerAgent, []*corev1.Node{witness("a", macOne, entrySaid("Answered", macOne, later, true))}, "a",
			early},
		{contract.AnnouncerAgent, append(byB, witness("c", "", entrySaid("Answered", macTwo, later, false))), "b",
			later},
		{contract.AnnouncerAgent, silent, "", ""},
		{contract.AnnouncerAgent, byA, "a", early},
		{contract.AnnouncerKubeVIP, byA, "", ""},
	} {
		wanted := forPeople(plan.Observed{Service: service, Nodes: step.nodes,
			Options: plan.Options{Announcer: step.announcer}}, address)
		service.Annotations = map[string]string{}
		for name, value := range wanted {
			if text, ok := value.(string); ok {
				service.Annotations[name] = text
			}
		}
		by := service.Annotations[contract.ServiceAnnouncedBy]
		since := service.Annotations[contract.ServiceAnnouncedSince]
		if by != step.name || since != step.since {
			t.Errorf("step %d: announced by %q since %q, want %q since %q", i, by, since, step.name, step.since)
		}
		if len(wanted) != 2 {
			t.Errorf("step %d: %v, want both annotations to be decided on", i, wanted)
		}
	}
}

func TestAnnouncement(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	reporting := func(name, raw string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{contract.NodeReportedAddresses: raw}}}
	}
	says := func(state string) string {
		return `{"203.0.113.10":{"state":"` + state + `","since":"2026-03-01T12:00:00Z"}}`
	}
	for _, test := range []struct {
		name   string
		nodes  []*corev1.Node
		status metav1.ConditionStatus
		reason string
		silent bool
	}{
		{"no agent reports", nil, "Unknown", "NotReported", false},
		{"about another address", []*corev1.Node{reporting("a", strings.ReplaceAll(says("Answered"), ".10", ".11"))},
			"Unknown", "NotReported", false},
		{"garbage", []*corev1.Node{reporting("a", "{"), reporting("b", says("Answered"))}, "True", "Answered", false},
		{"one of two hears it", []*corev1.Node{reporting("a", says("Silent")), reporting("b", says("Answered"))},
			"True", "Answered", false},
		{"no agent hears it", []*corev1.Node{reporting("a", says("Silent")), reporting("b", says("Silent"))}, "False",
			"Silent", true},
		{"two answer", []*corev1.Node{reporting("a", says("Answered")), reporting("b", says("Duplicate"))}, "False",
			"Duplicate", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if c := announcement(test.nodes, address, nil); c.Status != test.status || c.Reason != test.reason ||
				c.Message == "" {
				t.Errorf("condition %+v", c)
			}
			if got := plan.Silent(test.nodes, address); got != test.silent {
				t.Errorf("silent is %t", got)
			}
		})
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
			b := &Balancer{config: Config{Kube: fake.NewClientset(tc.slices...),
				Options: plan.Options{Announcer: cmp.Or(tc.announcer, contract.AnnouncerKubeVIP)}}}
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: service,
				Annotations: map[string]string{"kube-vip.io/allow-reconcile-without-endpoints": tc.annotation}}}
			if tc.local {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			}
			said := announcedCondition(metav1.ConditionFalse, tc.said, "as before")
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
	b := &Balancer{config: Config{Kube: kube, Options: plan.Options{Announcer: contract.AnnouncerKubeVIP}}}
	said := announcedCondition(metav1.ConditionFalse, string(contract.AddressSilent), "as before")
	if got := b.explained(t.Context(), &corev1.Service{}, said); got != said {
		t.Errorf("condition %+v, want it as it was", got)
	}
}
