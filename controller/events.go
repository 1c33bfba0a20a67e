package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// boundedRecorder shortens the messages of all events of the controller to text.MessageLimit: they may repeat what
// users, phoenixNAP or Kubernetes wrote, of any length.
type boundedRecorder struct{ record.EventRecorder }

// Event implements record.EventRecorder.
func (r boundedRecorder) Event(object runtime.Object, kind, reason, message string) {
	r.EventRecorder.Event(object, kind, reason, text.Message(message))
}

// Eventf implements record.EventRecorder.
func (r boundedRecorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (r boundedRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason,
	format string, args ...any) {
	r.EventRecorder.AnnotatedEventf(object, annotations, kind, reason, "%s",
		text.Message(fmt.Sprintf(format, args...)))
}
