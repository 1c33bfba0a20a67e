package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

func TestEventsAreBounded(t *testing.T) {
	recorded := record.NewFakeRecorder(3)
	recorder := boundedRecorder{recorded}
	long := strings.Repeat("100% ", 1000)
	recorder.Event(&corev1.Service{}, corev1.EventTypeNormal, "Reason", long)
	recorder.Eventf(&corev1.Service{}, corev1.EventTypeNormal, "Reason", "%s", long)
	recorder.AnnotatedEventf(&corev1.Service{}, nil, corev1.EventTypeNormal, "Reason", "%s", long)
	const prefix = "Normal Reason "
	for range 3 {
		got := strings.TrimPrefix(<-recorded.Events, prefix)
		if len(got) > text.MessageLimit || !strings.HasPrefix(got, "100% 100% ") || !strings.HasSuffix(got, "100%…") {
			t.Errorf("the event has %d bytes: %s", len(got), got)
		}
	}
}
