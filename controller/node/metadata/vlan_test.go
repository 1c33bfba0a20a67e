package metadata

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestReadinessOf(t *testing.T) {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status}
	}
	yes := condition(contract.ConditionVLANReady, corev1.ConditionTrue)
	tests := map[string]struct {
		conditions []corev1.NodeCondition
		unselected bool
		want       readiness
	}{
		"no agent": {want: unwatched},
		"no agent, Node silent": {conditions: []corev1.NodeCondition{condition(corev1.NodeReady,
			corev1.ConditionUnknown)}, want: unwatched},
		"True": {conditions: []corev1.NodeCondition{yes}, want: ready},
		"False": {conditions: []corev1.NodeCondition{condition(contract.ConditionVLANReady, corev1.ConditionFalse)},
			want: notReady},
		"Unknown": {conditions: []corev1.NodeCondition{condition(contract.ConditionVLANReady, corev1.ConditionUnknown)},
			want: doubtful},
		"Unknown, Node is silent": {conditions: []corev1.NodeCondition{condition(contract.ConditionVLANReady,
			corev1.ConditionUnknown),
			condition(corev1.NodeReady, corev1.ConditionUnknown)}, want: notReady},
		"Unknown and not chosen": {conditions: []corev1.NodeCondition{condition(contract.ConditionVLANReady,
			corev1.ConditionUnknown)}, unselected: true, want: notReady},
		"True but Node is silent": {conditions: []corev1.NodeCondition{condition(corev1.NodeReady,
			corev1.ConditionUnknown), yes}, want: notReady},
		"True and Node not ready": {conditions: []corev1.NodeCondition{condition(corev1.NodeReady,
			corev1.ConditionFalse), yes}, want: ready},
		"True but Node not chosen": {conditions: []corev1.NodeCondition{yes}, unselected: true, want: notReady},
	}
	for name, test := range tests {
		node := readyNode("a", corev1.ConditionTrue, false)
		node.Status.Conditions = test.conditions
		carriers := contract.Carriers{Selector: labels.Everything()}
		if test.unselected {
			carriers.Selector = labels.Nothing()
		}
		if got := readinessOf(node, carriers.Everywhere()); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestDecide(t *testing.T) {
	const s = time.Second
	node := func(name string, labelled bool, state readiness, age time.Duration) vlanNode {
		return vlanNode{name: name, labelled: labelled, state: state, since: start.Add(-age)}
	}
	past := func(n vlanNode, ages ...time.Duration) vlanNode {
		for _, age := range ages {
			n.lost = append(n.lost, start.Add(-age))
		}
		return n
	}
	shaken := func(n vlanNode) vlanNode {
		n.shaky = true
		return n
	}
	tests := map[string]struct {
		nodes []vlanNode
		want  decision
	}{
		"nothing": {},
		"fresh and ready waits": {nodes: []vlanNode{node("a", false, ready, 2*s)},
			want: decision{again: 3 * s}},
		"ready long enough": {nodes: []vlanNode{node("a", false, ready, 5*s)},
			want: decision{give: []string{"a"}}},
		"labelled and ready":          {nodes: []vlanNode{node("a", true, ready, 9*s)}},
		"never ready, never labelled": {nodes: []vlanNode{node("a", false, notReady, 99*s)}},
		"broken beside a good one": {nodes: []vlanNode{node("a", true, notReady, 3*s),
			node("b", true, ready, 9*s)}, want: decision{take: []string{"a"}}},
		"broken a moment ago": {nodes: []vlanNode{node("a", true, notReady, 1*s),
			node("b", true, ready, 9*s)}, want: decision{again: 2 * s}},
		"the last one keeps it": {nodes: []vlanNode{node("a", true, notReady, 99*s),
			node("b", false, notReady, 99*s)}},
		"all bad at once": {nodes: []vlanNode{node("a", true, notReady, 99*s),
			node("b", true, notReady, 99*s)}},
		"bad, the other only just good": {nodes: []vlanNode{node("a", true, notReady, 99*s),
			node("b", false, ready, 1*s)}, want: decision{again: 4 * s}},
		"swap": {nodes: []vlanNode{node("a", true, notReady, 99*s),
			node("b", false, ready, 5*s)}, want: decision{give: []string{"b"}, take: []string{"a"}}},
		"a flapping one does not justify": {nodes: []vlanNode{node("a", true, notReady, 99*s),
			node("b", true, ready, 0)}, want: decision{again: 5 * s}},
		"unwatched ones do not change": {nodes: []vlanNode{node("a", true, unwatched, 99*s),
			node("b", false, unwatched, 99*s), node("c", true, ready, 9*s)}},
		"doubtful ones keep it": {nodes: []vlanNode{node("a", true, doubtful, 99*s),
			node("b", true, ready, 9*s)}, want: decision{again: doubtAfter - 99*s}},
		"doubtful for long": {nodes: []vlanNode{node("a", true, doubtful, doubtAfter),
			node("b", true, ready, 9*s)}, want: decision{take: []string{"a"}}},
		"a doubtful one never gets it": {nodes: []vlanNode{node("a", false, doubtful, 99*s)}},
		"not Ready does not justify": {nodes: []vlanNode{node("a", true, notReady, 99*s),
			shaken(node("b", true, ready, 99*s))}},
		"not Ready keeps it": {nodes: []vlanNode{shaken(node("a", true, ready, 99*s)),
			node("b", true, ready, 99*s)}},
		"two of three bad wait": {nodes: []vlanNode{node("a", true, notReady, 9*s),
			node("b", true, notReady, 9*s), node("c", true, ready, 99*s)}, want: decision{again: waveAfter - 9*s}},
		"two of three bad for long": {nodes: []vlanNode{node("a", true, notReady, 35*s),
			node("b", true, notReady, 35*s), node("c", true, ready, 99*s)}, want: decision{take: []string{"a", "b"}}},
		"the second of three": {nodes: []vlanNode{past(node("a", false, notReady, 20*s), 17*s),
			node("b", true, notReady, 9*s), node("c", true, ready, 99*s)}, want: decision{again: waveAfter - 9*s}},
		"the second of three, later": {nodes: []vlanNode{past(node("a", false, notReady, 99*s), 96*s),
			node("b", true, notReady, 9*s), node("c", true, ready, 99*s)}, want: decision{take: []string{"b"}}},
		"lost once, waits longer": {nodes: []vlanNode{past(node("a", false, ready, 6*s), 60*s),
			node("b", true, ready, 99*s)}, want: decision{again: 4 * s}},
		"lost three times, waited long": {nodes: []vlanNode{past(node("a", false, ready, 40*s), 90*s, 80*s, 70*s),
			node("b", true, ready, 99*s)}, want: decision{give: []string{"a"}}},
		"lost long ago": {nodes: []vlanNode{past(node("a", false, ready, 5*s), memory),
			node("b", true, ready, 99*s)}, want: decision{give: []string{"a"}}},
		"lost, and no other is good": {nodes: []vlanNode{past(node("a", false, ready, 6*s), 60*s),
			node("b", true, notReady, 2*s)}, want: decision{give: []string{"a"}, again: 1 * s}},
		"lost, waits while none is ready": {nodes: []vlanNode{past(node("a", false, ready, 4*s), 60*s)},
			want: decision{again: 1 * s}},
		"unwatched does not justify": {nodes: []vlanNode{node("a", true, unwatched, 99*s),
			node("b", true, notReady, 99*s)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, decide(test.nodes, start), cmp.AllowUnexported(decision{}),
				cmpopts.IgnoreFields(decision{}, "supports")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestProbation: each loss of the label doubles what it takes to get it back.
func TestProbation(t *testing.T) {
	var lost []time.Time
	var got []time.Duration
	for i := range 10 {
		got = append(got, probation(lost, start))
		lost = append(lost, start.Add(-memory+time.Duration(i+1)*time.Second))
	}
	const s = time.Second
	want := []time.Duration{5 * s, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 320 * s, lastAdmission, lastAdmission,
		lastAdmission}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDecideAll: a Node loses the label only if each of its networks has another one that has been ready for a while.
func TestDecideAll(t *testing.T) {
	in := func(name string, state readiness, networks ...string) vlanNode {
		return vlanNode{name: name, labelled: true, state: state, since: start.Add(-time.Hour), networks: networks}
	}
	for name, tc := range map[string]struct {
		nodes  []vlanNode
		take   []string
		needed [][]string
	}{
		"another in its network": {[]vlanNode{in("a", notReady, "east"), in("b", ready, "east"), in("c", ready, "west")},
			[]string{"a"}, [][]string{{"b"}}},
		"another elsewhere only": {[]vlanNode{in("a", notReady, "east"), in("c", ready, "west")}, nil, nil},
		"in two, another in one": {[]vlanNode{in("a", notReady, "east", "west"), in("b", ready, "east")}, nil, nil},
		"in two, another in each": {[]vlanNode{in("a", notReady, "east", "west"), in("b", ready, "east"),
			in("c", ready, "west")}, []string{"a"}, [][]string{{"b"}, {"c"}}},
		"in two, another in both": {[]vlanNode{in("a", notReady, "east", "west"), in("b", ready, "east", "west")},
			[]string{"a"}, [][]string{{"b"}, {"b"}}},
		"one of each fails": {[]vlanNode{in("a", notReady, "east"), in("b", ready, "east"), in("c", notReady, "west"),
			in("d", ready, "west")}, []string{"a", "c"}, [][]string{{"b"}, {"d"}}},
	} {
		got := decideAll(tc.nodes, start)
		if !slices.Equal(got.take, tc.take) || !cmp.Equal(got.needed, tc.needed) || len(got.give) > 0 {
			t.Errorf("%s: %+v, want %v with %v", name, got, tc.take, tc.needed)
		}
	}
	fresh := in("a", ready, "east", "west")
	fresh.labelled = false
	if got := decideAll([]vlanNode{fresh}, start); !slices.Equal(got.give, []string{"a"}) {
		t.Errorf("a Node in two networks gets it once: %+v", got)
	}
}
