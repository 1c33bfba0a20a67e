package conditions

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// Recorder returns a function that records transitions as events on the Node. kubectl describe node finds events by the
// Node's own UID as well as by its name in the place of the UID.
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
		reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
		events.Eventf(reference, eventType, t.Reason, "%s is %s: %s", t.Type, t.Status, t.Message)
	}
}
