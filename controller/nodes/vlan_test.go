package nodes

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/seeds"
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
		"no agent":                 {want: unwatched},
		"no agent, Node silent":    {conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionUnknown)}, want: unwatched},
		"True":                     {conditions: []corev1.NodeCondition{yes}, want: ready},
		"False":                    {conditions: []corev1.NodeCondition{condition(contract.ConditionVLANReady, corev1.ConditionFalse)}, want: notReady},
		"Unknown":                  {conditions: []corev1.NodeCondition{condition(contract.ConditionVLANReady, corev1.ConditionUnknown)}, want: notReady},
		"True but Node is silent":  {conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionUnknown), yes}, want: notReady},
		"True and Node not ready":  {conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionFalse), yes}, want: ready},
		"True but Node not chosen": {conditions: []corev1.NodeCondition{yes}, unselected: true, want: notReady},
	}
	for name, test := range tests {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: test.conditions}}
		if got := readinessOf(node, !test.unselected); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestDecide(t *testing.T) {
	const s = time.Second
	node := func(name string, labelled bool, state readiness, age time.Duration) vlanNode {
		return vlanNode{name: name, labelled: labelled, state: state, since: start.Add(-age)}
	}
	tests := map[string]struct {
		nodes []vlanNode
		want  decision
	}{
		"nothing":                        {},
		"fresh and ready waits":          {nodes: []vlanNode{node("a", false, ready, 2*s)}, want: decision{again: 3 * s}},
		"ready long enough":              {nodes: []vlanNode{node("a", false, ready, 5*s)}, want: decision{give: []string{"a"}}},
		"labelled and ready":             {nodes: []vlanNode{node("a", true, ready, 9*s)}},
		"never ready, never labelled":    {nodes: []vlanNode{node("a", false, notReady, 99*s)}},
		"broken beside a good one":       {nodes: []vlanNode{node("a", true, notReady, 3*s), node("b", true, ready, 9*s)}, want: decision{take: []string{"a"}}},
		"broken a moment ago":            {nodes: []vlanNode{node("a", true, notReady, 1*s), node("b", true, ready, 9*s)}, want: decision{again: 2 * s}},
		"the last one keeps it":          {nodes: []vlanNode{node("a", true, notReady, 99*s), node("b", false, notReady, 99*s)}},
		"all bad at once":                {nodes: []vlanNode{node("a", true, notReady, 99*s), node("b", true, notReady, 99*s)}},
		"bad, the other only just good":  {nodes: []vlanNode{node("a", true, notReady, 99*s), node("b", false, ready, 1*s)}, want: decision{again: 4 * s}},
		"swap":                           {nodes: []vlanNode{node("a", true, notReady, 99*s), node("b", false, ready, 5*s)}, want: decision{give: []string{"b"}, take: []string{"a"}}},
		"flapping one is no support":     {nodes: []vlanNode{node("a", true, notReady, 99*s), node("b", true, ready, 0)}, want: decision{again: 5 * s}},
		"unwatched ones are left alone":  {nodes: []vlanNode{node("a", true, unwatched, 99*s), node("b", false, unwatched, 99*s), node("c", true, ready, 9*s)}},
		"an unwatched one is no support": {nodes: []vlanNode{node("a", true, unwatched, 99*s), node("b", true, notReady, 99*s)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, decide(test.nodes, start), cmp.AllowUnexported(decision{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Random Nodes, random moods: labels are never all taken away, only settled Nodes change theirs, and
// once everything stays as it is the labels are where they belong, or nobody is good.
func TestDecideWalks(t *testing.T) {
	for seed := range seeds.Count(t, 300) {
		walkLabels(t, seed)
	}
}

func walkLabels(t *testing.T, seed int) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(seed), 2))
	now := start
	nodes := make([]vlanNode, 1+random.IntN(5))
	for i := range nodes {
		nodes[i] = vlanNode{name: strconv.Itoa(i), state: readiness(random.IntN(3)), since: now, labelled: random.IntN(2) == 0}
	}
	for range 100 {
		now = now.Add(time.Duration(random.IntN(6000)) * time.Millisecond)
		i := random.IntN(len(nodes))
		if next := readiness(random.IntN(3)); next != nodes[i].state {
			nodes[i].state, nodes[i].since = next, now
		}
		applyDecision(t, seed, nodes, now)
	}
	// With nothing changing any more, following "again" leads to rest.
	for {
		again := applyDecision(t, seed, nodes, now)
		if again == 0 {
			break
		}
		now = now.Add(again)
	}
	good := slices.ContainsFunc(nodes, func(n vlanNode) bool { return n.state == ready })
	for _, node := range nodes {
		if node.state == ready && !node.labelled || node.state == notReady && node.labelled && good {
			t.Fatalf("seed %d: at rest %+v of %+v", seed, node, nodes)
		}
	}
}

func applyDecision(t *testing.T, seed int, nodes []vlanNode, now time.Time) time.Duration {
	t.Helper()
	before := countLabels(nodes)
	decided := decide(nodes, now)
	for i := range nodes {
		node := &nodes[i]
		given, taken := slices.Contains(decided.give, node.name), slices.Contains(decided.take, node.name)
		settled := now.Sub(node.since)
		if given && (node.labelled || node.state != ready || settled < admitAfter) ||
			taken && (!node.labelled || node.state != notReady || settled < excludeAfter) {
			t.Fatalf("seed %d: %+v decided for %+v", seed, decided, *node)
		}
		node.labelled = given || node.labelled && !taken
	}
	if before > 0 && countLabels(nodes) == 0 {
		t.Fatalf("seed %d: the last label was taken: %+v", seed, nodes)
	}
	return decided.again
}

func countLabels(nodes []vlanNode) int {
	count := 0
	for _, node := range nodes {
		if node.labelled {
			count++
		}
	}
	return count
}
