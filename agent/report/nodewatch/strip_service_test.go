package nodewatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestStripKeepsTheAnnouncement: of a Service's conditions the one is kept that says who announces its address.
func TestStripKeepsTheAnnouncement(t *testing.T) {
	announced := metav1.Condition{Type: contract.ServiceConditionAnnounced, Status: metav1.ConditionTrue,
		Reason: "Answered"}
	got, err := strip(&corev1.Service{Status: corev1.ServiceStatus{Conditions: []metav1.Condition{
		{Type: contract.ServiceConditionBlockAssigned}, announced, {Type: contract.ServiceConditionAddressPublished},
	}}})
	service, ok := got.(*corev1.Service)
	if err != nil || !ok {
		t.Fatalf("strip returns %T, %v", got, err)
	}
	if diff := cmp.Diff([]metav1.Condition{announced}, service.Status.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}
