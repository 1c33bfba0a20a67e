package nodecond

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Condition is a verdict for one condition of the Node.
type Condition struct {
	Type    corev1.NodeConditionType
	Status  corev1.ConditionStatus
	Reason  string
	Message string
}

// desired is what the Node ought to say.
type desired struct {
	conditions  map[corev1.NodeConditionType]Condition
	annotations map[string]string
}

// Transition is a change of a condition's status.
type Transition struct {
	Condition
	// From is the former status, empty when the Node had no such condition.
	From corev1.ConditionStatus
}

type patch struct {
	Metadata *patchMetadata `json:"metadata,omitempty"`
	Status   *patchStatus   `json:"status,omitempty"`
}

type patchMetadata struct {
	Annotations map[string]string `json:"annotations"`
}

type patchStatus struct {
	Conditions []corev1.NodeCondition `json:"conditions"`
}

// diff decides what must be written to make node say what is desired: nothing (nil) when it says so already. With
// heartbeat, all conditions are written. A strategic-merge patch merges conditions by their type, so those of others
// stay (k8s.io/api/core/v1, NodeStatus).
func diff(want desired, node *corev1.Node, now time.Time, heartbeat bool) ([]byte, []Transition, error) {
	var p patch
	var transitions []Transition
	for _, conditionType := range slices.Sorted(maps.Keys(want.conditions)) {
		c := want.conditions[conditionType]
		current := contract.FindNodeCondition(node, conditionType)
		if !heartbeat && same(c, current) {
			continue
		}
		written := corev1.NodeCondition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message,
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
		}
		switch {
		case current == nil:
			transitions = append(transitions, Transition{Condition: c})
		case current.Status != c.Status:
			transitions = append(transitions, Transition{Condition: c, From: current.Status})
		default:
			written.LastTransitionTime = current.LastTransitionTime
		}
		if p.Status == nil {
			p.Status = &patchStatus{}
		}
		p.Status.Conditions = append(p.Status.Conditions, written)
	}
	for _, key := range slices.Sorted(maps.Keys(want.annotations)) {
		if node.Annotations[key] == want.annotations[key] {
			continue
		}
		if p.Metadata == nil {
			p.Metadata = &patchMetadata{Annotations: map[string]string{}}
		}
		p.Metadata.Annotations[key] = want.annotations[key]
	}
	if p.Metadata == nil && p.Status == nil {
		return nil, nil, nil
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the patch of Node %s: %w", node.Name, err)
	}
	return raw, transitions, nil
}

func same(c Condition, current *corev1.NodeCondition) bool {
	return current != nil && current.Status == c.Status && current.Reason == c.Reason && current.Message == c.Message
}
