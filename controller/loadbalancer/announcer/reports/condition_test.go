package reports

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			got := Condition(tc.nodes, netip.MustParseAddr("203.0.113.10"), nil)
			if got.Status != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.within) {
				t.Errorf("condition %s %s %q, want %s %s with %q", got.Status, got.Reason, got.Message, tc.status,
					tc.reason, tc.within)
			}
			reversed := make([]*corev1.Node, 0, len(tc.nodes))
			for i := range tc.nodes {
				reversed = append(reversed, tc.nodes[len(tc.nodes)-1-i])
			}
			if again := Condition(reversed, netip.MustParseAddr("203.0.113.10"), nil); again != got {
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
	first := Condition(heard, address, nil)
	both := []*corev1.Node{heard[0], witness("a", macOne, entrySaid("Answered", macOne, later, true))}
	if second := Condition(both, address, &first); second != first {
		t.Errorf("the holder reports, too: %+v, want it as it was: %+v", second, first)
	}
	moved := []*corev1.Node{witness("b", macTwo, entrySaid("Answered", macTwo, later, true))}
	if third := Condition(moved, address, &first); !strings.Contains(third.Message,
		"Node b announces the address since "+later) {
		t.Errorf("another holder: %+v", third)
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
			if c := Condition(test.nodes, address, nil); c.Status != test.status || c.Reason != test.reason ||
				c.Message == "" {
				t.Errorf("condition %+v", c)
			}
			if got := Silent(test.nodes, address); got != test.silent {
				t.Errorf("silent is %t", got)
			}
		})
	}
}
