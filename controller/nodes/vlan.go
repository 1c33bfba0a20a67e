package nodes

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// admitAfter is how long a Node must be ready before it gets the label.
	admitAfter = 5 * time.Second
	// excludeAfter is how long it must be not ready before it loses it.
	excludeAfter = 3 * time.Second
)

// readiness is what a Node's agent says of the public network there.
type readiness int

const (
	// unwatched: no agent has said anything. Such a Node neither gets the label nor loses it; whoever
	// runs without agents may set it by hand.
	unwatched readiness = iota
	// ready: the condition is True.
	ready
	// notReady: the condition is False or Unknown, the Node is silent, or it may not carry traffic.
	notReady
)

// readinessOf reads the agent's condition. When the Node itself is not heard of any more, its agent's
// last word is worth nothing.
func readinessOf(node *corev1.Node, selected bool) readiness {
	condition := contract.FindNodeCondition(node, contract.ConditionVLANReady)
	if condition == nil {
		return unwatched
	}
	silent := contract.FindNodeCondition(node, corev1.NodeReady)
	if condition.Status != corev1.ConditionTrue || !selected || (silent != nil && silent.Status == corev1.ConditionUnknown) {
		return notReady
	}
	return ready
}

// vlanNode is a Node as the decision sees it.
type vlanNode struct {
	name string
	// labelled tells whether it has the label at present.
	labelled bool
	state    readiness
	// since is when the controller first saw it in that state.
	since time.Time
}

// decision is which Nodes get and lose the label now, and when to decide again although nothing
// changes; 0 for never.
type decision struct {
	give, take []string
	again      time.Duration
}

// decide applies one rule: a Node that is not ready loses the label only while another, which has it
// or gets it now, is ready and has been for a while. So the last labelled Node keeps it, and all keep
// it when all look bad: then the judgement is more likely wrong than every server.
func decide(nodes []vlanNode, now time.Time) decision {
	var result decision
	keeper := false
	wait := func(d time.Duration) {
		if d > 0 && (result.again == 0 || d < result.again) {
			result.again = d
		}
	}
	for _, node := range nodes {
		if node.state != ready {
			continue
		}
		rest := admitAfter - now.Sub(node.since)
		wait(rest)
		if rest <= 0 {
			keeper = true
			if !node.labelled {
				result.give = append(result.give, node.name)
			}
		}
	}
	for _, node := range nodes {
		if node.state != notReady || !node.labelled {
			continue
		}
		rest := excludeAfter - now.Sub(node.since)
		wait(rest)
		if rest <= 0 && keeper {
			result.take = append(result.take, node.name)
		}
	}
	slices.Sort(result.give)
	slices.Sort(result.take)
	return result
}
