package conditions

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// MessageLimit is the length in bytes beyond which the message of a condition is cut: every watcher of Nodes keeps it.
const MessageLimit = 1024

// Condition is the desired state of one condition of the Node.
type Condition struct {
	Type    corev1.NodeConditionType
	Status  corev1.ConditionStatus
	Reason  string
	Message string
}

// desired is the state that the Node should show.
type desired struct {
	conditions  map[corev1.NodeConditionType]Condition
	annotations map[string]string
}

// without returns a copy that lacks the given annotations, where their values are still the same.
func (d desired) without(annotations map[string]string) desired {
	left := desired{conditions: maps.Clone(d.conditions), annotations: maps.Clone(d.annotations)}
	maps.DeleteFunc(left.annotations, func(key, value string) bool {
		refused, has := annotations[key]
		return has && refused == value
	})
	return left
}

// Transition is a change of a condition's status.
type Transition struct {
	Condition
	// From is the former status, empty when the Node had no such condition.
	From corev1.ConditionStatus
}

// shows reports whether the Node has the status that the transition leads to.
func (t Transition) shows(node *corev1.Node) bool {
	current := contract.FindNodeCondition(node, t.Type)
	return current != nil && current.Status == t.Status
}

type patch struct {
	Metadata patchMetadata `json:"metadata"`
	Status   *patchStatus  `json:"status,omitempty"`
}

// empty reports whether the patch changes nothing.
func (p patch) empty() bool { return p.Metadata.Annotations == nil && p.Status == nil }

// patchMetadata names the Node that is meant: the API server refuses the patch when another one has taken its name.
type patchMetadata struct {
	UID         types.UID         `json:"uid"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type patchStatus struct {
	Conditions []corev1.NodeCondition `json:"conditions"`
}

// diff decides what must be written to give node the desired state; an empty patch if it has it already. With
// heartbeat, all conditions are written. A strategic-merge patch merges conditions by their type, so those of others
// stay (k8s.io/api/core/v1, NodeStatus).
func diff(want desired, node *corev1.Node, now time.Time, heartbeat bool) (patch, []Transition) {
	p := patch{Metadata: patchMetadata{UID: node.UID}}
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
		if p.Metadata.Annotations == nil {
			p.Metadata.Annotations = map[string]string{}
		}
		p.Metadata.Annotations[key] = want.annotations[key]
	}
	return p, transitions
}

func same(c Condition, current *corev1.NodeCondition) bool {
	return current != nil && current.Status == c.Status && current.Reason == c.Reason && current.Message == c.Message
}

func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// Reference returns what an event on a Node names, nil for no Node. kubectl describe node finds events by the Node's
// own UID as well as by its name in the place of the UID.
func Reference(node *corev1.Node) *corev1.ObjectReference {
	if node == nil {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// Recorder returns a function that records transitions as events on the Node.
func Recorder(events record.EventRecorder) func(*corev1.Node, Transition) {
	return func(node *corev1.Node, t Transition) {
		if t.From == "" && t.Status != corev1.ConditionFalse {
			// The first result of a healthy or not yet known node is not a change.
			return
		}
		eventType := corev1.EventTypeNormal
		if t.Status == corev1.ConditionFalse {
			eventType = corev1.EventTypeWarning
		}
		events.Eventf(Reference(node), eventType, t.Reason, "%s is %s: %s", t.Type, t.Status, t.Message)
	}
}
