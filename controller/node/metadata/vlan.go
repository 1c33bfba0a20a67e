package metadata

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// admitAfter is how long a Node must be ready before it gets the label.
	admitAfter = 5 * time.Second
	// lastAdmission bounds how long a Node must be ready that lost the label before: admitAfter doubles with each time
	// within memory, so that a Node that comes and goes moves its addresses ever more seldom.
	lastAdmission = 10 * time.Minute
	// memory is how long it counts that a Node lost the label.
	memory = time.Hour
	// excludeAfter is how long it must be not ready before it loses it.
	excludeAfter = 3 * time.Second
	// waveAfter is the same while several Nodes look bad, more than half of those that have the label or lost it a moment ago.
	// A wrong word of the controller itself, or a bad release of the agent, arrives at all agents within half a
	// minute, the time between two of their samples: when that long has passed and some still look good, it was none.
	waveAfter = 35 * time.Second
	// wave is how long a Node that lost the label counts among those that look bad.
	wave = time.Minute
	// doubtAfter is how long nothing must be known of a Node before it loses the label: its agent is silent or cannot
	// tell, and what announces addresses there may well work.
	doubtAfter = 10 * time.Minute
)

// readiness is what a Node's agent says of the public network there.
type readiness int

const (
	// unwatched: no agent has said anything. Such a Node neither gets the label nor loses it; whoever
	// runs without agents may set it by hand.
	unwatched readiness = iota
	// ready: the condition is True.
	ready
	// doubtful: the condition is Unknown, yet the kubelet of the Node is heard of.
	doubtful
	// notReady: the condition is False, the Node is silent, or it may not carry traffic.
	notReady
)

// readinessOf reads the agent's condition. When the Node itself is not heard of any more, its agent's
// last word is worth nothing.
func readinessOf(node *corev1.Node, selected bool) readiness {
	condition := contract.FindNodeCondition(node, contract.ConditionVLANReady)
	if condition == nil {
		return unwatched
	}
	kubelet := contract.FindNodeCondition(node, corev1.NodeReady)
	switch {
	case !selected, kubelet != nil && kubelet.Status == corev1.ConditionUnknown, condition.Status == corev1.ConditionFalse:
		return notReady
	case condition.Status == corev1.ConditionTrue:
		return ready
	default:
		return doubtful
	}
}

// vlanNode is a Node as the decision sees it.
type vlanNode struct {
	name string
	// labelled tells whether it has the label at present.
	labelled bool
	state    readiness
	// since is when the controller first saw it in that state.
	since time.Time
	// shaky tells that the kubelet calls the Node not Ready: it is no reason to rely on it in another's place.
	shaky bool
	// lost is when it lost the label, within memory, in order.
	lost []time.Time
}

// decision is which Nodes get and lose the label now, and when to decide again although nothing
// changes; 0 for never.
type decision struct {
	give, take []string
	// supports are the Nodes that justify taking: ready for a while, and with the label now or before long.
	supports []string
	again    time.Duration
}

func (d *decision) wait(rest time.Duration) {
	if rest > 0 && (d.again == 0 || rest < d.again) {
		d.again = rest
	}
}

// decide applies one rule: a Node that is not ready loses the label only while another, which has it
// or gets it now, is ready and has been for a while. So the last labelled Node keeps it, and all keep
// it when all look bad: then the judgement is more likely wrong than every server.
func decide(nodes []vlanNode, now time.Time) decision {
	var result decision
	result.admit(nodes, now)
	if len(result.supports) == 0 {
		// A Node that comes and goes is better than none.
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

// admit gives the label to Nodes that are ready and have been for long enough, each by its own past.
func (d *decision) admit(nodes []vlanNode, now time.Time) {
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
		if rest > 0 {
			continue
		}
		if !node.labelled {
			d.give = append(d.give, node.name)
		}
		if !node.shaky {
			d.supports = append(d.supports, node.name)
		}
	}
}

// admitAnyway gives the label without regard to the past.
func (d *decision) admitAnyway(nodes []vlanNode, now time.Time) {
	for _, node := range nodes {
		if node.state != ready || now.Sub(node.since) < admitAfter || node.labelled || slices.Contains(d.give, node.name) {
			continue
		}
		d.give = append(d.give, node.name)
		if !node.shaky {
			d.supports = append(d.supports, node.name)
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

// manyBad tells whether several Nodes, and more than half of those that have the label or had it a moment ago, look bad.
func manyBad(nodes []vlanNode, now time.Time) bool {
	all, bad := 0, 0
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
