package metadata

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// fleet are Nodes whose labels follow the decisions.
type fleet struct {
	*testing.T
	seed  int
	now   time.Time
	nodes []vlanNode
	// changes counts how often each Node got or lost the label.
	changes map[string]int
}

func newFleet(t *testing.T, seed, size int) *fleet {
	t.Helper()
	f := &fleet{T: t, seed: seed, now: start, changes: map[string]int{}}
	for i := range size {
		f.nodes = append(f.nodes, vlanNode{name: strconv.Itoa(i), state: ready, since: start.Add(-time.Hour),
			labelled: true})
	}
	return f
}

func (f *fleet) turn(i int, state readiness) {
	if f.nodes[i].state != state {
		f.nodes[i].state = state
		f.nodes[i].since = f.now
	}
}

// pass advances the time, and decides whenever the last decision requires it.
func (f *fleet) pass(d time.Duration) {
	f.Helper()
	for end := f.now.Add(d); ; {
		again := f.apply()
		if again == 0 || f.now.Add(again).After(end) {
			f.now = end
			f.apply()
			return
		}
		f.now = f.now.Add(again)
	}
}

// apply decides and acts once, and checks the invariants of the decision.
func (f *fleet) apply() (again time.Duration) {
	f.Helper()
	before := countLabels(f.nodes)
	decided := decide(f.nodes, f.now)
	for i := range f.nodes {
		node := &f.nodes[i]
		given := slices.Contains(decided.give, node.name)
		taken := slices.Contains(decided.take, node.name)
		stable := f.now.Sub(node.since)
		if given && (node.labelled || node.state != ready || stable < admitAfter) ||
			taken && (!node.labelled || node.state == ready || node.state == unwatched || stable < excludeAfter) {
			f.Fatalf("seed %d: %+v decided for %+v", f.seed, decided, *node)
		}
		if given || taken {
			f.changes[node.name]++
		}
		if taken {
			node.lost = append(node.lost, f.now)
		}
		node.labelled = given || node.labelled && !taken
	}
	if before > 0 && countLabels(f.nodes) == 0 {
		f.Fatalf("seed %d: the last label was removed: %+v", f.seed, f.nodes)
	}
	if slices.ContainsFunc(f.nodes, f.serves) && !slices.ContainsFunc(f.nodes,
		func(n vlanNode) bool { return n.labelled && n.state == ready }) {
		f.Fatalf("seed %d: a Node could serve, and none that can has the label: %+v", f.seed, f.nodes)
	}
	return decided.again
}

func (f *fleet) serves(n vlanNode) bool { return n.state == ready && f.now.Sub(n.since) >= admitAfter }

func countLabels(nodes []vlanNode) int {
	count := 0
	for _, node := range nodes {
		if node.labelled {
			count++
		}
	}
	return count
}

// With random Nodes in random states: labels are never all removed, the only Node that can serve has one, only stable
// Nodes change theirs, and once nothing changes the labels are correct, or no Node is good.
func TestDecideWalks(t *testing.T) {
	for seed := range seeds.Count(t, 300) {
		random := rand.New(rand.NewPCG(uint64(seed), 2))
		f := newFleet(t, seed, 1+random.IntN(5))
		for i := range f.nodes {
			f.nodes[i] = vlanNode{name: strconv.Itoa(i), state: readiness(random.IntN(4)), since: f.now,
				labelled: random.IntN(2) == 0}
		}
		for range 100 {
			i := random.IntN(len(f.nodes))
			f.turn(i, readiness(random.IntN(4)))
			f.nodes[i].shaky = random.IntN(5) == 0
			f.pass(time.Duration(random.IntN(6000)) * time.Millisecond)
		}
		f.pass(2 * memory)
		good := slices.ContainsFunc(f.nodes, func(n vlanNode) bool { return n.state == ready && !n.shaky })
		for _, node := range f.nodes {
			if node.state == ready && !node.labelled || (node.state == notReady || node.state == doubtful) &&
				node.labelled && good {
				t.Fatalf("seed %d: at rest %+v of %+v", seed, node, f.nodes)
			}
		}
	}
}

// A flapping Node beside a stable one changes its label a few times in an hour, however it flaps.
func TestFlappingIsBounded(t *testing.T) {
	const hours, most = 6, 26
	worst := 0
	for seed := range seeds.Count(t, 100) {
		random := rand.New(rand.NewPCG(uint64(seed), 3))
		f := newFleet(t, seed, 3)
		up := time.Duration(1+random.IntN(700)) * time.Second
		down := time.Duration(1+random.IntN(60)) * time.Second
		for range hours {
			f.changes = map[string]int{}
			for end := f.now.Add(time.Hour); f.now.Before(end); {
				f.turn(1, notReady)
				f.pass(time.Duration(random.Int64N(int64(down))) + time.Second)
				f.turn(1, ready)
				f.pass(time.Duration(random.Int64N(int64(up))) + time.Second)
			}
			worst = max(worst, f.changes["1"])
		}
		if f.changes["0"]+f.changes["2"] > 0 {
			t.Fatalf("seed %d: others changed too: %v", seed, f.changes)
		}
	}
	if worst > most {
		t.Errorf("a flapping Node changed its label %d times in an hour, want %d at most", worst, most)
	}
}

// When all agents report a failure within half a minute, at least half of the labels stay: a wrong input is more likely
// than a failure of every server.
func TestAWaveOfBadNewsIsNotBelieved(t *testing.T) {
	for seed := range seeds.Count(t, 200) {
		random := rand.New(rand.NewPCG(uint64(seed), 4))
		f := newFleet(t, seed, 2+random.IntN(9))
		order := random.Perm(len(f.nodes))
		for _, i := range order {
			f.turn(i, []readiness{notReady, notReady, doubtful}[random.IntN(3)])
			f.pass(time.Duration(random.IntN(int(30*time.Second) / len(order))))
		}
		f.pass(6 * time.Hour)
		if left := countLabels(f.nodes); 2*left < len(f.nodes) {
			t.Fatalf("seed %d: %d of %d Nodes kept the label when all agents called them bad", seed, left, len(f.nodes))
		}
	}
}

// When the state of all Nodes is unknown, because no agent reports, all labels stay.
func TestAllUnknownKeepTheirLabels(t *testing.T) {
	f := newFleet(t, 0, 7)
	for i := range f.nodes {
		f.turn(i, doubtful)
		f.pass(time.Minute)
	}
	f.pass(24 * time.Hour)
	if left := countLabels(f.nodes); left != len(f.nodes) {
		t.Errorf("%d of %d labels are left", left, len(f.nodes))
	}
}
