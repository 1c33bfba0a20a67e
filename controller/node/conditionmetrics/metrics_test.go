package conditionmetrics

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	helpNode = "# HELP phoenixnap_node_condition [ALPHA] Status and reason of the conditions VLANReady and " +
		"AnnouncementHealthy of a Node; always 1.\n# TYPE phoenixnap_node_condition gauge\n"
	helpService = "# HELP phoenixnap_service_condition [ALPHA] Status and reason of the conditions BlockAssigned, " +
		"AddressPublished and Announced of a Service; always 1.\n# TYPE phoenixnap_service_condition gauge\n"
	helpDeletion = "# HELP phoenixnap_service_deletion_timestamp_seconds [ALPHA] When the deletion of a Service was " +
		"requested that has not released its address yet, in seconds since 1970.\n# TYPE " +
		"phoenixnap_service_deletion_timestamp_seconds gauge\n"
)

func condition(name string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: contract.Prefix + name, Status: status, Reason: reason}
}

// Conditions of others are not exported, and only those deletions that the controller must finish.
func TestConditionsAreExportedWhileItRuns(t *testing.T) {
	asked := metav1.NewTime(time.Unix(1700000000, 0))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"},
			{Type: contract.ConditionVLANReady, Status: corev1.ConditionFalse, Reason: "VLANInterfaceDown"},
		}}}
	service := func(name string, deleted bool, conditions ...metav1.Condition) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Status: corev1.ServiceStatus{Conditions: conditions}}
		if deleted {
			s.DeletionTimestamp = &asked
			s.Finalizers = []string{contract.LoadBalancerFinalizer}
		}
		return s
	}
	client := fake.NewClientset(node, service("web", false, condition("Announced", metav1.ConditionTrue, "Answered")),
		service("old", true, condition("BlockAssigned", metav1.ConditionFalse, "BlockUnassigning")),
		service("foreign", true))
	m := NewMetrics()
	registry := metrics.NewKubeRegistry()
	if err := registry.CustomRegister(m); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(client, 0)
	collector := New(m, factory.Core().V1().Nodes(), factory.Core().V1().Services())
	factory.Start(ctx.Done())
	ended := make(chan error)
	go func() { ended <- collector.Run(ctx) }()
	for m.source.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	want := helpNode +
		`phoenixnap_node_condition{condition="VLANReady",node="a",reason="VLANInterfaceDown",status="False"} 1
` + helpService +
		`phoenixnap_service_condition{condition="Announced",namespace="shop",reason="Answered",service="web",status="True"} 1
phoenixnap_service_condition{condition="BlockAssigned",namespace="shop",reason="BlockUnassigning",service="old",status="False"} 1
` + helpDeletion + `phoenixnap_service_deletion_timestamp_seconds{namespace="shop",service="old"} 1.7e+09
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader("")); err != nil {
		t.Errorf("after the end: %v", err)
	}
	factory.Shutdown()
}
