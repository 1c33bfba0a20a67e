package metadata

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	admitAfter = 5 * time.Second // how long a Node must be ready before it gets the label
	// lastAdmission bounds how long a Node that lost the label must be ready: admitAfter doubles with each loss within
	// memory, so that a flapping Node moves its addresses less and less often.
	lastAdmission = 10 * time.Minute
	memory        = time.Hour // how long the loss of the label counts
	// excludeAfter is how long a Node must be not ready before it loses the label.
	excludeAfter = 3 * time.Second
	// waveAfter is the same while several Nodes look bad, more than half of those that have the label or lost it
	// recently. A wrong value of the controller, or a bad release of the agent, affects all agents within half a
	// minute: if some Nodes still look good after that, neither is the cause.
	waveAfter = 35 * time.Second
	wave      = time.Minute // how long a Node that lost the label counts among those that look bad
	// doubtAfter is the same while the state is unknown: the announcer on the Node may work without its agent.
	doubtAfter = 10 * time.Minute
)

// readiness is what a Node's agent reports about the public network.
type readiness int

const (
	// unwatched: no agent has reported. The label of such a Node is not changed; users may set it manually.
	unwatched readiness = iota
	// ready: the condition is True.
	ready
	// doubtful: the condition is Unknown, but the kubelet of the Node reports.
	doubtful
	// notReady: the condition is False, the Node is silent, or it may not carry traffic.
	notReady
)

// readinessOf reads the agent's condition, which does not count when the Node itself no longer reports. A Node whose
// annotation cannot be read is doubtful: the controller writes it again.
func readinessOf(node *corev1.Node, carriers contract.CarriersOf) readiness {
	condition := contract.FindNodeCondition(node, contract.ConditionVLANReady)
	_, _, unreadable := contract.ParsePublicNetworks(node.Annotations)
	switch {
	case condition == nil:
		return unwatched
	case carriers.Unfit(node, true) == (contract.Obstacle{}):
		return ready
	case (condition.Status == corev1.ConditionUnknown ||
		condition.Status == corev1.ConditionTrue && unreadable != nil) &&
		!contract.Unreachable(node) &&
		carriers.Barred(node) == (contract.Obstacle{}):
		return doubtful
	default:
		return notReady
	}
}

// vlanNode is a Node as input of the decision.
type vlanNode struct {
	name     string
	networks []string // the IDs of its public networks
	labelled bool     // it has the label
	state    readiness
	since    time.Time // when the controller first observed that state
	// shaky reports that the kubelet reports the Node as not Ready: no other Node loses the label in its favor.
	shaky bool
	lost  []time.Time // when it lost the label, within memory, in order
}

// decision contains which Nodes get and lose the label now, and when to decide again without a change; 0 for never.
type decision struct {
	give, take []string
	// supports are the Nodes that justify removals: ready for a while, and with the label now or soon.
	supports []string
	// needed are the supports in each network in which a Node loses the label.
	needed [][]string
	again  time.Duration
}

func (d *decision) wait(rest time.Duration) {
	if rest > 0 && (d.again == 0 || rest < d.again) {
		d.again = rest
	}
}

// decideAll decides among the Nodes of each public network. A Node in several loses the label only if all of them can
// do without it.
func decideAll(nodes []vlanNode, now time.Time) decision {
	var all decision
	losing := map[string]int{}
	var each []decision
	for _, network := range networksOf(nodes) {
		one := decide(slices.DeleteFunc(slices.Clone(nodes), func(n vlanNode) bool {
			return !slices.Contains(n.networks, network)
		}), now)
		all.give = append(all.give, one.give...)
		all.wait(one.again)
		for _, name := range one.take {
			losing[name]++
		}
		each = append(each, one)
	}
	for _, node := range nodes {
		if losing[node.name] > 0 && losing[node.name] == len(node.networks) {
			all.take = append(all.take, node.name)
		}
	}
	for _, one := range each {
		if slices.ContainsFunc(one.take, func(name string) bool { return slices.Contains(all.take, name) }) {
			all.needed = append(all.needed, one.supports)
		}
	}
	slices.Sort(all.give)
	slices.Sort(all.take)
	all.give = slices.Compact(all.give)
	return all
}

// networksOf are the networks of all Nodes, sorted.
func networksOf(nodes []vlanNode) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.networks...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// decide applies one rule: a Node that is not ready loses the label only while another has been ready for a while. So
// all keep it when all look bad: then the check is more likely wrong than every server.
func decide(nodes []vlanNode, now time.Time) decision {
	var result decision
	result.admitAll(nodes, now)
	if len(result.supports) == 0 {
		// A flapping Node is better than none.
		result.admitAnyway(nodes, now)
	}
	suspicious := manyBad(nodes, now)
	for _, node := range nodes {
		if !node.labelled || node.state != notReady && node.state != doubtful {
			continue
		}
		rest := patience(node.state, suspicious) - now.Sub(node.since)
		result.wait(rest)
		if rest <= 0 && len(result.supports) > 0 {
			result.take = append(result.take, node.name)
		}
	}
	slices.Sort(result.give)
	slices.Sort(result.take)
	slices.Sort(result.supports)
	return result
}

// admit adds the label to a Node that does not have it; it may justify removals.
func (d *decision) admit(node vlanNode) {
	if !node.labelled {
		d.give = append(d.give, node.name)
	}
	if !node.shaky {
		d.supports = append(d.supports, node.name)
	}
}

// admitAll adds the label to Nodes that have been ready for long enough, depending on their history.
func (d *decision) admitAll(nodes []vlanNode, now time.Time) {
	for _, node := range nodes {
		if node.state != ready {
			continue
		}
		rest := admitAfter - now.Sub(node.since)
		d.wait(rest)
		if !node.labelled {
			rest = probation(node.lost, now) - now.Sub(node.since)
			d.wait(rest)
		}
		if rest <= 0 {
			d.admit(node)
		}
	}
}

// admitAnyway adds the label regardless of the history.
func (d *decision) admitAnyway(nodes []vlanNode, now time.Time) {
	for _, node := range nodes {
		if node.state == ready && now.Sub(node.since) >= admitAfter && !node.labelled &&
			!slices.Contains(d.give, node.name) {
			d.admit(node)
		}
	}
}

// probation is how long a Node must be ready to get the label, given when it lost it.
func probation(lost []time.Time, now time.Time) time.Duration {
	needed := admitAfter
	for _, at := range lost {
		if now.Sub(at) < memory {
			needed = min(2*needed, lastAdmission)
		}
	}
	return needed
}

// patience is how long a Node in a bad state keeps the label.
func patience(state readiness, suspicious bool) time.Duration {
	switch {
	case state == doubtful:
		return doubtAfter
	case suspicious:
		return waveAfter
	default:
		return excludeAfter
	}
}

// manyBad reports whether several Nodes, and more than half of those that have the label or recently had it, look bad.
func manyBad(nodes []vlanNode, now time.Time) bool {
	all := 0
	bad := 0
	for _, node := range nodes {
		lately := len(node.lost) > 0 && now.Sub(node.lost[len(node.lost)-1]) < wave
		if node.state == unwatched || !node.labelled && !lately {
			continue
		}
		all++
		if node.state != ready {
			bad++
		}
	}
	return bad > 1 && 2*bad > all
}
